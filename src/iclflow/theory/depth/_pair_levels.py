"""The levels of separate rank-one layers at finite context: minima over (layer, direction) pairs.

Small aligned heads γ_lk = v_lk³ obey v̇ = v² E_lk: every subset of the L·d pairs carries stationary
points, the minima of the loss over the steps of the subset, and training visits them one pair at a
time. Derived in docs/theory/depth.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_whole
from .._moments import AlignedMoments, aligned_moments
from .._softmax_setting import only_length
from ._pairings import MOST_LAYERS, diagonal_excess

_COMPLEX_STEP = 1e-30


class PairLevel(NamedTuple):
    """A minimum of the loss over the steps of some pairs of a layer and a direction.

    - `loss`: there, with the noise of the query.
    - `steps`: γ_lk, zero for all other pairs.
    """

    loss: float
    steps: Float[np.ndarray, "L D"]


def pair_level(
    task: LinearRegression,
    pairs: Sequence[tuple[int, int]],
    layers: int,
    start: Float[np.ndarray, "L D"] | None = None,
) -> PairLevel:
    """The level of a stack that has learned some pairs: the minimum of the exact loss over them.

    Where the same directions are learned in several layers there may be more than one minimum;
    `start` chooses, by default small steps that grow with the layer.

    **Arguments:**

    - `pairs`: (layer, direction), both counted from 0, direction 0 with the largest eigenvalue.
    - `layers`: L, at most 3.
    - `start`: steps from which to descend; those of other pairs are not used.

    ```pycon
    >>> task = icl.LinearRegression([0.7, 0.3], context=8)
    >>> for pairs in ([(1, 0)], [(1, 0), (0, 0)], [(1, 0), (0, 0), (0, 1)]):
    ...     print(round(icl.theory.depth.pair_level(task, pairs, 2).loss, 6))
    0.463014
    0.380698
    0.176965

    ```
    """
    found, length = aligned_moments(task), only_length(task)
    layers = check_whole("layers", layers, 1, MOST_LAYERS)
    shape = (layers, len(found.eigenvalues))
    places = _check_pairs(pairs, shape)
    begin = _small(found, shape) if start is None else np.asarray(start, dtype=np.float64)
    if begin.shape != shape:
        raise Refusal(f"`start` has shape {begin.shape}: must be {shape}.")
    noise = float(task.noise) / length

    def excess(free: np.ndarray) -> np.inexact:
        steps = np.zeros(shape, dtype=free.dtype)
        steps[places] = free
        return diagonal_excess(found, length, noise, steps)

    best = scipy.optimize.minimize(
        lambda free: float(excess(free).real),
        begin[places],
        jac=lambda free: _slope(excess, free),
        options={"gtol": 1e-10},
    )
    steps = np.zeros(shape)
    steps[places] = best.x
    return PairLevel(float(best.fun + task.query_noise), steps)


def _slope(function, point: np.ndarray) -> np.ndarray:
    """The gradient of a polynomial by complex steps: exact up to rounding."""
    moved = point + 1j * _COMPLEX_STEP * np.eye(len(point))
    return np.array([function(each).imag for each in moved]) / _COMPLEX_STEP


def _small(found: AlignedMoments, shape: tuple[int, int]) -> np.ndarray:
    """Steps of a tenth of the optimum of one layer, and of different size in every layer."""
    return 0.1 * found.optimum * (1 + np.arange(shape[0]))[:, None] / shape[0]


def _check_pairs(
    pairs: Sequence[tuple[int, int]], shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    chosen = sorted({tuple(pair) for pair in pairs})
    for pair in chosen:
        if len(pair) != 2 or not (0 <= pair[0] < shape[0] and 0 <= pair[1] < shape[1]):
            raise Refusal(
                f"`pairs` holds {pair}: must be (layer, direction) below ({shape[0]}, {shape[1]})."
            )
    if not chosen:
        raise Refusal("`pairs` is empty: must name at least one layer and direction.")
    layer, direction = np.array(chosen).T
    return layer, direction

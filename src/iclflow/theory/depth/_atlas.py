"""All stationary points of untied scalar layers without noise: one for each way to tie them.

At a stationary point with k distinct steps of multiplicities n_i the Hessian is
⊕_i κ_i(2·11ᵀ − I), so its index is L − k and it is never degenerate. For each ordered composition
(n_1, …, n_k) of L there is exactly one with γ_1 < … < γ_k: descent that keeps layers of a group
equal never changes their order, and all its rest points inside that cone are minima. So descent
from any ordered start finds it. Derived in docs/theory/depth.md.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_whole
from ._optimum import gauss_nodes
from ._spectrum import ScalarTask, Spectrum
from ._stack import residual, stack_force, stack_hessian, stack_risk

# 2^(L − 1) points, each by a few dozen steps of Newton's method.
_MOST_LAYERS = 12
# Relative moves: at rest, and where Newton's method needs no help; its next move is the square.
_REST, _NEAR = 1e-13, 1e-6
_MOST_ITERATIONS = 500


@dataclass(frozen=True, eq=False)
class StackPoint:
    """A stationary point of untied layers, up to the order of the layers.

    - `composition`: n_i, how many layers share a step, from the smallest step up.
    - `steps`: γ_l of all layers, increasing.
    - `risk`: R there.
    - `rates`: κ_i; a group has the half-Hessian eigenvalues (2n_i − 1)κ_i once, and −κ_i
      n_i − 1 times.
    - `index`: the number of negative ones, L − k.
    - `copies`: how many points of γ-space it stands for, L!/Π n_i!.
    """

    composition: tuple[int, ...]
    steps: Float[np.ndarray, " L"]
    risk: float
    rates: Float[np.ndarray, " k"]
    index: int
    copies: int

    @property
    def curvatures(self) -> Float[np.ndarray, " L"]:
        """All eigenvalues of the half Hessian, increasing."""
        parts = [
            [rate * (2 * count - 1)] + [-rate] * (count - 1)
            for rate, count in zip(self.rates, self.composition)
        ]
        return np.sort(np.concatenate(parts))


def stack_atlas(task: ScalarTask, layers: int) -> tuple[StackPoint, ...]:
    """The 2^{L−1} stationary functions of L layers without noise, from the lowest risk up.

    The first is the optimum, the only minimum.

    **Arguments:**

    - `layers`: at most 12.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> for point in icl.theory.depth.stack_atlas(task, 3):
    ...     print(point.composition, round(point.risk, 6), point.index, point.copies)
    (1, 1, 1) 0.026722 0 6
    (2, 1) 0.030885 1 3
    (1, 2) 0.037568 1 3
    (3,) 0.053668 2 1

    ```
    """
    spectrum = Spectrum.of(task)
    layers = check_whole("layers", layers, 1, _MOST_LAYERS)
    if spectrum.cost > 0:
        raise Refusal("`task` has noise: its stationary points are not known; see `best_steps`.")
    free = 1 / gauss_nodes(spectrum, layers)[::-1]
    points = [_point(spectrum, counts, free) for counts in _compositions(layers)]
    return tuple(sorted(points, key=lambda point: point.risk))


def number_of_stack_functions(layers: int) -> int:
    """2^{L−1}, the number of compositions of L.

    ```pycon
    >>> [icl.theory.depth.number_of_stack_functions(count) for count in (1, 2, 3, 4)]
    [1, 2, 4, 8]

    ```
    """
    return 2 ** (check_whole("layers", layers) - 1)


def number_of_stack_points(layers: int) -> int:
    """Σ_k k! S(L, k), the ordered set partitions of L layers (Fubini numbers).

    ```pycon
    >>> [icl.theory.depth.number_of_stack_points(count) for count in (1, 2, 3, 4)]
    [1, 3, 13, 75]

    ```
    """
    numbers = [1]
    for size in range(1, check_whole("layers", layers) + 1):
        numbers.append(sum(math.comb(size, k) * numbers[size - k] for k in range(1, size + 1)))
    return numbers[-1]


def _compositions(layers: int) -> list[tuple[int, ...]]:
    """All ordered ways to write L as a sum."""
    found = []
    for cuts in itertools.product((False, True), repeat=layers - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), layers]
        found.append(tuple(np.diff(edges).tolist()))
    return found


def _point(spectrum: Spectrum, counts: tuple[int, ...], free: np.ndarray) -> StackPoint:
    edges = np.cumsum((0, *counts))
    start = [np.exp(np.mean(np.log(free[a:b]))) for a, b in zip(edges, edges[1:])]
    steps = np.repeat(_descend(spectrum, np.array(counts), np.array(start)), counts)
    p, s = residual(spectrum, steps), spectrum.values
    lone = [np.delete(steps, edge) for edge in edges[:-1]]
    rates = np.array([spectrum.mean((s * residual(spectrum, others)) ** 2) for others in lone])
    copies = math.factorial(len(steps)) // math.prod(map(math.factorial, counts))
    risk = float(spectrum.mean(p**2))
    return StackPoint(counts, steps, risk, rates, len(steps) - len(counts), copies)


def _descend(spectrum: Spectrum, counts: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The stationary point of γ_1 < … < γ_k with these multiplicities, by descent in their cone."""
    groups = np.repeat(np.eye(len(counts)), counts, axis=0)
    now, near = start, False
    for _ in range(_MOST_ITERATIONS):
        steps = groups @ now
        hessian = groups.T @ stack_hessian(spectrum, steps) @ groups
        values, vectors = np.linalg.eigh(hessian)
        # Newton's direction, made one of descent where R is not convex.
        along = vectors.T @ (stack_force(spectrum, steps) @ groups)
        move = vectors @ (along / np.maximum(np.abs(values), 1e-3 * values.max()))
        relative = np.max(np.abs(move / now))
        if near and relative > _NEAR:  # rounding is all that moves it
            return now
        near = relative < _NEAR and values.min() > 0
        now = now + move * (1.0 if near else _shorten(spectrum, groups, now, move))
        if relative < _REST:
            return now
    raise RuntimeError("A stationary point of a stack was not found.")


def _shorten(spectrum: Spectrum, groups: np.ndarray, now: np.ndarray, move: np.ndarray) -> float:
    """The largest share 1, ½, ¼, … of a move that keeps the order of steps and lowers the risk."""
    risk, share = stack_risk(spectrum, groups @ now), 1.0
    while share > _REST:
        new = now + share * move
        ordered = new[0] > 0 and np.all(np.diff(new) > 0)
        if ordered and stack_risk(spectrum, groups @ new) < risk:
            return share
        share /= 2
    return 0.0

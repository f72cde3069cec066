"""Steps of gradient descent that are fitted to the predictions of a model of several layers.

w_L = V(S) β with a polynomial V of degree L − 1, so that predictions are linear in its
coefficients: what they multiply, x_q·Sᵏβ, is computed once, and a fit is a small problem of least
squares in the steps (docs/theory/depth.md).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from ..estimators import (
    AbstractEstimator,
    GradientSteps,
    MomentumSteps,
    MovingSteps,
    PreconditionedSteps,
    masked_context,
)
from ..models import Normaliser, attention_length
from ..runtime.precision import as_float
from ..tasks import Sequences

# Own step sizes, and momentum, are fitted up to this many steps: powers of S are then so alike that
# predictions do not tell their steps apart.
_MOST_OWN = 6
# Steps that a fit starts from, in units of 1/(mean eigenvalue of S).
_GRID = np.geomspace(0.03, 3.0, 25)

Coefficients = Float[np.ndarray, " K"]


class _Family(NamedTuple):
    """Estimators of one kind.

    **Fields:**

    - `solution`: the coefficients of V for given numbers, in the unit of their steps.
    - `starts`: numbers that a fit may begin at, for a size that equal steps could have.
    - `build`: the estimator for given numbers, with steps divided by the second argument.
    """

    solution: Callable[[np.ndarray], Coefficients]
    starts: Callable[[float], list[np.ndarray]]
    build: Callable[[np.ndarray, float], AbstractEstimator]


class DescentFits:
    """Families of steps of gradient descent, on fixed sequences.

    **Arguments:**

    - `steps`: the most that are tried; at least 2.
    - `covariance`: of the inputs, to try steps preconditioned by its inverse; None leaves them out.
    """

    def __init__(
        self,
        sequences: Sequences,
        steps: int,
        normaliser: Normaliser,
        covariance: Float[np.ndarray, "D D"] | None = None,
    ):
        self._parts = [_Features(sequences, steps, normaliser, np.eye(sequences.dim))]
        plain = [*_plain(steps, normaliser), *_others(steps, normaliser)]
        self._families = [(self._parts[0], family) for family in plain]
        if covariance is not None:
            inverse = np.linalg.inv(covariance)
            self._parts.append(_Features(sequences, steps, normaliser, inverse))
            families = _plain(steps, normaliser, as_float(inverse))
            self._families += [(self._parts[1], family) for family in families]

    def fit(
        self, own: Float[np.ndarray, " n"]
    ) -> list[tuple[AbstractEstimator, Float[np.ndarray, " n"]]]:
        """The nearest estimator of each family, with its predictions."""
        return [features.fit(own, family) for features, family in self._families]


class _Features:
    """x_q·(AS)ᵏAβ of each sequence, in units in which the mean eigenvalue of AS is 1."""

    def __init__(
        self, sequences: Sequences, steps: int, normaliser: Normaliser, matrix: np.ndarray
    ):
        count = max(steps, 4)  # two steps of GD++ have four powers
        powers, unit = _powers(sequences, jnp.asarray(matrix), count, normaliser)
        self.unit = float(unit)
        self.values = np.asarray(powers) / self.unit ** np.arange(1, count + 1)
        self._basis, self._triangle = np.linalg.qr(self.values)

    def fit(
        self, own: Float[np.ndarray, " n"], family: _Family
    ) -> tuple[AbstractEstimator, Float[np.ndarray, " n"]]:
        # Lengths do not change by the basis: a problem of as many rows as there are powers.
        aim = self._basis.T @ own

        def miss(numbers: np.ndarray) -> np.ndarray:
            solution = family.solution(numbers)
            return self._triangle[:, : len(solution)] @ solution - aim

        starts = [start for step in _GRID for start in family.starts(step)]
        first = min(starts, key=lambda start: float(np.sum(miss(start) ** 2)))
        found: Any = scipy.optimize.least_squares(
            miss, first, xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=60
        )
        solution = family.solution(found.x)
        return family.build(found.x, self.unit), self.values[:, : len(solution)] @ solution


@jax.jit(static_argnames=("count", "normaliser"))
def _powers(
    sequences: Any, matrix: Array, count: int, normaliser: Normaliser
) -> tuple[Float[Array, "n K"], Float[Array, ""]]:
    x, y = masked_context(sequences)
    length = attention_length(sequences.length, normaliser)[..., None]
    vector = jnp.einsum("de,pne,pn->pd", matrix, x, y[..., 0]) / length
    found = []
    for _ in range(count):
        found.append(jnp.sum(vector * sequences.x_query, -1))
        seen = jnp.einsum("pnd,pd->pn", x, vector)
        vector = jnp.einsum("de,pne,pn->pd", matrix, x, seen) / length
    trace = jnp.einsum("pnd,de,pne->p", x, matrix, x) / length[..., 0]
    return jnp.stack(found, -1), jnp.mean(trace) / x.shape[-1]


def _plain(steps: int, normaliser: Normaliser, matrix: Array | None = None) -> list[_Family]:
    """2 … L steps of one size, and of own sizes; preconditioned where a matrix is given."""

    def make(sizes: np.ndarray, count: int) -> AbstractEstimator:
        if matrix is None:
            return GradientSteps(sizes, count, normaliser)
        return PreconditionedSteps(matrix, sizes, count, normaliser)

    def one_size(count: int) -> _Family:
        return _Family(
            lambda numbers: steps_solution(np.repeat(numbers, count)),
            lambda step: [np.array([step])],
            lambda numbers, unit: make(numbers / unit, count),
        )

    def own_sizes(count: int) -> _Family:
        return _Family(
            steps_solution,
            lambda step: [_spread(step, count)],
            lambda numbers, unit: make(np.sort(numbers)[::-1] / unit, count),
        )

    found = [one_size(count) for count in range(2, steps + 1)]
    return found + [own_sizes(count) for count in range(2, min(steps, _MOST_OWN) + 1)]


def _others(steps: int, normaliser: Normaliser) -> list[_Family]:
    """Momentum, and GD++. (Two steps of any positive sizes are two with momentum.)"""

    def momentum(count: int) -> _Family:
        return _Family(
            lambda numbers: momentum_solution(numbers[0], numbers[1] ** 2, count),
            lambda step: [np.array([step, 0.3])],
            lambda numbers, unit: MomentumSteps(
                numbers[0] / unit, numbers[1] ** 2, count, normaliser
            ),
        )

    moving = _Family(
        lambda numbers: moving_solution(numbers[:2], numbers[2]),
        lambda step: [
            np.array([step, ratio * step, move]) for ratio in (1, 3, 6) for move in (0.2, 0.5, 0.9)
        ],
        # b multiplies η S: it has no unit.
        lambda numbers, unit: MovingSteps(
            numbers[:2] / unit, np.array([numbers[2], 0.0]), 2, normaliser
        ),
    )
    return [*(momentum(count) for count in range(3, min(steps, _MOST_OWN) + 1)), moving]


def _spread(step: float, count: int) -> np.ndarray:
    """Sizes one over which lie like Chebyshev's nodes: equal ones are a saddle of the distance."""
    turns = np.cos((2 * np.arange(count) + 1) * math.pi / (2 * count))
    return step / (1 + 0.5 * turns)


def steps_solution(sizes: np.ndarray) -> Coefficients:
    """The coefficients of V = (1 − p)/s, p = Π (1 − η_l s)."""
    left = np.ones(1)
    for size in sizes:
        left = np.convolve(left, [1.0, -size])
    return -left[1:]


def momentum_solution(size: float, momentum: float, steps: int) -> Coefficients:
    """V of p_{l+1} = (1 + m − ηs) p_l − m p_{l−1}."""
    before, left = np.ones(1), np.array([1.0, -size])
    for _ in range(steps - 1):
        following = np.convolve(left, [1 + momentum, -size])
        following[: len(before)] -= momentum * before
        before, left = left, following
    return -left[1:]


def moving_solution(sizes: np.ndarray, move: float) -> Coefficients:
    """V of two steps of GD++: p = (1 − η₁s)(1 − η₂s (1 − b η₁s)²)."""
    turn = np.array([1.0, -move * sizes[0]])
    second = np.append(0.0, -sizes[1] * np.convolve(turn, turn))
    second[0] = 1.0
    return -np.convolve([1.0, -sizes[0]], second)[1:]

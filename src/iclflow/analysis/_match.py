"""The distance of a model's predictions from those of known estimators."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..estimators import (
    AbstractDescent,
    AbstractEstimator,
    DebiasedGradientStep,
    DebiasedPreconditionedStep,
    GradientStep,
    KernelRegression,
    PreconditionedStep,
)
from ..runtime.precision import as_float
from ._fitted_estimators import ALMOST_NOTHING

# Beyond this distance a model does not implement an estimator: a tenth (0.3²) of the mean square of
# its predictions is then something else.
_FAR = 0.3
# Up to this distance a model equals an estimator, in words.
_EQUAL = 0.05
# Distances below this are equal: a model in float32 repeats an estimator no better. Of estimators
# that are equally near, the one with the fewest fitted numbers says most.
_RESOLUTION = 1e-4
# Of two ways to make several steps, the one with a fitted number more must be nearer by a tenth: it
# can only be nearer.
_WORTH_A_NUMBER = 1.1
# Percentages outside this range are not written with digits.
_SMALLEST_PERCENT, _LARGEST_PERCENT = 0.01, 1000


@dataclasses.dataclass(frozen=True)
class Match:
    """The distance of a model's predictions from those of one estimator.

    **Fields:**

    - `distance`: √(E(ŷ − ŷ_estimator)² / Eŷ²) over fresh sequences. For a model that predicts
      almost nothing, Eŷ² is replaced by that of predictions 1 % as large as the labels.
    - `standard_error`: of the distance.
    - `step_size`: the one that fits best, where the estimator has a free one.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> match = icl.which_algorithm(pair, task, count=500)["one debiased gradient step"]
    >>> match.name, bool(match.distance < 0.3), bool(match.standard_error < 0.05)
    ('one debiased gradient step', True, True)
    ```
    """

    name: str
    distance: float
    standard_error: float
    estimator: AbstractEstimator
    step_size: float | None = None

    def __str__(self) -> str:
        return f"{self.name}{self.numbers}, relative distance {self.words}"

    @property
    def numbers(self) -> str:
        """The step sizes and the like that were fitted, as in ", η = 0.85"; else nothing."""
        if self.step_size is not None:
            return f", η = {self.step_size:.3g}"
        if not isinstance(self.estimator, AbstractDescent):
            return ""
        parts = self.estimator.numbers.items()
        return "".join(f", {n} = {', '.join(f'{v:.3g}' for v in values)}" for n, values in parts)

    @property
    def known(self) -> bool:
        """Whether the estimator is near: at a relative distance of at most 0.3."""
        return self.distance <= _FAR

    @property
    def is_zero(self) -> bool:
        """Whether the estimator predicts zero, under either of its two names."""
        return self.name in ("zero", "PCR with 0 components")

    @property
    def words(self) -> str:
        """The distance in per cent, and its standard error with one digit, down to 0.01 %."""
        percent, error = 100 * self.distance, 100 * self.standard_error
        # Predictions can be so large that their squares are infinite.
        if not np.isfinite(percent):
            return "far"
        if percent >= _LARGEST_PERCENT:
            return f"{self.distance:.2g} times its size"
        if percent < _SMALLEST_PERCENT:
            return "below 0.01 %"
        if not np.isfinite(error):
            return f"about {percent:.0f} %"
        if error < _SMALLEST_PERCENT / 2:  # it would be rounded to 0
            return f"{percent:.2f} %"
        places = min(max(-int(np.floor(np.log10(error))), 0), 2)
        return f"{percent:.{places}f} ± {error:.{places}f} %"


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """The result of `which_algorithm`: every estimator tried, the nearest first."""

    matches: tuple[Match, ...]

    @property
    def best(self) -> Match:
        return self.matches[0]

    @property
    def known(self) -> bool:
        """Whether the nearest estimator is near: at a relative distance of at most 0.3."""
        return self.best.known

    @property
    def closeness(self) -> Literal["equal", "near", "unknown"]:
        """How near the nearest estimator is, in a word."""
        if not self.known:
            return "unknown"
        return "equal" if self.best.distance <= _EQUAL else "near"

    def __getitem__(self, name: str) -> Match:
        """The match with the estimator of this name."""
        for match in self.matches:
            if match.name == name:
                return match
        raise KeyError(
            f"No estimator is called {name!r}: {', '.join(m.name for m in self.matches)}."
        )

    def __str__(self) -> str:
        following = f"; next: {self.matches[1]}" if len(self.matches) > 1 else ""
        opening = "" if self.known else "none of the known estimators; nearest: "
        return f"{opening}{self.best}{following}"


def rank_estimators(
    labels: Float[np.ndarray, " n"],
    own: Float[np.ndarray, " n"],
    predictions: Sequence[Float[np.ndarray, " n"]],
    estimators: Sequence[AbstractEstimator],
) -> Algorithm:
    """The estimators by the distance of their predictions from a model's `own`."""
    least = ALMOST_NOTHING**2 * float(np.mean(labels**2))
    matches = [_match(own, other, e, least) for other, e in zip(predictions, estimators)]
    # Any step with a fitted size is near to a model that predicts almost nothing: zero says more.
    if np.mean(own**2) < least:
        matches = [match for match in matches if match.step_size is None] or matches
    return Algorithm(_simple_first(sorted(matches, key=_rank)))


def _simple_first(matches: list[Match]) -> tuple[Match, ...]:
    """A plain step with a matrix behind all simpler estimators that are near. It is what any layer
    of linear attention does: whatever else is near says more."""
    first = matches[0].estimator
    if not isinstance(first, PreconditionedStep):
        return tuple(matches)
    is_ahead = lambda match: match.known and _count_fitted(match.estimator) < first.matrix.size
    ahead = [match for match in matches[1:] if is_ahead(match)]
    return (*ahead, matches[0], *(match for match in matches[1:] if not is_ahead(match)))


def _rank(match: Match) -> tuple[float, int, float]:
    fitted, distance = _count_fitted(match.estimator), max(match.distance, _RESOLUTION)
    if isinstance(match.estimator, AbstractDescent):
        distance *= _WORTH_A_NUMBER**fitted
    return distance, fitted, match.distance


def _count_fitted(estimator: AbstractEstimator) -> int:
    """How many numbers of an estimator are fitted to the model."""
    if isinstance(estimator, GradientStep | DebiasedGradientStep):
        return 1
    if isinstance(estimator, KernelRegression):
        return 2
    if isinstance(estimator, PreconditionedStep | DebiasedPreconditionedStep):
        return estimator.matrix.size
    if isinstance(estimator, AbstractDescent):
        return sum(len(values) for values in estimator.numbers.values())
    return 0


def _match(
    own: Float[np.ndarray, " n"],
    other: Float[np.ndarray, " n"],
    estimator: AbstractEstimator,
    least: float,
) -> Match:
    step = None
    if isinstance(estimator, GradientStep | DebiasedGradientStep):
        power = float(np.mean(other**2))
        factor = float(np.mean(own * other)) / power if power > 0 else 0.0
        other, step = factor * other, factor * float(estimator.step_size)
        estimator = eqx.tree_at(lambda e: e.step_size, estimator, as_float(step))
    squares, whole = (own - other) ** 2, own**2
    if np.mean(whole) < least:
        whole = np.full_like(whole, least)
    scale = float(np.mean(whole))
    ratio = float(np.mean(squares)) / scale if scale > 0 else float(np.any(squares > 0))
    distance = float(np.sqrt(ratio))
    if distance == 0 or scale == 0:
        return Match(estimator.name, distance, 0.0, estimator, step)
    # The delta method for a ratio of two means, and for its square root.
    with np.errstate(over="ignore"):  # weights that have diverged: the error is infinite too
        error = float(np.std(squares - ratio * whole, ddof=1)) / scale / len(own) ** 0.5
    return Match(estimator.name, distance, error / (2 * distance), estimator, step)

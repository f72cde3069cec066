"""Which known estimator a model implements, judged by its predictions alone."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..estimators import (
    AbstractEstimator,
    Bayes,
    DebiasedGradientStep,
    EmpiricalPCR,
    GradientStep,
    KernelRegression,
    LeastSquares,
    PopulationPCR,
    Ridge,
    SubspaceLeastSquares,
    Zero,
)
from ..models import AbstractModel, Normaliser
from ..precision import as_float
from ..risks import available_kinds
from ..tasks import (
    AbstractTask,
    Estimate,
    LinearRegression,
    MultiTaskRegression,
    estimate_mean,
    is_whole,
)
from ._fitted_estimators import ALMOST_NOTHING, fit_each_label, is_white, predict
from ._one_label import one_label_sequences, one_label_task, unrotated_labels

# Sequences predicted at a time: bounds the memory.
MOST_PREDICTED_AT_ONCE = 5000
# Farther than this from an estimator, a model is not called by its name: a tenth of the mean square
# of what it predicts is then something else.
_FAR = 0.3


@dataclasses.dataclass(frozen=True)
class Match:
    """How far a model's predictions are from those of one estimator.

    **Fields:**

    - `distance`: √(E(ŷ − ŷ_estimator)² / Eŷ²) over fresh sequences. For a model that predicts
      almost nothing, Eŷ² is replaced by that of predictions 1 % as large as the labels.
    - `standard_error`: of the distance.
    - `step_size`: the one that fits best, where the estimator has a free one.
    """

    name: str
    distance: float
    standard_error: float
    estimator: AbstractEstimator
    step_size: float | None = None

    def __str__(self) -> str:
        step = "" if self.step_size is None else f", η = {self.step_size:.3g}"
        return f"{self.name}{step}, relative distance {self.words}"

    @property
    def words(self) -> str:
        """The distance in per cent, and its standard error with one digit, down to 0.01 %."""
        percent, error = 100 * self.distance, 100 * self.standard_error
        # Predictions can be so large that their squares are infinite.
        if not np.isfinite(percent):
            return "far"
        if percent >= 1000:
            return f"{self.distance:.2g} times its size"
        if percent < 0.01:
            return "below 0.01 %"
        if not np.isfinite(error):
            return f"about {percent:.0f} %"
        if error < 0.005:
            return f"{percent:.2f} %"
        places = min(max(-int(np.floor(np.log10(error))), 0), 2)
        return f"{percent:.{places}f} ± {error:.{places}f} %"


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """What `which_algorithm` found: every estimator tried, the nearest first."""

    matches: tuple[Match, ...]

    @property
    def best(self) -> Match:
        return self.matches[0]

    @property
    def known(self) -> bool:
        """Whether the nearest estimator is near: at a relative distance of at most 0.3."""
        return self.best.distance <= _FAR

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


def which_algorithm(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray | None = None,
    count: int = 20_000,
    estimators: Sequence[AbstractEstimator] | None = None,
    label: int = 0,
) -> Algorithm:
    """Compares a model's predictions on fresh sequences with those of known estimators.

    **Arguments:**

    - `model`: any model; softmax attention too.
    - `task`: where the sequences come from.
    - `key`: draws them; by default `jax.random.key(0)`.
    - `count`: how many. The standard error of a distance is about distance/√count.
    - `estimators`: what to compare with; by default all that exist for `task`, and those of
      `fitted_estimators`. Steps of gradient descent get the step size that fits best.
    - `label`: for a task of several labels: which one. Estimators then see the coordinates that
      this label depends on, and no other label.
    """
    if isinstance(task, MultiTaskRegression) and not 0 <= label < task.labels:
        raise ValueError(f"`label` = {label}: must lie between 0 and {task.labels - 1}.")
    return _compare(model, task, key, count, estimators, (label,)).algorithms[0]


class Comparison(NamedTuple):
    """A model on fresh sequences.

    **Fields:**

    - `algorithms`: what `which_algorithm` finds for each label.
    - `loss`: its mean squared error, summed over labels, with the standard error.
    """

    algorithms: tuple[Algorithm, ...]
    loss: Estimate


def compare(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray | None = None,
    count: int = 20_000,
) -> Comparison:
    """`which_algorithm` for every label of a task, and the loss: all on the same sequences, which
    are drawn and predicted once. Arguments as there."""
    labels = range(task.labels) if isinstance(task, MultiTaskRegression) else (0,)
    return _compare(model, task, key, count, None, tuple(labels))


def _compare(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray | None,
    count: int,
    estimators: Sequence[AbstractEstimator] | None,
    labels: tuple[int, ...],
) -> Comparison:
    if not is_whole(count) or count < 2:
        raise ValueError(f"`count` = {count}: a standard error needs at least 2 sequences.")
    key = jr.key(0) if key is None else key
    if not isinstance(model, AbstractEstimator):
        available_kinds(task, model)  # refuses a model and a task of different sizes
    batch = min(count, MOST_PREDICTED_AT_ONCE)
    # Fitted on sequences of their own, so that what is measured is not what was fitted.
    rivals = (
        _rivals(model, task, jr.fold_in(key, 1), batch, labels)
        if estimators is None
        else {label: tuple(estimators) for label in labels}
    )
    parts = [_predictions(model, rivals, task, k, batch) for k in jr.split(key, -(-count // batch))]
    errors, *rows = (np.concatenate(each, axis=-1) for each in zip(*parts))
    if not all(np.all(np.isfinite(own)) for _, own, *_ in rows):
        raise ValueError("`model` predicts NaN or infinity: it implements no algorithm.")
    found = (_rank_estimators(each, rivals[label]) for each, label in zip(rows, labels))
    return Comparison(tuple(found), estimate_mean(jnp.asarray(errors)))


def _rank_estimators(rows: Float[np.ndarray, "n count"], estimators) -> Algorithm:
    """The estimators by their distance, from the labels and all predictions of them."""
    labels, own, *theirs = rows
    least = ALMOST_NOTHING**2 * float(np.mean(labels**2))
    matches = [_match(own, other, e, least) for other, e in zip(theirs, estimators)]
    # A step size fitted to almost nothing is almost nothing: it says less than zero does.
    if np.mean(own**2) < least:
        matches = [match for match in matches if match.step_size is None] or matches
    return Algorithm(tuple(sorted(matches, key=lambda match: match.distance)))


def _rivals(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray,
    batch: int,
    labels: tuple[int, ...],
) -> dict[int, tuple[AbstractEstimator, ...]]:
    """All that a model may be for each label."""
    normaliser: Any = getattr(model, "normaliser", "context")
    fitted = fit_each_label(model, task, key, labels, batch)
    seen: dict[int, AbstractTask] = dict.fromkeys(labels, task)
    if isinstance(task, MultiTaskRegression):
        seen = {label: one_label_task(task, label) for label in labels}
    return {label: (*known_estimators(seen[label], normaliser), *fitted[label]) for label in labels}


def known_estimators(
    task: AbstractTask, normaliser: Normaliser = "context"
) -> tuple[AbstractEstimator, ...]:
    """All estimators that exist for a task, PCR with every number of components among them. (White
    inputs have no principal components: PCR is left out.)

    **Arguments:**

    - `normaliser`: what one gradient step and PCR divide their sums by: that of the model which
      they are compared with.
    """
    found: list[AbstractEstimator] = [GradientStep(1.0, normaliser), DebiasedGradientStep(1.0)]
    found += [LeastSquares(), Bayes(task)]
    if not isinstance(task, LinearRegression):
        return (Zero(), *found)
    if is_white(task):
        found.append(Zero())
    else:
        found += [PopulationPCR(task, m, normaliser) for m in range(task.dim + 1)]
        # With every component the subspace is the whole space: that is least squares already.
        for m in range(1, task.dim):
            found += [SubspaceLeastSquares(task, m), EmpiricalPCR(m)]
    if task.noise > 0:
        # The penalty that is Bayes for a prior of the same mean squared norm in every direction.
        size = jnp.trace(task.weight_second_moment) / task.dim
        found.append(Ridge(task.noise / size))
    return tuple(found)


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


def _predictions(
    model: AbstractModel,
    rivals: dict[int, tuple[AbstractEstimator, ...]],
    task: AbstractTask,
    key: PRNGKeyArray,
    batch: int,
) -> list[np.ndarray]:
    """The errors of the model on fresh sequences; then for each label the labels themselves, and
    the predictions of the model and of each estimator."""
    sequences = task.sample(key, batch)
    own = _predict_alike(model, sequences)
    found = [np.asarray(sequences.squared_error(own))]
    for label, estimators in rivals.items():
        seen, single = sequences, own
        if isinstance(task, MultiTaskRegression):
            seen = one_label_sequences(task, sequences, label)
            single = unrotated_labels(task, own)[..., label]
        rows = [seen.y_query, single, *(_predict_alike(each, seen) for each in estimators)]
        found.append(np.stack([np.asarray(row) for row in rows]))
    return found


def _predict_alike(model: AbstractModel, sequences: Any) -> Array:
    """What a model or an estimator predicts, in the way that takes the least time in all."""
    # Most estimators share parts that are compiled already: not compiled as a whole again.
    if isinstance(model, KernelRegression) or not isinstance(model, AbstractEstimator):
        return predict(model, sequences)
    return (_bayes_as_ridge(model) if isinstance(model, Bayes) else model).predict(sequences)


def _bayes_as_ridge(bayes: Bayes) -> AbstractEstimator:
    """The same predictions from a decomposition that is quicker, for w ~ N(0, λI)."""
    task = bayes.task
    if not isinstance(task, LinearRegression) or np.any(np.asarray(task.prior_mean)):
        return bayes
    prior = np.asarray(task.prior_covariance)
    if prior[0, 0] <= 0 or np.any(prior != prior[0, 0] * np.eye(task.dim)):
        return bayes
    return Ridge(task.noise / prior[0, 0]) if task.noise > 0 else LeastSquares()

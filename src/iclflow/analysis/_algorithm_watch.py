"""Which known estimator a model implements, asked again and again while it is trained."""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..errors import Refusal
from ..estimators import (
    AbstractEstimator,
    Bayes,
    DebiasedPreconditionedStep,
    EmpiricalPCR,
    KernelRegression,
    PopulationPCR,
    PreconditionedStep,
    SubspaceLeastSquares,
)
from ..models import AbstractModel, Normaliser
from ..runtime.precision import as_float
from ..tasks import AbstractTask, LinearRegression
from ._fitted_estimators import (
    ALMOST_NOTHING,
    RANGE,
    correlation_features,
    is_white,
    predict,
)
from ._match import Algorithm, rank_estimators
from ._one_label import one_label_sequences, one_label_task, unrotated_labels
from ._which_algorithm import known_estimators

# Sequences, as far as all their tokens together are not more than so many numbers.
_COUNT = 1000
_LARGEST = 2**20
_FEWEST = 100
# A matrix is fitted up to this many entries, and least squares in fewer dimensions than there are
# is tried up to this many of them: each takes a decomposition of every context.
_LARGEST_MATRIX = 64
_LARGEST_SUBSPACES = 6
_LARGEST_SETS = 4


class _Reference(NamedTuple):
    """One label of all sequences, and what each estimator predicts of it.

    **Fields:**

    - `labels`: (n,), of the query.
    - `estimators`, `predictions`: (n,) each.
    - `kernels`: the predictions of kernel regression by width, (widths, n).
    - `features`, `solver`: of a debiased step with a matrix, (n, D²), and what fits the matrix to
      predictions on other sequences, (D², n).
    """

    labels: np.ndarray
    estimators: tuple[AbstractEstimator, ...]
    predictions: np.ndarray
    kernels: np.ndarray | None
    widths: np.ndarray
    features: np.ndarray | None
    solver: np.ndarray | None


class AlgorithmWatch:
    """Compares models with known estimators on sequences that are drawn once.

    `which_algorithm` draws them anew, and has every estimator predict them again; here a look at a
    model takes as long as its own predictions. What is fitted to a model is fitted more coarsely:
    the width of kernel regression is one of a few. In few dimensions PCR is tried with every set
    of components; in many, least squares in fewer of them is left out.
    """

    def __init__(
        self,
        task: AbstractTask,
        normaliser: Normaliser = "context",
        *,
        fitted: bool = False,
        key: PRNGKeyArray | None = None,
        count: int | None = None,
    ):
        """**Arguments:**

        - `task`: where the sequences come from.
        - `normaliser`: that of the models.
        - `fitted`: whether kernel regression, and a debiased step with a matrix, are among the
          estimators: for models that are not linear attention.
        - `key`: draws the sequences; by default `jax.random.key(0)`.
        - `count`: how many; by default 1000, fewer if contexts are long.
        """
        size = task.max_context * (task.dim + task.labels)
        count = max(_FEWEST, min(_COUNT, _LARGEST // size)) if count is None else count
        if count < 2:
            raise Refusal(f"`count` = {count}: a standard error needs at least 2 sequences.")
        self.task, self.count = task, count
        key = jr.key(0) if key is None else key
        self._sequences: Any = task.sample(key, count)
        # Matrices are fitted on sequences of their own, so that what is measured is not what was
        # fitted.
        self._others: Any = task.sample(jr.fold_in(key, 1), count) if fitted else None
        each = range(task.labels)
        self._references = tuple(self._predict_all(label, normaliser, fitted) for label in each)
        # The model that was asked about last, and what it predicts: its size and its algorithm are
        # asked for one after the other.
        self._last: tuple[AbstractModel, np.ndarray] | None = None

    def look(self, model: AbstractModel) -> tuple[Algorithm, ...] | None:
        """The estimators for each label of the task, the nearest first; None for a model that
        predicts NaN or infinity, or numbers whose squares cannot be compared."""
        own = self._predict_shared(model)
        fitting = any(reference.solver is not None for reference in self._references)
        other = self._predict(model, self._others) if fitting else own
        if not (_is_usable(own) and _is_usable(other)):
            return None
        return tuple(
            self._rank(reference, own[:, i], other[:, i])
            for i, reference in enumerate(self._references)
        )

    def sizes(self, model: AbstractModel) -> tuple[float, ...]:
        """How large the predictions of each label are, as a share of those of the best predictor
        where that is known, and of the labels elsewhere."""
        own = self._predict_shared(model)
        with np.errstate(over="ignore"):
            powers = np.mean(own**2, axis=0)
        whole = [float(np.mean(_worth_predicting(each) ** 2)) for each in self._references]
        return tuple(
            float(np.sqrt(power / most)) if most > 0 else float(power > 0)
            for power, most in zip(powers, whole)
        )

    def _predict_shared(self, model: AbstractModel) -> np.ndarray:
        """What a model predicts of the sequences that all are compared on."""
        if self._last is None or self._last[0] is not model:
            self._last = model, self._predict(model, self._sequences)
        return self._last[1]

    def _predict(self, model: AbstractModel, sequences: Any) -> np.ndarray:
        """(n, labels)."""
        return np.asarray(unrotated_labels(self.task, predict(model, sequences)))

    def _rank(self, reference: _Reference, own: np.ndarray, other: np.ndarray) -> Algorithm:
        estimators, predictions = list(reference.estimators), list(reference.predictions)
        if np.mean(own**2) >= ALMOST_NOTHING**2 * np.mean(reference.labels**2):
            for estimator, prediction in _fit_to(reference, own, other):
                estimators.append(estimator)
                predictions.append(prediction)
        return rank_estimators(reference.labels, own, predictions, estimators)

    def _predict_all(self, label: int, normaliser: Normaliser, fitted: bool) -> _Reference:
        sequences = _one_label(self.task, self._sequences, label)
        task = one_label_task(self.task, label)
        found = []
        candidates = *known_estimators(task, normaliser), *_other_components(task, normaliser)
        for estimator in candidates:
            in_subspace = isinstance(estimator, SubspaceLeastSquares | EmpiricalPCR)
            if in_subspace and task.dim > _LARGEST_SUBSPACES:
                continue
            try:
                found.append(
                    (estimator, np.asarray(_as_matrix_step(estimator).predict(sequences))[:, 0])
                )
            except TypeError:  # no posterior is known for this task
                continue
        kernels = features = solver = None
        widths = np.zeros(0)
        if fitted and isinstance(task, LinearRegression):
            unit = task.dim / float(np.trace(np.asarray(task.covariance)))
            widths = unit * np.concatenate([RANGE, -RANGE])
            kernels = np.asarray(_kernels(widths, sequences))[..., 0]
            if not is_white(task) and task.dim**2 <= _LARGEST_MATRIX:
                features = correlation_features(sequences)
                others = _one_label(self.task, self._others, label)
                solver = np.linalg.pinv(correlation_features(others))
        names, predictions = zip(*found)
        labels = np.asarray(sequences.y_query)[:, 0]
        return _Reference(labels, names, np.stack(predictions), kernels, widths, features, solver)


def _is_usable(predictions: np.ndarray) -> bool:
    """Whether errors of predictions can be computed, which takes their fourth powers."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(predictions**4)))


def _worth_predicting(reference: _Reference) -> np.ndarray:
    """What is worth predicting of a label."""
    for estimator, prediction in zip(reference.estimators, reference.predictions):
        if isinstance(estimator, Bayes):
            return prediction
    return reference.labels


def _other_components(task: AbstractTask, normaliser: Normaliser) -> list[PopulationPCR]:
    """PCR with components that are not the leading ones, in few dimensions: what a model is that
    learns them in another order."""
    if not isinstance(task, LinearRegression) or task.dim > _LARGEST_SETS or is_white(task):
        return []
    sets = (s for m in range(1, task.dim) for s in itertools.combinations(range(task.dim), m))
    return [PopulationPCR(task, s, normaliser) for s in sets if s != tuple(range(len(s)))]


def _as_matrix_step(estimator: AbstractEstimator) -> AbstractEstimator:
    """The same estimator in a form for which fewer programs are compiled: PCR with any number of
    components is a step with a matrix."""
    if not isinstance(estimator, PopulationPCR):
        return estimator
    basis, gains = np.asarray(estimator.basis), np.asarray(estimator.gains)
    matrix = jax.device_put((basis * gains) @ basis.T)
    return PreconditionedStep(matrix, estimator.normaliser)


def _fit_to(reference: _Reference, own: np.ndarray, other: np.ndarray):
    """The kernel regression and the step with a matrix that are nearest, with predictions."""
    if reference.kernels is not None:
        powers = np.maximum(np.mean(reference.kernels**2, 1), np.finfo(float).tiny)
        factors = np.mean(reference.kernels * own, 1) / powers
        best = int(np.argmax(factors**2 * powers))
        width, factor = float(reference.widths[best]), float(factors[best])
        yield KernelRegression(width, factor), factor * reference.kernels[best]
    if reference.features is not None and reference.solver is not None:
        matrix = reference.solver @ other
        dim = round(len(matrix) ** 0.5)
        step = DebiasedPreconditionedStep(as_float(matrix.reshape(dim, dim)))
        yield step, reference.features @ matrix


@eqx.filter_jit
def _one_label(task: AbstractTask, sequences: Any, label: int):
    return one_label_sequences(task, sequences, label)


@eqx.filter_jit
def _kernels(widths: Any, sequences: Any) -> Array:
    """What kernel regression predicts, by width. One after the other: that bounds the memory."""
    return jax.lax.map(lambda width: KernelRegression(width).predict(sequences), widths)

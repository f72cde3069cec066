"""Which known estimator a model implements, asked again and again while it is trained."""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..estimators import (
    AbstractEstimator,
    Bayes,
    DebiasedPreconditionedStep,
    EmpiricalPCR,
    KernelRegression,
    PopulationPCR,
    PreconditionedStep,
    SubspaceLeastSquares,
    centred_correlation,
)
from ..models import AbstractModel, Normaliser
from ..precision import as_float
from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression
from ._fitted_estimators import _RANGE, ALMOST_NOTHING, is_white, predict
from ._one_label import one_label_sequences, one_label_task, unrotated_labels
from ._which_algorithm import Algorithm, _match, known_estimators

# Sequences, as far as all their tokens together are not more than so many numbers.
_COUNT = 1000
_LARGEST = 2**20
_FEWEST = 100
# A matrix is fitted up to this many entries, and least squares in fewer dimensions than there are
# is tried up to this many of them: each takes a decomposition of every context.
_LARGEST_MATRIX = 64
_LARGEST_SUBSPACES = 6
_LARGEST_SETS = 4


class _Label(NamedTuple):
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
        size = task.max_context * (task.dim + (task.labels or 1))
        count = max(_FEWEST, min(_COUNT, _LARGEST // size)) if count is None else count
        if count < 2:
            raise ValueError(f"`count` = {count}: a standard error needs at least 2 sequences.")
        self.task, self.count = task, count
        key = jr.key(0) if key is None else key
        self._sequences: Any = task.sample(key, count)
        # Matrices are fitted on sequences of their own, so that what is measured is not what was
        # fitted.
        self._others: Any = task.sample(jr.fold_in(key, 1), count) if fitted else None
        labels = range(task.labels) if isinstance(task, MultiTaskRegression) else (0,)
        self._labels = tuple(self._known(label, normaliser, fitted) for label in labels)
        # The model that was asked about last, and what it predicts: its size and its algorithm are
        # asked for one after the other.
        self._last: tuple[AbstractModel, np.ndarray] | None = None

    def look(self, model: AbstractModel) -> tuple[Algorithm, ...] | None:
        """The estimators for each label of the task, the nearest first; None for a model that
        predicts NaN or infinity, or numbers whose squares cannot be compared."""
        own = self._own(model)
        fitting = any(known.solver is not None for known in self._labels)
        other = self._predicted(model, self._others) if fitting else own
        if not (_usable(own) and _usable(other)):
            return None
        return tuple(
            self._compared(known, own[:, i], other[:, i]) for i, known in enumerate(self._labels)
        )

    def sizes(self, model: AbstractModel) -> tuple[float, ...]:
        """How large the predictions of each label are, as a share of those of the best predictor
        where that is known, and of the labels elsewhere."""
        own = self._own(model)
        with np.errstate(over="ignore"):
            powers = np.mean(own**2, axis=0)
        whole = [float(np.mean(_worth_predicting(known) ** 2)) for known in self._labels]
        return tuple(
            float(np.sqrt(power / most)) if most > 0 else float(power > 0)
            for power, most in zip(powers, whole)
        )

    def _own(self, model: AbstractModel) -> np.ndarray:
        """What a model predicts of the sequences that all are compared on."""
        if self._last is None or self._last[0] is not model:
            self._last = model, self._predicted(model, self._sequences)
        return self._last[1]

    def _predicted(self, model: AbstractModel, sequences: Any) -> np.ndarray:
        """(n, labels)."""
        own = predict(model, sequences)
        if isinstance(self.task, MultiTaskRegression):
            return np.asarray(unrotated_labels(self.task, own))
        return np.asarray(own)[:, None]

    def _compared(self, known: _Label, own: np.ndarray, other: np.ndarray) -> Algorithm:
        estimators, predictions = list(known.estimators), list(known.predictions)
        if np.mean(own**2) >= ALMOST_NOTHING**2 * np.mean(known.labels**2):
            for estimator, prediction in _fitted(known, own, other):
                estimators.append(estimator)
                predictions.append(prediction)
        least = ALMOST_NOTHING**2 * float(np.mean(known.labels**2))
        pairs = zip(predictions, estimators)
        matches = [_match(own, prediction, estimator, least) for prediction, estimator in pairs]
        # A step size fitted to almost nothing is almost nothing: it says less than zero does.
        if np.mean(own**2) < least:
            matches = [match for match in matches if match.step_size is None] or matches
        return Algorithm(tuple(sorted(matches, key=lambda match: match.distance)))

    def _known(self, label: int, normaliser: Normaliser, fitted: bool) -> _Label:
        task, sequences, others = self.task, self._sequences, self._others
        if isinstance(task, MultiTaskRegression):
            sequences = _one_label(task, sequences, label)
            others = _one_label(task, others, label) if fitted else None
            task = one_label_task(task, label)
        found = []
        for estimator in (*known_estimators(task, normaliser), *_any_components(task, normaliser)):
            in_subspace = isinstance(estimator, SubspaceLeastSquares | EmpiricalPCR)
            if in_subspace and task.dim > _LARGEST_SUBSPACES:
                continue
            try:
                found.append((estimator, np.asarray(_shaped_alike(estimator).predict(sequences))))
            except TypeError:  # no posterior is known for this task
                continue
        kernels = features = solver = None
        widths = np.zeros(0)
        if fitted and isinstance(task, LinearRegression):
            unit = task.dim / float(np.trace(np.asarray(task.covariance)))
            widths = unit * np.concatenate([_RANGE, -_RANGE])
            kernels = np.asarray(_kernels(widths, sequences))
            if not is_white(task) and task.dim**2 <= _LARGEST_MATRIX:
                features = _products(sequences)
                solver = np.linalg.pinv(_products(others))
        names, predictions = zip(*found)
        labels = np.asarray(sequences.y_query)
        return _Label(labels, names, np.stack(predictions), kernels, widths, features, solver)


def _usable(predictions: np.ndarray) -> bool:
    """Whether errors of predictions can be computed, which takes their fourth powers."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(predictions**4)))


def _worth_predicting(known: _Label) -> np.ndarray:
    """What is worth predicting of a label."""
    for estimator, prediction in zip(known.estimators, known.predictions):
        if isinstance(estimator, Bayes):
            return prediction
    return known.labels


def _any_components(task: AbstractTask, normaliser: Normaliser) -> list[PopulationPCR]:
    """PCR with components that are not the leading ones, in few dimensions: what a model is that
    learns them in another order."""
    if not isinstance(task, LinearRegression) or task.dim > _LARGEST_SETS or is_white(task):
        return []
    sets = (s for m in range(1, task.dim) for s in itertools.combinations(range(task.dim), m))
    return [PopulationPCR(task, s, normaliser) for s in sets if s != tuple(range(len(s)))]


def _shaped_alike(estimator: AbstractEstimator) -> AbstractEstimator:
    """The same estimator in a form for which fewer programs are compiled: PCR with any number of
    components is a step with a matrix."""
    if not isinstance(estimator, PopulationPCR):
        return estimator
    basis, gains = np.asarray(estimator.basis), np.asarray(estimator.gains)
    matrix = jax.device_put((basis * gains) @ basis.T)
    return PreconditionedStep(matrix, estimator.normaliser)


def _fitted(known: _Label, own: np.ndarray, other: np.ndarray):
    """The kernel regression and the step with a matrix that are nearest, with predictions."""
    if known.kernels is not None:
        powers = np.maximum(np.mean(known.kernels**2, 1), np.finfo(float).tiny)
        factors = np.mean(known.kernels * own, 1) / powers
        best = int(np.argmax(factors**2 * powers))
        width, factor = float(known.widths[best]), float(factors[best])
        yield KernelRegression(width, factor), factor * known.kernels[best]
    if known.features is not None and known.solver is not None:
        matrix = known.solver @ other
        dim = round(len(matrix) ** 0.5)
        step = DebiasedPreconditionedStep(as_float(matrix.reshape(dim, dim)))
        yield step, known.features @ matrix


def _products(sequences: Any) -> np.ndarray:
    """The entries of β x_qᵀ with β of the centred context, (n, D²)."""
    beta, query = np.asarray(centred_correlation(sequences)), np.asarray(sequences.x_query)
    return np.einsum("pd,pe->pde", beta, query).reshape(len(query), -1)


@eqx.filter_jit
def _one_label(task: MultiTaskRegression, sequences: Any, label: int):
    return one_label_sequences(task, sequences, label)


@eqx.filter_jit
def _kernels(widths: Any, sequences: Any) -> Array:
    """What kernel regression predicts, by width. One after the other: that bounds the memory."""
    return jax.lax.map(lambda width: KernelRegression(width).predict(sequences), widths)

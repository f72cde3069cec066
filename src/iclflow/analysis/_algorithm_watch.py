"""Which known estimator a model implements, at many points of its training."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..errors import InputError
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
from ..tasks import AbstractTask, LinearRegression, Sequences
from ._fitted_estimators import (
    ALMOST_NOTHING,
    RANGE,
    correlation_features,
    is_white,
    one_label_sequences,
    one_label_task,
    predict,
    unrotated_labels,
)
from ._match import Algorithm, rank_estimators
from ._which_algorithm import known_estimators

# The number of sequences; fewer, down to a limit, if their tokens have more numbers than this.
_COUNT = 1000
_LARGEST = 2**20
_FEWEST = 100
# A matrix is fitted up to this many entries: the time of its pseudoinverse grows as their square.
_LARGEST_MATRIX = 64
# Least squares in subspaces decomposes every context once for each number of dimensions: only up to
# this many. There are 2^D sets of components: PCR with each only up to this many.
_LARGEST_SUBSPACES = 6
_LARGEST_SETS = 4


class _Reference(NamedTuple):
    """One label of all sequences, and the predictions of each estimator.

    **Fields:**

    - `labels`: (n,), of the query.
    - `estimators`, `predictions`: (n,) each.
    - `kernels`, `widths`: the predictions of kernel regression for each ω, (widths, n).
    - `features`, `solver`: of a debiased step with a matrix, (n, D²), and the pseudoinverse that
      fits the matrix to predictions on other sequences, (D², n).
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

    `which_algorithm` draws new sequences, and computes the predictions of every estimator again.
    Here a look at a model takes only as long as its own predictions. Parameters are fitted more
    coarsely: the ω of kernel regression is one of a few. In few dimensions PCR is tried with every
    set of components; in many, least squares in subspaces is left out.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> watch = icl.analysis.AlgorithmWatch(task)
    >>> watch.look(pair)[0].best.name
    'one debiased gradient step'
    ```
    """

    def __init__(
        self,
        task: AbstractTask,
        normaliser: Normaliser = "context",
        *,
        fitted: bool = False,
        key: PRNGKeyArray | None = None,
        count: int | None = None,
        estimators: Sequence[AbstractEstimator] = (),
        sequences: tuple[Sequences, Sequences] | None = None,
    ):
        """**Arguments:**

        - `task`: where the sequences come from.
        - `normaliser`: that of the models.
        - `fitted`: whether to compare with kernel regression and a debiased step with a matrix,
          too: for models that are not linear attention.
        - `key`: draws the sequences; by default `jax.random.key(0)`.
        - `count`: how many; by default 1000, fewer if contexts are long.
        - `estimators`: further ones, beside those that exist for the task.
        - `sequences`: to use instead of drawing: those that distances are measured on, and those
          that parameters are fitted on.
        """
        size = task.max_context * (task.dim + task.labels)
        count = max(_FEWEST, min(_COUNT, _LARGEST // size)) if count is None else count
        if count < 2:
            raise InputError("count", count, "a standard error needs at least 2 sequences")
        key = jr.key(0) if key is None else key
        # Matrices are fitted on other sequences than those that distances are measured on.
        others = task.sample(jr.fold_in(key, 1), count) if fitted and sequences is None else None
        self.sequences: Any
        self.others: Any
        self.sequences, self.others = sequences or (task.sample(key, count), others)
        self.task, self.count = task, self.sequences.count
        self._further = tuple(estimators)
        each = range(task.labels)
        self._references = tuple(self._predict_all(label, normaliser, fitted) for label in each)
        # The last model and its predictions: callers use `sizes` and `look` on the same model.
        self._last: tuple[AbstractModel, np.ndarray] | None = None

    def look(self, model: AbstractModel) -> tuple[Algorithm, ...] | None:
        """The estimators for each label of the task, the nearest first; None for a model whose
        predictions are not finite, or too large to be compared."""
        other = self._predict(model, self.others) if self.fits else None
        return self._rank_all(self._predict_shared(model), other)

    @property
    def hash(self) -> str:
        """The SHA-256 of the sequences and of the predictions of all estimators."""
        digest = hashlib.sha256()
        parts = [self.sequences.x, self.sequences.y, self.sequences.x_query, self.sequences.y_query]
        for part in (*parts, *(reference.predictions for reference in self._references)):
            # Rounded: the last digits depend on the machine.
            digest.update(np.asarray(part, np.float32).round(4).tobytes())
        return digest.hexdigest()

    @property
    def names(self) -> list[str]:
        """The names of the estimators that are not fitted, of the first label."""
        return [estimator.name for estimator in self._references[0].estimators]

    @property
    def fits(self) -> bool:
        """Whether a matrix is fitted, for which predictions on `others` are needed."""
        return any(reference.solver is not None for reference in self._references)

    def rank(
        self, own: np.ndarray, other: np.ndarray | None = None
    ) -> tuple[Algorithm, ...] | None:
        """As `look`, from predictions that were made elsewhere.

        **Arguments:**

        - `own`: on `sequences`, (n, labels).
        - `other`: on `others`; needed if `fits`.
        """
        if self.fits and other is None:
            raise InputError(
                "other",
                problem="is missing",
                allowed="a matrix is fitted to predictions on `others`",
            )
        undo = lambda labels: np.asarray(unrotated_labels(self.task, jnp.asarray(labels)))
        return self._rank_all(undo(own), None if other is None else undo(other))

    def _rank_all(self, own: np.ndarray, other: np.ndarray | None) -> tuple[Algorithm, ...] | None:
        other = own if other is None else other  # then nothing is fitted to it
        if not (_is_usable(own) and _is_usable(other)):
            return None
        return tuple(
            self._rank(reference, own[:, i], other[:, i])
            for i, reference in enumerate(self._references)
        )

    def sizes(self, model: AbstractModel) -> tuple[float, ...]:
        """The size of the predictions of each label, as a share of those of the Bayes predictor if
        it is known, else of the labels."""
        own = self._predict_shared(model)
        with np.errstate(over="ignore"):
            powers = np.mean(own**2, axis=0)
        whole = [float(np.mean(_worth_predicting(each) ** 2)) for each in self._references]
        return tuple(
            float(np.sqrt(power / most)) if most > 0 else float(power > 0)
            for power, most in zip(powers, whole)
        )

    def _predict_shared(self, model: AbstractModel) -> np.ndarray:
        """The predictions of a model on the sequences that distances are measured on."""
        if self._last is None or self._last[0] is not model:
            self._last = model, self._predict(model, self.sequences)
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
        sequences = _one_label(self.task, self.sequences, label)
        task = one_label_task(self.task, label)
        found = []
        for estimator in (
            *known_estimators(task, normaliser),
            *_other_components(task, normaliser),
            *self._further,
        ):
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
                others = _one_label(self.task, self.others, label)
                solver = np.linalg.pinv(correlation_features(others))
        names, predictions = zip(*found)
        labels = np.asarray(sequences.y_query)[:, 0]
        return _Reference(labels, names, np.stack(predictions), kernels, widths, features, solver)


def _is_usable(predictions: np.ndarray) -> bool:
    """Whether standard errors can be computed, which needs fourth powers of predictions."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(predictions**4)))


def _worth_predicting(reference: _Reference) -> np.ndarray:
    """The predictions of the Bayes predictor if it is known, else the labels."""
    for estimator, prediction in zip(reference.estimators, reference.predictions):
        if isinstance(estimator, Bayes):
            return prediction
    return reference.labels


def _other_components(task: AbstractTask, normaliser: Normaliser) -> list[PopulationPCR]:
    """PCR with components other than the leading ones, in few dimensions, for models that learn
    them in another order."""
    if not isinstance(task, LinearRegression) or task.dim > _LARGEST_SETS or is_white(task):
        return []
    sets = (s for m in range(1, task.dim) for s in itertools.combinations(range(task.dim), m))
    return [PopulationPCR(task, s, normaliser) for s in sets if s != tuple(range(len(s)))]


def _as_matrix_step(estimator: AbstractEstimator) -> AbstractEstimator:
    """PCR as a step with a matrix, so that one program serves every number of components."""
    if not isinstance(estimator, PopulationPCR):
        return estimator
    basis, gains = np.asarray(estimator.basis), np.asarray(estimator.gains)
    matrix = jax.device_put((basis * gains) @ basis.T)
    return PreconditionedStep(matrix, estimator.normaliser)


def _fit_to(
    reference: _Reference, own: np.ndarray, other: np.ndarray
) -> Iterator[tuple[AbstractEstimator, np.ndarray]]:
    """The nearest kernel regression and the nearest step with a matrix, with predictions."""
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
    """The predictions of kernel regression for each ω, one after the other to bound the memory."""
    return jax.lax.map(lambda width: KernelRegression(width).predict(sequences), widths)

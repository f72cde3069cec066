"""Which known estimator a model implements, at many points of its training."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import InputError
from ..estimators import (
    AbstractEstimator,
    Bayes,
    DiscreteMMSE,
    EmpiricalPCR,
    PopulationPCR,
    PreconditionedStep,
    SubspaceLeastSquares,
)
from ..models import AbstractModel, Normaliser
from ..tasks import AbstractTask, LinearRegression, Sequences, check_count
from ._descent_fits import DescentFits
from ._fits import AbstractFit, choose_fits
from ._fitted_estimators import (
    ALMOST_NOTHING,
    is_white,
    one_label_sequences,
    one_label_task,
    preconditioner,
    predict,
    unrotated_labels,
)
from ._match import Algorithm, rank_estimators
from ._which_algorithm import known_estimators

# The number of sequences; fewer, down to a limit, if their tokens have more numbers than this.
_COUNT = 1000
_LARGEST = 2**20
_FEWEST = 100
# Least squares in subspaces decomposes every context once for each number of dimensions: only up to
# this many. There are 2^D sets of components: PCR with each only up to this many.
_LARGEST_SUBSPACES = 6
_LARGEST_SETS = 4


class _Reference(NamedTuple):
    """One label of all sequences, and the predictions of each estimator.

    **Fields:**

    - `labels`: (n,), of the query.
    - `estimators`, `predictions`: (n,) each.
    - `fits`: of the estimators that are fitted to each model.
    - `descent`: steps of gradient descent that are fitted to each model of several layers.
    """

    labels: np.ndarray
    estimators: tuple[AbstractEstimator, ...]
    predictions: np.ndarray
    fits: tuple[AbstractFit, ...]
    descent: DescentFits | None


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
        any_model: bool = False,
        steps: int = 1,
        key: PRNGKeyArray | None = None,
        count: int | None = None,
        estimators: Sequence[AbstractEstimator] = (),
        sequences: Sequences | None = None,
    ):
        """**Arguments:**

        - `task`: where the sequences come from.
        - `normaliser`: that of the models.
        - `fitted`: whether to compare with kernel regression and a debiased step with a matrix,
          too: for models that are not linear attention.
        - `any_model`: as `fitted`, for models that may be linear attention too, and for tasks that
          may be known by their samples alone: also with a plain step with a matrix, and where the
          noise is not known with ridge regression of the best penalty.
        - `steps`: of gradient descent, to fit up to as many to each model: its layers.
        - `key`: draws the sequences; by default `jax.random.key(0)`.
        - `count`: how many; by default 1000, fewer if contexts are long.
        - `estimators`: further ones, beside those that exist for the task.
        - `sequences`: to use instead of drawing.
        """
        size = task.max_context * (task.dim + task.labels)
        count = max(_FEWEST, min(_COUNT, _LARGEST // size)) if count is None else count
        if count < 2:
            raise InputError("count", count, "a standard error needs at least 2 sequences")
        key = jr.key(0) if key is None else key
        self.sequences: Any = task.sample(key, count) if sequences is None else sequences
        self.task, self.count = task, self.sequences.count
        self._further, self._steps = tuple(estimators), check_count("steps", steps)
        each = range(task.labels)
        self._references = tuple(
            self._predict_all(label, normaliser, fitted or any_model, any_model) for label in each
        )
        # The last model and its predictions: callers use `sizes` and `look` on the same model.
        self._last: tuple[AbstractModel, np.ndarray] | None = None

    def look(self, model: AbstractModel) -> tuple[Algorithm, ...] | None:
        """The estimators for each label of the task, the nearest first; None for a model whose
        predictions are not finite, or too large to be compared."""
        return self._rank_all(self._predict_shared(model))

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

    def rank(self, own: np.ndarray) -> tuple[Algorithm, ...] | None:
        """As `look`, from predictions on `sequences` that were made elsewhere, (n, labels)."""
        return self._rank_all(np.asarray(unrotated_labels(self.task, jnp.asarray(own))))

    def _rank_all(self, own: np.ndarray) -> tuple[Algorithm, ...] | None:
        if not _is_usable(own):
            return None
        return tuple(
            self._rank(reference, own[:, i]) for i, reference in enumerate(self._references)
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

    def _rank(self, reference: _Reference, own: np.ndarray) -> Algorithm:
        estimators, predictions = list(reference.estimators), list(reference.predictions)
        if np.mean(own**2) >= ALMOST_NOTHING**2 * np.mean(reference.labels**2):
            for estimator, prediction in (fit.fit(own) for fit in reference.fits):
                estimators.append(estimator)
                predictions.append(prediction)
            for estimator, prediction in (
                () if reference.descent is None else (reference.descent.fit(own))
            ):
                estimators.append(estimator)
                predictions.append(prediction)
        return rank_estimators(reference.labels, own, predictions, estimators)

    def _predict_all(
        self, label: int, normaliser: Normaliser, fitted: bool, any_model: bool
    ) -> _Reference:
        sequences = _one_label(self.task, self.sequences, label)
        task = one_label_task(self.task, label)
        found = []
        for estimator in (
            *known_estimators(task, normaliser),
            *_other_components(task, normaliser),
            *(_components_in_context(task) if any_model else ()),
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
        fits: tuple[AbstractFit, ...] = ()
        if fitted:
            fits = choose_fits(task, sequences, any_model)
        descent = None
        if self._steps > 1:
            known = preconditioner(task) if isinstance(task, LinearRegression) else None
            descent = DescentFits(sequences, self._steps, normaliser, known)
        names, predictions = zip(*found)
        labels = np.asarray(sequences.y_query)[:, 0]
        return _Reference(labels, names, np.stack(predictions), fits, descent)


def _is_usable(predictions: np.ndarray) -> bool:
    """Whether standard errors can be computed, which needs fourth powers of predictions."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(predictions**4)))


def _worth_predicting(reference: _Reference) -> np.ndarray:
    """The predictions of the Bayes predictor if it is known, else the labels."""
    for estimator, prediction in zip(reference.estimators, reference.predictions):
        if isinstance(estimator, Bayes | DiscreteMMSE):
            return prediction
    return reference.labels


def _other_components(task: AbstractTask, normaliser: Normaliser) -> list[PopulationPCR]:
    """PCR with components other than the leading ones, in few dimensions, for models that learn
    them in another order."""
    if not isinstance(task, LinearRegression) or task.dim > _LARGEST_SETS or is_white(task):
        return []
    sets = (s for m in range(1, task.dim) for s in itertools.combinations(range(task.dim), m))
    return [PopulationPCR(task, s, normaliser) for s in sets if s != tuple(range(len(s)))]


def _components_in_context(task: AbstractTask) -> list[EmpiricalPCR]:
    """PCR with the components of the context, for tasks whose inputs are not known."""
    if isinstance(task, LinearRegression):
        return []
    return [EmpiricalPCR(m) for m in range(1, task.dim)]


def _as_matrix_step(estimator: AbstractEstimator) -> AbstractEstimator:
    """PCR as a step with a matrix, so that one program serves every number of components."""
    if not isinstance(estimator, PopulationPCR):
        return estimator
    basis, gains = np.asarray(estimator.basis), np.asarray(estimator.gains)
    matrix = jax.device_put((basis * gains) @ basis.T)
    return PreconditionedStep(matrix, estimator.normaliser)


@eqx.filter_jit
def _one_label(task: AbstractTask, sequences: Any, label: int):
    return one_label_sequences(task, sequences, label)

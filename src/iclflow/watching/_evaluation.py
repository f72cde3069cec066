"""What is measured at a look: the model on a fixed evaluation set, beside known estimators."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..analysis import Algorithm, AlgorithmWatch, Sampled
from ..errors import InputError
from ..estimators import AbstractEstimator, DiscreteMMSE
from ..runtime.precision import in_float64
from ..tasks import AbstractTask, Sequences, is_whole
from ._predictions import Predict, PredictionError, Predictions, call, double, to_numpy

# Context lengths at which models that are not causal are asked again.
_LENGTHS = 8
_Errors = tuple[Sampled, Sampled | None]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A model at one moment.

    **Fields:**

    - `loss`: the squared error on the query, summed over labels.
    - `excess`: the mean squared distance from the Bayes predictor, which is the loss above the
      smallest possible one, with far less noise than their difference; None if Bayes is not known.
    - `lengths`, `losses`, `excesses`: the same at other context lengths.
    - `algorithms`: the estimators by their distance, for each label; None for predictions that
      are too large to be compared.
    """

    loss: Sampled
    excess: Sampled | None
    lengths: tuple[int, ...]
    losses: tuple[Sampled, ...]
    excesses: tuple[Sampled, ...] | None
    algorithms: tuple[Algorithm, ...] | None

    @property
    def is_finite(self) -> bool:
        """Whether all losses and their errors are finite."""
        known = (self.loss, self.excess, *self.losses, *(self.excesses or ()))
        return bool(np.all(np.isfinite([each for each in known if each is not None])))


class Evaluation:
    """A fixed set of sequences, with the predictions of every estimator on them.

    Inputs and labels are rounded to float32, in which most models work: all predictors then see
    the same numbers.

    **Fields:**

    - `asked`: the context lengths that were asked for; None for the default ones.
    """

    def __init__(
        self,
        task: AbstractTask,
        count: int = 500,
        seed: int = 0,
        lengths: Sequence[int] | np.ndarray | None = None,
        pretraining: Any = None,
        dtype: str = "float32",
    ):
        if count < 2:
            raise InputError("count", count, "a standard error needs at least 2 sequences")
        # A task that was made in float32 is taken by its values.
        task = double(task)
        self.task, self.dtype = task, np.dtype(dtype)
        key = jr.key(seed)
        self.sequences: Sequences = _round(task.sample(jr.fold_in(key, 0), count))
        further = () if pretraining is None else (_memory(task, pretraining),)
        self._watch = AlgorithmWatch(
            task, any_model=True, estimators=further, sequences=self.sequences
        )
        # More than one if the task has several.
        self._own_lengths = np.unique(np.asarray(self.sequences.length).astype(int)).tolist()
        self.asked = _check_lengths(lengths, task.max_context, self._own_lengths)
        self._known: dict[tuple[bool, int], tuple[np.ndarray, np.ndarray | None]] = {}
        self.bayes_loss = self._measure_bayes()
        # Compiles everything now: a schedule goes by the time that looks take.
        nothing = lambda x, y, query: np.zeros((len(x), task.labels))
        self.measure(nothing)

    @property
    def hash(self) -> str:
        """The SHA-256 of the sequences and of all predictions that models are compared with."""
        return self._watch.hash

    @property
    def estimators(self) -> list[str]:
        """The names of the estimators that need no fit."""
        return self._watch.names

    def measure(self, predict: Predict) -> Measurement:
        """Measures a model; a `PredictionError` says in one sentence why that is not possible."""
        # The model is called before anything is computed here: in its own precision.
        own = self._predict(predict)
        shorter = self._predict_lengths(predict, own)
        with in_float64(), np.errstate(over="ignore", invalid="ignore"):
            found = self._compare(own, shorter)
        if not found.is_finite:
            largest = max(np.max(np.abs(each)) for each in (own.query, *shorter.values()))
            raise PredictionError(
                f"`predict` returned predictions up to {largest:.1g}, which are too large for a "
                "loss."
            )
        return found

    def _compare(self, own: Predictions, shorter: dict[int, np.ndarray]) -> Measurement:
        causal = own.positions is not None
        loss, excess = _errors(own.query, *self._known_at(causal, None))
        over = {
            length: _errors(predicted, *self._known_at(causal, length))
            for length, predicted in shorter.items()
        } or dict(self._errors_at_own_lengths(own.query))
        excesses = tuple(each for _, each in over.values() if each is not None)
        return Measurement(
            loss=loss,
            excess=excess,
            lengths=tuple(over),
            losses=tuple(each for each, _ in over.values()),
            excesses=excesses or None,
            algorithms=self._watch.rank(own.query),
        )

    def _errors_at_own_lengths(self, predicted: np.ndarray) -> Iterator[tuple[int, _Errors]]:
        """At each of several lengths of the task, on those sequences that have it."""
        labels, bayes = self._known_at(False, None)
        for length in self.asked or self._own_lengths:
            of = np.asarray(self.sequences.length) == length
            if np.sum(of) > 1:  # one has no standard error
                known = None if bayes is None else bayes[of]
                yield length, _errors(predicted[of], labels[of], known)

    def _predict(self, predict: Predict) -> Predictions:
        """The predictions of a model, one call for each context length of the task."""
        x, y, query = self._arrays()
        lengths = np.asarray(self.sequences.length).astype(int)
        if np.all(lengths == x.shape[1]):
            return call(predict, x, y, query)
        found = np.zeros((len(x), y.shape[2]))
        for length in np.unique(lengths):
            of = lengths == length
            found[of] = call(predict, x[of, :length], y[of, :length], query[of]).query
        return Predictions(found, None)

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, labels and queries as a model gets them."""
        parts = self.sequences.x, self.sequences.y, self.sequences.x_query
        x, y, query = (np.asarray(part).astype(self.dtype) for part in parts)
        return x, y, query

    def _predict_lengths(self, predict: Predict, own: Predictions) -> dict[int, np.ndarray]:
        """The predictions over context lengths: at every position of a causal model, else at a few
        lengths."""
        most = self.task.max_context
        if self._own_lengths != [most]:
            return {}
        if own.positions is not None:
            return {length: own.positions[:, length] for length in self.asked or range(most + 1)}
        spaced = np.unique(np.rint(np.geomspace(1, most, _LENGTHS))).astype(int).tolist()
        x, y, query = self._arrays()
        return {
            length: own.query
            if length == most
            else call(predict, x[:, :length], y[:, :length], query).query
            for length in self.asked or spaced
        }

    def _seen(self, causal: bool, length: int | None) -> Sequences:
        return self.sequences if length is None else _shorten(self.sequences, length, causal)

    def _known_at(self, causal: bool, length: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels at a context length, and the predictions of Bayes, computed once."""
        key = causal, -1 if length is None else length
        if key not in self._known:
            seen = self._seen(causal, length)
            try:
                bayes = np.asarray(_bayes_predict(self.task, seen))
            except TypeError:  # no posterior is known for this task
                bayes = None
            self._known[key] = np.asarray(seen.y_query), bayes
        return self._known[key]

    def _measure_bayes(self) -> Sampled | None:
        """The smallest loss that any predictor can have, averaged over these contexts."""
        try:
            variances = np.asarray(_bayes_variance(self.task, self.sequences))
        except TypeError:
            return None
        return Sampled.of(variances.sum(1))


def _memory(task: AbstractTask, pretraining: Any) -> AbstractEstimator:
    """The posterior mean over the tasks of the pretraining."""
    try:
        tasks = to_numpy(pretraining, "pretraining")
    except PredictionError:
        raise InputError("`pretraining` is no array of real numbers.") from None
    if tasks.ndim != 2 or not len(tasks) or tasks.shape[1] != task.dim or task.labels != 1:
        raise InputError(
            f"`pretraining` has the shape {tasks.shape}: must be one row of {task.dim} weights per "
            "task, for a task with one label."
        )
    if not np.all(np.isfinite(tasks)):
        raise InputError("`pretraining` has weights that are not finite.")
    # A task of finitely many vectors has the noise of its unseen tasks.
    noise = getattr(getattr(task, "fresh", task), "noise", None)
    if noise is None:
        raise InputError(
            "`pretraining` needs the variance of the noise of labels: must be `noise` of the task."
        )
    return DiscreteMMSE(jnp.asarray(tasks), float(noise))


def _errors(predicted: np.ndarray, labels: np.ndarray, bayes: np.ndarray | None) -> _Errors:
    """The loss, and the excess over Bayes where that is known."""
    loss = Sampled.of(np.sum((predicted - labels) ** 2, 1))
    return loss, None if bayes is None else Sampled.of(np.sum((predicted - bayes) ** 2, 1))


def _check_lengths(
    lengths: Sequence[int] | np.ndarray | None, most: int, own: list[int]
) -> list[int] | None:
    if lengths is None:
        return None
    given = list(lengths) if np.iterable(lengths) else [lengths]
    if not given or not all(is_whole(each) and 1 <= each <= most for each in given):
        raise InputError("lengths", given, f"must be whole numbers from 1 to {most}")
    if own != [most] and not set(given) <= set(own):
        words = ", ".join(map(str, own))
        raise InputError("lengths", given, f"must be among those of the task, {words}")
    return sorted({int(each) for each in given})


def _round(sequences: Sequences) -> Sequences:
    """The nearest sequences in float32, in the precision of iclflow."""
    return jax.tree.map(lambda x: jnp.asarray(np.float32(np.asarray(x)).astype(float)), sequences)


def _shorten(sequences: Sequences, length: int, causal: bool) -> Sequences:
    """The first pairs of each context. A causal model is asked for the next input of the context,
    others for the query."""
    x, y = sequences.x, sequences.y
    query, label = sequences.x_query, sequences.y_query
    if causal and length < x.shape[1]:
        query, label = x[:, length], y[:, length]
    kept = jnp.arange(x.shape[1])[:, None] < length
    lengths = jnp.full_like(sequences.length, length)
    return Sequences(jnp.where(kept, x, 0.0), jnp.where(kept, y, 0.0), query, label, lengths)


@eqx.filter_jit
def _bayes_predict(task: AbstractTask, sequences: Sequences) -> jax.Array:
    return task.bayes_predict(sequences)


@eqx.filter_jit
def _bayes_variance(task: AbstractTask, sequences: Sequences) -> jax.Array:
    return task.bayes_variance(sequences)

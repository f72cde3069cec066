"""The reported loss of a run on fresh sequences: measured on a test set that it never trains on.

Linear attention, whose risk is known exactly, is evaluated on the same sequences as a control
variate: noise that both models share cancels. That is most of the noise near a gradient step, where
softmax attention ends, and near zero, where it starts.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..config import ALONE, COMPARED, Config, HeldOutSize
from ..limits import TEST_LOOKS
from ..models import AbstractModel, Attention, Merged
from ..risks import (
    AbstractBatchRisk,
    AbstractRisk,
    AbstractSampledRisk,
    IntegratedRisk,
    least_noise,
    risk,
    sampled_risk,
)
from ..tasks import (
    AbstractRegression,
    AbstractTask,
    LinearRegression,
    MultiTaskRegression,
    Sequences,
)
from ..theory import optimal_matrix

# (t − sp)² for three values of s spans t², tp and p², so every multiple of p is covered.
_SCALES = (0.0, 1.0, 2.0)


class HeldOutRisk(AbstractRisk):
    """The mean loss on a batch that a run never trains on, and its standard error.

    **Fields:**

    - `batch`: the losses of a model on these sequences; if they are stored in blocks, its arrays
      have a leading axis over blocks.
    - `known`: combinations of losses with exact mean 0, uncorrelated and of one size.
    - `size`: the pieces in which they are evaluated.
    """

    kind: ClassVar[str] = "sampled"
    # Every evaluation predicts thousands of sequences.
    tries_at_once: ClassVar[int | None] = 20
    looks: ClassVar[int] = TEST_LOOKS

    batch: AbstractBatchRisk
    known: Float[Array, "C P"]
    size: HeldOutSize = eqx.field(static=True)

    def losses(self, model: AbstractModel) -> Float[Array, " P"]:
        """One sample of the risk for each sequence, less the part that `known` explains."""
        losses = over_pieces(self.batch, self.size, lambda batch: batch.losses(model))
        losses = losses.astype(self.known.dtype)
        centred = self.known - jnp.mean(self.known, 1, keepdims=True)
        return losses - (centred @ losses) @ self.known

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return jnp.mean(self.losses(model))

    @property
    def count(self) -> int:
        """The number of sequences."""
        return self.known.shape[1]

    def standard_error(self, model: AbstractModel) -> float:
        """The standard error of the loss of `model`."""
        losses = _losses(self, model)
        return float(jnp.std(losses) / np.sqrt(self.count))


# At module level: a function made in each call would be compiled in each call.
@eqx.filter_jit
def _draw(fresh: AbstractSampledRisk, key: PRNGKeyArray, size: HeldOutSize) -> AbstractBatchRisk:
    if size.blocks == 1:
        return fresh.draw(key, size.count)
    draw = lambda key: fresh.draw(key, size.at_once)
    return jax.lax.map(draw, jr.split(key, size.blocks))


@eqx.filter_jit
def _losses(held_out: HeldOutRisk, model: AbstractModel) -> Float[Array, " P"]:
    return held_out.losses(model)


def over_pieces(
    batch: AbstractBatchRisk, size: HeldOutSize, function: Callable[[AbstractBatchRisk], Array]
) -> Float[Array, "*rows P"]:
    """Applies `function` to a test set piece by piece, so that memory is bounded. Its values have
    the sequences as their last axis."""
    if size.blocks > 1:
        return _join(jax.lax.map(function, batch))
    if size.parts == 1:
        return function(batch)
    # Pieces of one size are one program: the last begins within the one before.
    starts = np.minimum(np.arange(size.parts) * size.at_once, size.count - size.at_once)
    found = jax.lax.map(lambda start: function(batch.part(start, size.at_once)), starts)
    left = size.count - (size.parts - 1) * size.at_once
    return jnp.concatenate([_join(found[:-1]), found[-1][..., -left:]], -1)


def _join(pieces: Float[Array, "pieces *rows P"]) -> Float[Array, "*rows Q"]:
    together = jnp.moveaxis(pieces, 0, -2)
    return together.reshape(*together.shape[:-2], -1)


class _Known(NamedTuple):
    """Linear attention on one label (None: the only one), and its exact risk."""

    label: int | None
    matrix: Float[Array, "1 D D"]
    exact: AbstractRisk


class TestSets(NamedTuple):
    """Draws test sets: what those of all seeds have in common.

    **Fields:**

    - `fresh`: the risk that draws sequences.
    - `known`: the control variates.
    - `size`: the size of each set.
    """

    fresh: AbstractSampledRisk
    known: tuple[_Known, ...]
    size: HeldOutSize

    @staticmethod
    def of(config: Config, task: AbstractTask, model: AbstractModel) -> "TestSets":
        """Test sets for models of the shape of `model`."""
        # Single precision rounds off a millionth of a loss: far below the error of a test set.
        fresh = sampled_risk(task, model, integrate=least_noise(task, model), precision="float32")
        averaged = isinstance(fresh, IntegratedRisk)
        # Averages over several labels cannot be taken apart into those of each.
        parts = [] if averaged and isinstance(task, MultiTaskRegression) else _parts(task)
        wanted = COMPARED if averaged or parts else ALONE
        known = tuple(_known(label, part) for label, part in parts)
        return TestSets(fresh, known, HeldOutSize.of(config, wanted))

    def draw(self, key: PRNGKeyArray) -> HeldOutRisk:
        """The risk on the sequences that `key` draws."""
        batch = _draw(self.fresh, key, self.size)
        rows = [np.asarray(_differences(batch, self.size, *known)) for known in self.known]
        known = _decorrelate(np.reshape(rows, (-1, self.size.count)))
        return HeldOutRisk(batch, known, self.size)


def _decorrelate(known: np.ndarray) -> Float[Array, "C P"]:
    """Combinations with the same span that are orthonormal about their sample means."""
    centred = known - known.mean(1, keepdims=True)
    # The few products of rows give the same directions as an SVD, in less time.
    squares, directions = np.linalg.eigh(centred @ centred.T)
    # Directions that are only rounding are left out.
    kept = squares > 1e-8 * squares.max(initial=0.0)
    return jnp.asarray((directions[:, kept] / np.sqrt(squares[kept])).T @ known)


def _parts(task: AbstractTask) -> list[tuple[int | None, LinearRegression]]:
    """The linear regressions that a task consists of, each with its label if there are several."""
    if not isinstance(task, AbstractRegression) or task.output_rotation is not None:
        return []
    named = isinstance(task, MultiTaskRegression)
    return [
        (label if named else None, part)
        for label, part in enumerate(task.parts)
        if np.any(part.weight_second_moment)
    ]


def _known(label: int | None, part: LinearRegression) -> _Known:
    matrix = jnp.asarray(optimal_matrix(part))[None]
    return _Known(label, matrix, risk(part, _linear(1.0, matrix), "exact"))


def _linear(scale: float, matrix: Array) -> Attention:
    """One head of linear attention that applies a matrix, times a number."""
    return Attention(Merged(jnp.full((1, 1, 1), scale), matrix))


@eqx.filter_jit
def _differences(
    batch: AbstractBatchRisk,
    size: HeldOutSize,
    label: int | None,
    matrix: Array,
    exact: AbstractRisk,
) -> Float[Array, "scales P"]:
    """The losses of linear attention of several sizes on a batch, or on one label of it, less their
    exact mean."""

    def of_scale(batch, linear: Attention) -> Array:
        if label is None:
            return batch.losses(linear).astype(matrix.dtype)
        one = batch.sequences.label(label)
        wide: Sequences = jax.tree.map(lambda x: x.astype(matrix.dtype), one)
        return wide.squared_error(linear.predict(wide))

    def rows(batch) -> Array:
        models = [_linear(scale, matrix) for scale in _SCALES]
        return jnp.stack([of_scale(batch, linear) - exact(linear) for linear in models])

    return over_pieces(batch, size, rows)

"""The loss that is reported of a run on fresh sequences: measured on sequences of its own.

A model is compared, sequence by sequence, with linear attention, whose risk is known exactly: what
chance does to both alike drops out (control variates). Near a gradient step, where softmax
attention ends up, and near zero, where it starts, that is most of it.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..config import Config
from ..models import AbstractModel, MergedKQ
from ..risks import (
    AbstractBatchRisk,
    AbstractRisk,
    AbstractSampledRisk,
    IntegratedRisk,
    least_noise,
    risk,
    sampled_risk,
)
from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression, Sequences
from ..theory import optimal_matrix

# So many sequences where models are compared with linear attention, and where they cannot be.
COMPARED, ALONE = 16_384, 32_768
# Never more numbers than this at once, and never fewer sequences.
_LARGEST, FEWEST = 2**27, 4096
# (t − sp)² for three s spans t², tp and p²: whatever multiple of p a model predicts is compared.
_SCALES = (0.0, 1.0, 2.0)


class HeldOutRisk(AbstractRisk):
    """The mean loss on a batch that a run never trains on, and its standard error.

    **Fields:**

    - `batch`: the losses of a model on these sequences.
    - `known`: combinations of losses whose exact mean is 0, uncorrelated and of one size.
    """

    kind: ClassVar[str] = "sampled"
    # Every look is at thousands of sequences.
    tries_at_once: ClassVar[int | None] = 20
    looks: ClassVar[int] = 400

    batch: AbstractBatchRisk
    known: Float[Array, "C P"]

    def losses(self, model: AbstractModel) -> Float[Array, " P"]:
        """One sample of the risk for each sequence, with what `known` explains taken out."""
        losses = self.batch.losses(model).astype(self.known.dtype)
        centred = self.known - jnp.mean(self.known, 1, keepdims=True)
        return losses - (centred @ losses) @ self.known

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return jnp.mean(self.losses(model))

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return self.known.shape[1]

    def standard_error(self, model: AbstractModel) -> float:
        """Of the loss of `model`."""
        losses = _losses(self, model)
        return float(jnp.std(losses) / np.sqrt(self.count))


# Functions of the module: one made at every call would be compiled at every call.
@eqx.filter_jit
def _drawn(fresh: AbstractSampledRisk, key: PRNGKeyArray, count: int) -> AbstractBatchRisk:
    return fresh.draw(key, count)


@eqx.filter_jit
def _losses(held_out: HeldOutRisk, model: AbstractModel) -> Float[Array, " P"]:
    return held_out.losses(model)


class _Known(NamedTuple):
    """Linear attention on one label, or on the only one, and its exact risk."""

    label: int | None
    matrix: Float[Array, "1 D D"]
    exact: AbstractRisk


class TestSets(NamedTuple):
    """What the test sets of all seeds have in common.

    **Fields:**

    - `fresh`: the risk that draws them.
    - `known`: what models are compared with.
    - `count`: how many sequences each has.
    """

    fresh: AbstractSampledRisk
    known: tuple[_Known, ...]
    count: int

    @staticmethod
    def of(config: Config, task: AbstractTask, model: AbstractModel) -> "TestSets":
        """Those for models like `model`."""
        # Single precision rounds off a millionth of a loss: far below the error of a test set.
        fresh = sampled_risk(task, model, integrate=least_noise(task, model), precision="float32")
        averaged = isinstance(fresh, IntegratedRisk)
        # Averages over several labels cannot be taken apart into those of each.
        parts = [] if averaged and isinstance(task, MultiTaskRegression) else _parts(task)
        wanted = COMPARED if averaged or parts else ALONE
        count = int(np.clip(_LARGEST // _size(config), FEWEST, wanted))
        return TestSets(fresh, tuple(_known(label, part) for label, part in parts), count)

    def draw(self, key: PRNGKeyArray) -> HeldOutRisk:
        """The risk on the sequences that `key` draws."""
        batch = _drawn(self.fresh, key, self.count)
        rows = [np.asarray(_differences(batch, *known)) for known in self.known]
        return HeldOutRisk(batch, _uncorrelated(np.reshape(rows, (-1, self.count))))


def _uncorrelated(known: np.ndarray) -> Float[Array, "C P"]:
    """The same span, its parts about their sample means orthonormal."""
    centred = known - known.mean(1, keepdims=True)
    # Their few products with each other tell as much as their singular values, in less time.
    squares, directions = np.linalg.eigh(centred @ centred.T)
    # What differs by rounding alone is left out.
    kept = squares > 1e-8 * squares.max(initial=0.0)
    return jnp.asarray((directions[:, kept] / np.sqrt(squares[kept])).T @ known)


def _size(config: Config) -> int:
    """About how many numbers one sequence takes while it is predicted."""
    task, model = config.task, config.model
    tokens = task.longest_context + 1
    scores = model.heads * tokens * max(1, model.layers * tokens)
    return tokens * (task.dim + task.labels) + scores + task.function_size


def _parts(task: AbstractTask) -> list[tuple[int | None, LinearRegression]]:
    """The linear regressions that a task consists of, by their label where there are several."""
    parts: list[tuple[int | None, LinearRegression]] = []
    if isinstance(task, LinearRegression):
        parts = [(None, task)]
    elif isinstance(task, MultiTaskRegression) and task.output_rotation is None:
        parts = [(i, task.part(i)) for i in range(task.labels)]
    return [(label, part) for label, part in parts if np.any(part.weight_second_moment)]


def _known(label: int | None, part: LinearRegression) -> _Known:
    matrix = jnp.asarray(optimal_matrix(part))[None]
    return _Known(label, matrix, risk(part, MergedKQ(v=jnp.ones(1), U=matrix), "exact"))


@eqx.filter_jit
def _differences(batch, label: int | None, matrix: Array, exact: AbstractRisk) -> Array:
    """The losses of linear attention of several sizes on the sequences of `batch`, or on one label
    of them, less their exact mean."""
    rows = []
    for size in _SCALES:
        linear = MergedKQ(v=jnp.array([size]), U=matrix)
        if label is None:
            losses = batch.losses(linear).astype(linear.v.dtype)
        else:
            one = batch.sequences.task(label)
            wide: Sequences = jax.tree.map(lambda x: x.astype(linear.v.dtype), one)
            losses = (wide.y_query - linear.predict(wide)) ** 2
        rows.append(losses - exact(linear))
    return jnp.stack(rows)

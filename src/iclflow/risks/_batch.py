"""Risks that draw a batch at each call, and the risk on a batch that has been drawn."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..tasks import Estimate, check_count
from ._base import AbstractRisk


class AbstractBatchRisk(AbstractRisk):
    """The mean of the losses of a batch that has been drawn.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> batch = icl.SampledRisk(task).draw(jr.key(0), 100)
    >>> batch.losses(model).shape
    (100,)
    ```
    """

    kind: ClassVar[str] = "sampled"

    @abc.abstractmethod
    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        """The losses, at the default precision of matrix products."""

    def part(self, start: Array, count: int) -> "AbstractBatchRisk":
        """The risk on `count` members of the batch, from number `start` on."""
        raise NotImplementedError(f"{type(self).__name__} has no parts.")

    def losses(self, model: AbstractModel) -> Float[Array, " count"]:
        """One unbiased sample of the risk for each member of the batch."""
        # GPUs may round the factors of float32 products to ten bits, which biases the risk by 1e-4.
        with jax.default_matmul_precision("highest"):
            return self.evaluate(model)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return jnp.mean(self.losses(model)).astype(widest(model))


class AbstractSampledRisk(AbstractRisk):
    """A risk that draws a batch at every call.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20, noise=0.1)
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> risk = icl.risk(task, model, "sampled", batch=500)
    >>> mean = risk.estimate(model, jr.key(0), count=2000)
    >>> bool(0 < mean.standard_error < 0.1)
    True
    ```
    """

    kind: ClassVar[str] = "sampled"
    stochastic: ClassVar[bool] = True

    batch: eqx.AbstractVar[int]

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, count: int) -> AbstractBatchRisk:
        """The risk on `count` draws."""

    def randomness(self, key: PRNGKeyArray | None, model: AbstractModel | None = None):
        """What depends on `key` in a batch for models like `model`; the rest is added by `on`."""
        return self.draw(some_key(key), self.batch)

    def on(self, randomness: Any) -> AbstractBatchRisk:
        """The risk on what was drawn."""
        return randomness

    def steps(
        self,
        model_of: Callable[[Array], AbstractModel],
        update: Callable,
        constants: Any,
        weights: Float[Array, " n"],
        memory: Any,
        models: int,
    ) -> Callable | None:
        """A function that takes many steps of training at a time, or None where steps are taken one
        by one.

        **Arguments:**

        - `model_of`: the model with these weights.
        - `update`: a step of the optimiser: `update(constants, gradient, memory, weights)` are
          weights and memory after it, elementwise.
        - `weights`, `memory`: of one model, for their shapes.
        - `models`: how many are trained together.

        **Returns:** from weights, memory, what `randomness` drew for each step, and how many of
        these steps to take, to weights and memory after them.
        """
        return None

    def draw_for(
        self, key: PRNGKeyArray | None, model: AbstractModel | None = None
    ) -> AbstractBatchRisk:
        """The risk on what `key` draws, in the form that is fastest for models like `model`."""
        return self.on(self.randomness(key, model))

    def losses(self, model: AbstractModel, key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
        """One unbiased sample of the risk for each of `count` fresh draws."""
        return self.draw(key, count).losses(model)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.draw_for(key, model)(model)

    def gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> AbstractModel:
        return self.draw_for(key, model).gradient(model)

    def value_and_gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None):
        return self.draw_for(key, model).value_and_gradient(model)

    def estimate(self, model: AbstractModel, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """The risk from `count` draws, with its standard error, in bounded memory."""
        check_count("count", count, least=2)  # one has no standard error
        batches = -(-count // self.batch)
        sums = [_batch_sums(self, model, jr.fold_in(key, i)) for i in range(batches)]
        first, second = jnp.sum(jnp.asarray(sums), 0)
        # Whole batches: no draw is thrown away, so that there may be more than `count`.
        total = batches * self.batch
        mean = first / total
        variance = (second / total - mean**2) * total / (total - 1)
        return Estimate(mean, jnp.sqrt(jnp.maximum(variance, 0.0) / total))


# A loop over batches in Python: inside a compiled loop XLA computes the random numbers again for
# every use of them, which is slower by orders of magnitude on a CPU.
@eqx.filter_jit
def _batch_sums(risk: AbstractSampledRisk, model: AbstractModel, key: PRNGKeyArray):
    """The sum of the losses of one batch, and of their squares."""
    losses = risk.losses(model, key, risk.batch).astype(widest(model))
    return jnp.sum(losses), jnp.sum(losses**2)


def some_key(key: PRNGKeyArray | None) -> PRNGKeyArray:
    if key is None:
        raise ValueError("A sampled risk draws sequences: pass a random `key`.")
    return key


def as_dtype(tree: Any, dtype: DTypeLike) -> Any:
    """The same model or task with all its floating-point numbers cast to `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def widest(model: AbstractModel):
    """The widest type among the weights of a model; JAX's default type if it has none."""
    leaves = [x for x in jax.tree.leaves(model) if eqx.is_inexact_array(x)]
    return jnp.result_type(*leaves) if leaves else jnp.result_type(float)

"""Risk on fresh sequences: the one kind that exists for every task and every model."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..tasks import AbstractTask, Estimate, Sequences
from ._base import AbstractRisk


class SampledRisk(AbstractRisk):
    """The mean squared error on `batch` sequences that are drawn anew at every call.

    With `posterior_target` the label y_q is replaced by its posterior mean given the context and
    its posterior variance is added: the same expectation and the same expected gradient, with
    the part of the noise that no model can predict integrated out.
    """

    kind: ClassVar[str] = "sampled"
    stochastic: ClassVar[bool] = True

    task: AbstractTask
    batch: int = eqx.field(static=True, default=256)
    posterior_target: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.batch < 2:
            raise ValueError(f"`batch` = {self.batch}: must be at least 2.")

    def losses(self, model: AbstractModel, key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
        """One unbiased sample of the risk for each of `count` fresh sequences."""
        sequences = self.task.sample(key, count)
        prediction = model.predict(sequences)
        if not self.posterior_target:
            return (sequences.y_query - prediction) ** 2
        target = jax.lax.stop_gradient(self.task.bayes_predict(sequences))
        return (target - prediction) ** 2 + self.task.bayes_variance(sequences)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        if key is None:
            raise ValueError("A sampled risk draws sequences: pass a random `key`.")
        return jnp.mean(self.losses(model, key, self.batch))

    def estimate(self, model: AbstractModel, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """The risk from `count` sequences, with its standard error, in bounded memory."""
        if count < 2:
            raise ValueError(f"`count` = {count}: a standard error needs at least 2 sequences.")
        batches = -(-count // self.batch)
        sums = [_batch_sums(self, model, jr.fold_in(key, i)) for i in range(batches)]
        first, second = jnp.sum(jnp.asarray(sums), 0)
        total = batches * self.batch
        mean = first / total
        variance = (second / total - mean**2) * total / (total - 1)
        return Estimate(mean, jnp.sqrt(jnp.maximum(variance, 0.0) / total))


# A loop over batches in Python: inside a compiled loop XLA computes the random numbers again for
# every use of them, which is slower by orders of magnitude on a CPU.
@eqx.filter_jit
def _batch_sums(risk: SampledRisk, model: AbstractModel, key: PRNGKeyArray):
    """The sum of the losses of one batch, and of their squares."""
    losses = risk.losses(model, key, risk.batch)
    return jnp.sum(losses), jnp.sum(losses**2)


class MinibatchRisk(AbstractRisk):
    """The mean squared error on `batch` sequences picked at random from a fixed set: what
    stochastic gradient descent on a data set sees."""

    kind: ClassVar[str] = "minibatch"
    stochastic: ClassVar[bool] = True

    sequences: Sequences
    batch: int = eqx.field(static=True, default=64)

    def __check_init__(self):
        if not 1 <= self.batch <= self.sequences.count:
            raise ValueError(
                f"`batch` = {self.batch}: must lie between 1 and {self.sequences.count}, the "
                "number of sequences."
            )

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        if key is None:
            raise ValueError("A minibatch is picked at random: pass a random `key`.")
        picked = jr.choice(key, self.sequences.count, (self.batch,), replace=False)
        chosen = self.sequences[picked]
        return jnp.mean((chosen.y_query - model.predict(chosen)) ** 2)

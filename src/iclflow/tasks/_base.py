"""What every task is: a distribution over sequences, and its Bayes predictor."""

import abc
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..precision import check_made_in_float64

S = TypeVar("S", bound="AbstractSequences")


class AbstractSequences(eqx.Module):
    """A batch of in-context regression problems (x₁,y₁)…(x_N,y_N), x_q → y_q.

    Any leading batch axes are allowed, none included. Sequences of different context lengths
    share one array: positions from `length` on are padding, with x = 0 and y = 0.
    """

    x: eqx.AbstractVar[Array]
    y: eqx.AbstractVar[Array]
    x_query: eqx.AbstractVar[Array]
    y_query: eqx.AbstractVar[Array]
    length: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def squared_error(self, prediction: Array) -> Float[Array, "*batch"]:
        """The loss of each sequence: (y_q − ŷ)², summed over labels where there are several."""

    @property
    def dim(self) -> int:
        return self.x.shape[-1]

    @property
    def count(self) -> int:
        """How many sequences there are along the first batch axis."""
        return self.x.shape[0]

    def mask(self) -> Array:
        """True at the positions that hold a context pair, False at padding."""
        return jnp.arange(self.x.shape[-2]) < self.length[..., None]

    def __getitem__(self: S, index) -> S:
        return jax.tree.map(lambda leaf: leaf[index], self)


class Sequences(AbstractSequences):
    """Sequences with one label a token."""

    x: Float[Array, "*batch N D"]
    y: Float[Array, "*batch N"]
    x_query: Float[Array, "*batch D"]
    y_query: Float[Array, "*batch"]
    length: Float[Array, "*batch"]

    def squared_error(self, prediction: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        check_prediction(prediction, self.y_query)
        return (self.y_query - prediction) ** 2


def check_prediction(prediction: Array, label: Array) -> None:
    """Refuses predictions that would be compared with labels of other sequences, or of others."""
    if jnp.shape(prediction) != jnp.shape(label):
        raise ValueError(
            f"The prediction has shape {jnp.shape(prediction)} and the label shape "
            f"{jnp.shape(label)}: a model must predict as many labels as the task has."
        )


class Estimate(NamedTuple):
    """A number that was sampled: its value and the standard error of that value."""

    value: Float[Array, ""]
    standard_error: Float[Array, ""]


def estimate_mean(samples: Float[Array, " count"]) -> Estimate:
    """The mean of independent samples, with its standard error."""
    count = samples.shape[0]
    if count < 2:
        raise ValueError(f"`count` = {count}: a standard error needs at least 2 samples.")
    return Estimate(jnp.mean(samples), jnp.std(samples, ddof=1) / jnp.sqrt(count))


class AbstractTask(eqx.Module, Generic[S]):
    """A distribution over sequences. It knows how to sample and its own optimum, never a model."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """D, the dimension of the inputs."""

    @property
    def labels(self) -> int | None:
        """I, the number of labels of a token, on an axis of their own; None: one, without axis."""
        return None

    @property
    @abc.abstractmethod
    def max_context(self) -> int:
        """The longest context that this task produces."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, count: int) -> S:
        """Draws `count` independent sequences."""

    @abc.abstractmethod
    def bayes_predict(self, sequences: S) -> Array:
        """The posterior mean of the noiseless query label given the context and the query."""

    @abc.abstractmethod
    def bayes_variance(self, sequences: S) -> Array:
        """The posterior variance of the query label (its noise included where the task has it)."""

    def bayes_risk(self, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """The smallest risk that any predictor can reach on this task.

        The posterior variance, summed over labels where there are several, is averaged over
        sampled contexts, which leaves far less noise than averaging squared errors.
        """
        check_made_in_float64(task=self)
        variances = self.bayes_variance(self.sample(key, count))
        return estimate_mean(jnp.sum(variances.reshape(count, -1), 1))

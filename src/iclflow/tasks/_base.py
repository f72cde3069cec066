"""The interface of tasks: a distribution over sequences, and its Bayes predictor."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..errors import InputError
from ..runtime.precision import check_made_in_float64


class Sequences(eqx.Module):
    """A batch of in-context regression problems (x₁,y₁)…(x_N,y_N), x_q → y_q, with I labels each.

    Any leading batch axes are allowed, none included. Sequences of different context lengths
    share one array: positions from `length` on are padding, with x = 0 and y = 0.

    **Example:**

    ```pycon
    >>> sequences = icl.isotropic(dim=5, context=40).sample(jr.key(0), 8)
    >>> sequences.count, sequences.dim, sequences.labels, sequences.mask().all().item()
    (8, 5, 1, True)
    >>> x, y = jnp.ones((40, 5)), jnp.ones((40, 1))
    >>> own = icl.Sequences(x, y, x_query=x[0], y_query=y[0], length=jnp.array(40.0))
    >>> icl.estimators.Ridge(0.1).predict(own).round(3)
    Array([1.], dtype=float64)
    ```
    """

    x: Float[Array, "*batch N D"]
    y: Float[Array, "*batch N I"]
    x_query: Float[Array, "*batch D"]
    y_query: Float[Array, "*batch I"]
    length: Float[Array, "*batch"]

    @property
    def dim(self) -> int:
        return self.x.shape[-1]

    @property
    def labels(self) -> int:
        """I, the number of labels."""
        return self.y.shape[-1]

    @property
    def count(self) -> int:
        """The number of sequences along the first batch axis."""
        return self.x.shape[0]

    def label(self, index: int) -> "Sequences":
        """The same sequences with one of their labels."""
        one = slice(index, index + 1)
        return Sequences(
            self.x, self.y[..., one], self.x_query, self.y_query[..., one], self.length
        )

    def squared_error(self, prediction: Float[Array, "*batch I"]) -> Float[Array, "*batch"]:
        """The loss of each sequence: (y_q − ŷ)², summed over labels."""
        check_prediction(prediction, self.y_query)
        return jnp.sum((self.y_query - prediction) ** 2, -1)

    def mask(self) -> Bool[Array, "*batch N"]:
        """True at the positions that hold a context pair, False at padding."""
        # `length` is a float, as risks divide by it; whole numbers compare exactly.
        return jnp.arange(self.x.shape[-2]) < self.length[..., None]

    def __getitem__(self, index: Any) -> "Sequences":
        # Every field has the same batch axes in front.
        return jax.tree.map(lambda leaf: leaf[index], self)


def check_sequences(sequences: Any) -> None:
    """Refuses anything but sequences, such as an array of inputs.

    **Example:**

    ```pycon
    >>> try:
    ...     icl.tasks.check_sequences(jnp.zeros((40, 5)))
    ... except TypeError as error:
    ...     print(str(error).split(":")[0])
    `sequences` is a ArrayImpl
    ```
    """
    if not isinstance(sequences, Sequences):
        raise TypeError(
            f"`sequences` is a {type(sequences).__name__}: must be Sequences, such as "
            "`task.sample(key, count)` draws."
        )


def check_prediction(prediction: Array, label: Array) -> None:
    """Refuses predictions of another shape than the labels: broadcasting would compare them with
    labels of other sequences.

    **Example:**

    ```pycon
    >>> try:
    ...     icl.tasks.check_prediction(jnp.zeros((8,)), jnp.zeros((8, 1)))
    ... except ValueError as error:
    ...     print(str(error).split(":")[0])
    The prediction has shape (8,) and the label shape (8, 1)
    ```
    """
    if jnp.shape(prediction) != jnp.shape(label):
        raise ValueError(
            f"The prediction has shape {jnp.shape(prediction)} and the label shape "
            f"{jnp.shape(label)}: a model must predict as many labels as the task has."
        )


class Estimate(NamedTuple):
    """The estimate of a number from samples, and its standard error."""

    value: Float[Array, ""]
    standard_error: Float[Array, ""]


def estimate_mean(samples: Float[Array, " count"]) -> Estimate:
    """The mean of independent samples, with its standard error.

    **Example:**

    ```pycon
    >>> mean = icl.tasks.estimate_mean(jr.normal(jr.key(0), (10_000,)))
    >>> bool(abs(mean.value) < 4 * mean.standard_error), f"{mean.standard_error:.3f}"
    (True, '0.010')
    ```
    """
    count = samples.shape[0]
    if count < 2:
        raise InputError("count", count, "a standard error needs at least 2 samples")
    return Estimate(jnp.mean(samples), jnp.std(samples, ddof=1) / jnp.sqrt(count))


class AbstractTask(eqx.Module):
    """A distribution over sequences. It knows how to sample and its Bayes predictor, never a
    model.

    **Example:**

    ```pycon
    >>> tasks = [icl.isotropic(5), icl.SparseRegression(5), icl.DecisionTree(5)]
    >>> [isinstance(task, icl.AbstractTask) for task in tasks]
    [True, True, True]
    >>> [task.sample(jr.key(0), 3).x.shape for task in tasks]
    [(3, 40, 5), (3, 40, 5), (3, 40, 5)]
    ```
    """

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """D, the dimension of the inputs."""

    @property
    def labels(self) -> int:
        """I, the number of labels of a token."""
        return 1

    @property
    @abc.abstractmethod
    def max_context(self) -> int:
        """The longest context that this task produces."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        """Draws `count` independent sequences."""

    @abc.abstractmethod
    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The posterior mean of each noiseless query label given the context and the query."""

    @abc.abstractmethod
    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The posterior variance of each query label, its noise included."""

    def bayes_risk(self, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """The smallest risk that any predictor can reach on this task.

        The posterior variance, summed over labels, is averaged over sampled contexts: that has far
        less noise than an average of squared errors.
        """
        check_made_in_float64(task=self)
        variances = self.bayes_variance(self.sample(key, count))
        return estimate_mean(jnp.sum(variances, -1))

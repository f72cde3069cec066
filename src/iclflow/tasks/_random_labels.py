"""Contexts that say nothing about the query: the probe for in-weight learning."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import check_draw, check_nonnegative, check_vector
from ._linear_regression import LinearRegression


class RandomLabels(AbstractTask):
    """Context labels are pure noise; the query label is w·x_q for one fixed w.

    Only a model that stored w in its weights can do better than predicting zero.
    """

    inputs: LinearRegression
    weight: Float[Array, " D"]
    label_variance: Float[Array, ""]

    def __init__(
        self,
        task: LinearRegression,
        weight: ArrayLike | Sequence[float],
        label_variance: ScalarLike = 1.0,
    ):
        """**Arguments:**

        - `task`: gives the input covariance and the context lengths.
        - `weight`: w, the same in every sequence.
        - `label_variance`: of the context labels.
        """
        self.inputs = eqx.tree_at(lambda t: t.noise, task, jnp.zeros_like(task.noise))
        self.weight = as_float(check_vector("weight", weight, task.dim))
        self.label_variance = as_float(check_nonnegative("label_variance", label_variance))

    @property
    def dim(self) -> int:
        return self.inputs.dim

    @property
    def max_context(self) -> int:
        return self.inputs.max_context

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        check_draw(key, count)
        key_inputs, key_labels = jr.split(key)
        drawn = self.inputs.sample(key_inputs, count)
        labels = jr.normal(key_labels, drawn.y.shape, drawn.y.dtype)
        labels = jnp.sqrt(self.label_variance) * labels
        labels = jnp.where(drawn.mask()[..., None], labels, 0.0)
        target = (drawn.x_query @ self.weight)[..., None]
        return eqx.tree_at(lambda s: (s.y, s.y_query), drawn, (labels, target))

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return (sequences.x_query @ self.weight)[..., None]

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return jnp.zeros_like(sequences.y_query)

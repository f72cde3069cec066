"""Contexts that say nothing about the query: the probe for in-weight learning."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..precision import as_float
from ._base import AbstractTask, Sequences
from ._check import checked_array, checked_nonnegative
from ._linear_regression import LinearRegression


class RandomLabels(AbstractTask[Sequences]):
    """Context labels are pure noise; the query label is w·x_q for one fixed w.

    Only a model that stored w in its weights can do better than predicting zero.
    """

    inputs: LinearRegression
    weight: Float[Array, " D"]
    label_variance: Float[Array, ""]

    def __init__(self, task: LinearRegression, weight, label_variance=1.0):
        """**Arguments:**

        - `task`: gives the input covariance and the context lengths.
        - `weight`: w, the same in every sequence.
        - `label_variance`: of the context labels.
        """
        vector = checked_array("weight", weight, 1)
        if vector.shape != (task.dim,):
            raise ValueError(f"`weight` has {vector.shape[0]} entries: must have {task.dim}.")
        self.inputs = eqx.tree_at(lambda t: t.noise, task, jnp.zeros_like(task.noise))
        self.weight = as_float(vector)
        self.label_variance = as_float(checked_nonnegative("label_variance", label_variance))

    @property
    def dim(self) -> int:
        return self.inputs.dim

    @property
    def max_context(self) -> int:
        return self.inputs.max_context

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        key_inputs, key_labels = jr.split(key)
        drawn = self.inputs.sample(key_inputs, count)
        labels = jr.normal(key_labels, drawn.y.shape, drawn.y.dtype)
        labels = jnp.where(drawn.mask(), jnp.sqrt(self.label_variance) * labels, 0.0)
        return eqx.tree_at(lambda s: (s.y, s.y_query), drawn, (labels, drawn.x_query @ self.weight))

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        return sequences.x_query @ self.weight

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch"]:
        return jnp.zeros_like(sequences.y_query)

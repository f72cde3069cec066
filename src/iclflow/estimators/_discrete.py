"""The posterior mean under a prior over finitely many tasks."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import Sequences, discrete_posterior
from ._base import AbstractEstimator


class DiscreteMMSE(AbstractEstimator):
    """The posterior mean if w is one of K known vectors, all equally likely (arXiv 2306.15063).

    ŷ = Σ_k p_k w_k·x_q with p_k ∝ exp(−Σₙ(yₙ − w_k·xₙ)²/2σ²). This is what a model predicts that
    has learned the tasks of its training by heart. Without noise the tasks that fit best share all
    the weight.

    **Fields:**

    - `tasks`: w of each.
    - `noise`: σ², of the labels.

    **Example:**

    ```pycon
    >>> tasks = jr.normal(jr.key(0), (4, 3))
    >>> known = icl.estimators.DiscreteMMSE(tasks, noise=0.01)
    >>> x = jr.normal(jr.key(1), (11, 3))
    >>> y = x @ tasks[2]
    >>> context = icl.Sequences(x[:-1], y[:-1, None], x[-1], y[-1:], jnp.array(10.0))
    >>> jnp.allclose(known.predict(context), y[-1:]).item()
    True
    ```
    """

    name: ClassVar[str] = "dMMSE"
    tasks: Float[Array, "K D"]
    noise: Float[Array, ""]

    def __init__(self, tasks: Float[Array, "K D"], noise: ScalarLike):
        self.tasks, self.noise = jnp.asarray(tasks), as_float(noise)
        if self.tasks.ndim != 2 or not self.tasks.size:
            raise InputError(
                "tasks", self.tasks.shape, "must be a matrix with one row per task", "has the shape"
            )

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        if sequences.dim != self.tasks.shape[1]:
            raise InputError(
                "tasks", self.tasks.shape, f"must have {sequences.dim} columns, one per input"
            )
        return discrete_posterior(sequences, self.tasks, self.noise).mean

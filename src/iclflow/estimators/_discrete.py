"""The posterior mean under a prior over finitely many tasks."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import Sequences
from ._base import AbstractEstimator, masked_context

# Numbers in the residuals of one chunk of tasks: bounds the memory.
_LARGEST_CHUNK = 2**24


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
        x, y = masked_context(sequences)
        lead = x.shape[:-2]
        size = max(1, _LARGEST_CHUNK // max(1, math.prod(x.shape[:-1]) * y.shape[-1]))
        found = _posterior_mean(
            x.reshape(-1, *x.shape[-2:]),
            y.reshape(-1, *y.shape[-2:]),
            sequences.x_query.reshape(-1, x.shape[-1]),
            self.tasks,
            self.noise,
            min(size, len(self.tasks)),
        )
        return found.reshape(*lead, -1)


@eqx.filter_jit
def _posterior_mean(
    x: Float[Array, "B N D"],
    y: Float[Array, "B N I"],
    query: Float[Array, "B D"],
    tasks: Float[Array, "K D"],
    noise: Float[Array, ""],
    chunk: int,
) -> Float[Array, "B I"]:
    """Sums over chunks of tasks, with weights relative to the best fit so far: none overflows."""
    whole = -(-len(tasks) // chunk) * chunk
    padded = jnp.pad(tasks, ((0, whole - len(tasks)), (0, 0)))
    real = jnp.arange(whole) < len(tasks)
    # Without noise only the best fit counts, up to rounding of the squares.
    tiny = jnp.finfo(x.dtype).eps * jnp.mean(y**2) * x.shape[1]
    width = 2 * jnp.maximum(noise, jnp.maximum(tiny, jnp.finfo(x.dtype).tiny))

    def add(carry, part):
        best, total, mean = carry
        w, kept = part
        fits = jnp.einsum("bnd,kd->bnk", x, w)
        squares = jnp.sum((y[..., None] - fits[:, :, None]) ** 2, 1)  # (B, I, k)
        score = jnp.where(kept, -squares / width, -jnp.inf)
        new = jnp.maximum(best, jnp.max(score, -1))
        weight = jnp.exp(score - new[..., None])
        keep = jnp.exp(best - new)
        values = jnp.einsum("bd,kd->bk", query, w)
        total = total * keep + jnp.sum(weight, -1)
        mean = mean * keep + jnp.einsum("bik,bk->bi", weight, values)
        return (new, total, mean), None

    shape = (x.shape[0], y.shape[2])
    start = jnp.full(shape, -jnp.inf), jnp.zeros(shape), jnp.zeros(shape)
    parts = padded.reshape(-1, chunk, tasks.shape[1]), real.reshape(-1, chunk)
    (_, total, mean), _ = jax.lax.scan(add, start, parts)
    return mean / total

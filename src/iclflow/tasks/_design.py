"""What tasks with random functions share: white inputs, noisy labels, context lengths."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..precision import as_float
from ._base import AbstractTask, Sequences
from ._check import checked_contexts, checked_nonnegative, is_whole
from ._lengths import cut_to_length


class Design(eqx.Module):
    """Inputs x ~ N(0, I) in D dimensions, and labels y = f(x) + ε with Var ε = σ²."""

    noise: Float[Array, ""]
    dim: int = eqx.field(static=True)
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(self, dim: int, context, noise, noisy_query: bool):
        self.dim = checked_count("dim", dim)
        self.contexts = checked_contexts(context)
        self.noise = as_float(checked_nonnegative("noise", noise))
        self.noisy_query = bool(noisy_query)

    @property
    def query_noise(self) -> Float[Array, ""]:
        """Variance of the noise on the query label: σ², or 0 if the query is noiseless."""
        return self.noise if self.noisy_query else jnp.zeros_like(self.noise)

    def sample(
        self,
        key: PRNGKeyArray,
        count: int,
        values: Callable[[PRNGKeyArray, Float[Array, "count M D"]], Float[Array, "count M"]],
    ) -> Sequences:
        """Draws `count` sequences; `values(key, x)` draws one function for each and applies it."""
        key_x, key_function, key_noise, key_length = jr.split(key, 4)
        tokens, dtype = max(self.contexts) + 1, self.noise.dtype
        x = jr.normal(key_x, (count, tokens, self.dim), dtype)
        noise = jnp.sqrt(self.noise) * jr.normal(key_noise, (count, tokens), dtype)
        if not self.noisy_query:
            noise = noise.at[:, -1].set(0.0)
        y = values(key_function, x) + noise
        return Sequences(*cut_to_length(key_length, x, y, self.contexts))


class AbstractDesignedTask(AbstractTask[Sequences]):
    """A task whose inputs, noise and context lengths are those of its design."""

    design: eqx.AbstractVar[Design]

    @property
    def dim(self) -> int:
        return self.design.dim

    @property
    def max_context(self) -> int:
        return max(self.design.contexts)


def checked_count(name: str, value, largest: int | None = None) -> int:
    """`value` as a whole number from 1 up."""
    if not is_whole(value) or value < 1 or (largest is not None and value > largest):
        limit = "" if largest is None else f" to {largest}"
        raise ValueError(f"`{name}` = {value}: must be a whole number from 1{limit or ' up'}.")
    return int(value)


def no_bayes(task: object) -> TypeError:
    """The error of a task whose Bayes predictor nobody knows."""
    return TypeError(
        f"The Bayes predictor of {type(task).__name__} is not known: use plain sampled targets."
    )

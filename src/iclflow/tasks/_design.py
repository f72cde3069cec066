"""What tasks with random functions share: white inputs, noisy labels, context lengths."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import Lengths, check_contexts, check_count, check_draw, check_nonnegative
from ._draw import cut_to_length, draw_tokens
from ._linear_regression import LinearRegression, white_regression


class Design(eqx.Module):
    """Inputs x ~ N(0, I) in D dimensions, and labels y = f(x) + ε with Var ε = σ².

    The functions have a variance v, of f or of a part of it: the task says which.
    """

    noise: Float[Array, ""]
    variance: Float[Array, ""]
    dim: int = eqx.field(static=True)
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths,
        variance: ScalarLike,
        noise: ScalarLike,
        noisy_query: bool,
    ):
        self.dim = check_count("dim", dim)
        self.contexts = check_contexts(context)
        self.variance = as_float(check_nonnegative("variance", variance))
        self.noise = as_float(check_nonnegative("noise", noise))
        self.noisy_query = bool(noisy_query)


class AbstractDesignedTask(AbstractTask):
    """A task whose inputs, noise and context lengths are those of its design."""

    design: eqx.AbstractVar[Design]

    @property
    def dim(self) -> int:
        return self.design.dim

    @property
    def max_context(self) -> int:
        return max(self.design.contexts)

    @property
    def variance(self) -> Float[Array, ""]:
        """v, of the functions."""
        return self.design.variance

    def regression(self, variances: Float[Array, " F"]) -> LinearRegression:
        """Linear regression with the noise of this task, and independent weights of these
        variances: what Bayes predictors are made of. The law of its inputs is not used."""
        design, prior = self.design, jnp.diag(variances)
        return white_regression(design.contexts, design.noisy_query, prior, design.noise)

    def draw(
        self,
        key: PRNGKeyArray,
        count: int,
        values: Callable[[PRNGKeyArray, Float[Array, "count M D"]], Float[Array, "count M"]],
    ) -> Sequences:
        """Draws `count` sequences; `values(key, x)` draws one function for each and applies it."""
        check_draw(key, count)
        *keys, key_length = jr.split(key, 4)
        design, shape = self.design, (count, self.max_context + 1, self.dim)
        one_label = lambda key, x: values(key, x)[..., None]
        x, y = draw_tokens(tuple(keys), shape, one_label, design.noise, design.noisy_query)
        return Sequences(*cut_to_length(key_length, x, y, design.contexts))

"""Labels of random functions: their common design, and two without a known Bayes predictor."""

from collections.abc import Callable
from typing import TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import Lengths, check_contexts, check_count, check_flag, check_nonnegative
from ._draw import draw_sequences
from ._linear_regression import LinearRegression, white_regression
from ._unknown_bayes import AbstractUnknownBayes

# A tree of this depth has 4096 leaves per sequence: deeper ones would fill the memory.
LARGEST_DEPTH = 12


class DesignOptions(TypedDict, total=False):
    """The options that all random functions have; see `Design`."""

    variance: ScalarLike
    noise: ScalarLike
    noisy_query: bool


class Design(eqx.Module):
    """White inputs x ~ N(0, I) in D dimensions, and labels y = f(x) + ε with Var ε = σ²."""

    noise: Float[Array, ""]
    variance: Float[Array, ""]
    dim: int = eqx.field(static=True)
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths,
        variance: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `variance`: v, of the noiseless label unless the task says of which part of it.
        """
        self.dim = check_count("dim", dim)
        self.contexts = check_contexts(context)
        self.variance = as_float(check_nonnegative("variance", variance))
        self.noise = as_float(check_nonnegative("noise", noise))
        self.noisy_query = check_flag("noisy_query", noisy_query)


class AbstractFunctionTask(AbstractTask):
    """Labels of a random function, a new one in every sequence."""

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
        """Linear regression with the noise of this task and independent weights of these variances,
        to build Bayes predictors from. Its input covariance means nothing."""
        design, prior = self.design, jnp.diag(variances)
        return white_regression(design.contexts, design.noisy_query, prior, design.noise)

    def draw(
        self,
        key: PRNGKeyArray,
        count: int,
        values: Callable[[PRNGKeyArray, Float[Array, "count M D"]], Float[Array, "count M"]],
    ) -> Sequences:
        """Draws `count` sequences; `values(key, x)` draws one function for each and applies it."""
        design, one_label = self.design, lambda key, x: values(key, x)[..., None]
        return draw_sequences(
            key, count, design.dim, one_label, design.noise, design.noisy_query, design.contexts
        )


class TwoLayerReLU(AbstractUnknownBayes, AbstractFunctionTask):
    """f(x) = Σ_k a_k max(0, u_k·x) with K hidden units.

    u_k ~ N(0, I/D) and a_k ~ N(0, 2v/K), so that E f² = v (arXiv 2208.01066).

    **Example:**

    ```pycon
    >>> task = icl.TwoLayerReLU(dim=10, context=60, hidden=32, variance=2.0)
    >>> labels = task.sample(jr.key(0), 2000).y_query
    >>> (labels**2).mean().round(0)
    Array(2., dtype=float64)
    ```
    """

    design: Design
    hidden: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        hidden: int = 100,
        **options: Unpack[DesignOptions],
    ):
        """**Arguments:**

        - `dim`, `context`, `options`: as in `Design`.
        - `hidden`: K.
        """
        self.design = Design(dim, context, **options)
        self.hidden = check_count("hidden", hidden)

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            key_first, key_second = jr.split(key)
            shape, dtype = (count, self.hidden), x.dtype
            first = jr.normal(key_first, (*shape, self.dim), dtype) / self.dim**0.5
            second = jr.normal(key_second, shape, dtype)
            # The 2: a ReLU halves the mean square of a symmetric input.
            second = second * jnp.sqrt(2 * self.variance / self.hidden)
            hidden = jax.nn.relu(jnp.einsum("pnd,pkd->pnk", x, first))
            return jnp.einsum("pnk,pk->pn", hidden, second)

        return self.draw(key, count, values)


class DecisionTree(AbstractUnknownBayes, AbstractFunctionTask):
    """A full binary tree: each inner node tests the sign of one coordinate, drawn at random.

    The leaves hold independent values N(0, v), so that E f² = v (arXiv 2208.01066).

    **Example:**

    ```pycon
    >>> task = icl.DecisionTree(dim=10, context=60, depth=3)
    >>> task.sample(jr.key(0), 2).y.shape
    (2, 60, 1)
    ```
    """

    design: Design
    depth: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        depth: int = 4,
        **options: Unpack[DesignOptions],
    ):
        """**Arguments:**

        - `dim`, `context`, `options`: as in `Design`.
        - `depth`: how many tests lead to a leaf.
        """
        self.design = Design(dim, context, **options)
        self.depth = check_count("depth", depth, LARGEST_DEPTH)

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            key_tree, key_leaves = jr.split(key)
            tested = jr.randint(key_tree, (count, 2**self.depth - 1), 0, self.dim)
            leaves = jr.normal(key_leaves, (count, 2**self.depth), x.dtype)
            positive = jnp.asarray(x > 0, tested.dtype)
            # Nodes are numbered level by level: those below node n are 2n + 1 and 2n + 2.
            node = jnp.zeros(x.shape[:2], tested.dtype)
            for _ in range(self.depth):
                coordinate = jnp.take_along_axis(tested, node, 1)
                branch = jnp.take_along_axis(positive, coordinate[..., None], 2)[..., 0]
                node = 2 * node + 1 + branch
            # The leaves are numbered after all inner nodes.
            values = jnp.take_along_axis(leaves, node - (2**self.depth - 1), 1)
            return jnp.sqrt(self.variance) * values

        return self.draw(key, count, values)

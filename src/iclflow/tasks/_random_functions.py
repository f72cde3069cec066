"""Random functions without a known Bayes predictor: two-layer ReLU networks, decision trees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._base import Sequences
from ._check import Lengths, check_count
from ._design import AbstractDesignedTask, Design

# A tree of this depth has 4096 leaves per sequence.
LARGEST_DEPTH = 12


class AbstractRandomFunction(AbstractDesignedTask):
    """Labels of a function for which nobody knows the Bayes predictor."""

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        raise TypeError(
            f"The Bayes predictor of {type(self).__name__} is not known: use plain sampled targets."
        )

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return self.bayes_predict(sequences)


class TwoLayerReLU(AbstractRandomFunction):
    """f(x) = Σ_k a_k max(0, u_k·x), K hidden units, a fresh network in every sequence.

    u_k ~ N(0, I/D) and a_k ~ N(0, 2v/K), so that E f² = v (arXiv 2208.01066).
    """

    design: Design
    hidden: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        hidden: int = 100,
        variance: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `hidden`: K.
        - `variance`: v, of the noiseless label.
        """
        self.design = Design(dim, context, variance, noise, noisy_query)
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


class DecisionTree(AbstractRandomFunction):
    """A full binary tree: each inner node asks for the sign of one coordinate, drawn at random.

    The leaves hold independent values N(0, v), so that E f² = v (arXiv 2208.01066).
    """

    design: Design
    depth: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        depth: int = 4,
        variance: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `depth`: how many questions lead to a leaf.
        - `variance`: v, of the noiseless label.
        """
        self.design = Design(dim, context, variance, noise, noisy_query)
        self.depth = check_count("depth", depth, LARGEST_DEPTH)

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            key_tree, key_leaves = jr.split(key)
            asked = jr.randint(key_tree, (count, 2**self.depth - 1), 0, self.dim)
            leaves = jr.normal(key_leaves, (count, 2**self.depth), x.dtype)
            positive = jnp.asarray(x > 0, asked.dtype)
            # Nodes are numbered level by level: those below node n are 2n + 1 and 2n + 2.
            node = jnp.zeros(x.shape[:2], asked.dtype)
            for _ in range(self.depth):
                coordinate = jnp.take_along_axis(asked, node, 1)
                answer = jnp.take_along_axis(positive, coordinate[..., None], 2)[..., 0]
                node = 2 * node + 1 + answer
            values = jnp.take_along_axis(leaves, node - (2**self.depth - 1), 1)
            return jnp.sqrt(self.variance) * values

        return self.draw(key, count, values)

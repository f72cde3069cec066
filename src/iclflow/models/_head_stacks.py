"""Stacks of linear attention whose steps Γ_l are sums over heads."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._base import Normaliser
from ._initialise import (
    MERGED_SCHEMES,
    SCHEMES,
    MergedScheme,
    Scheme,
    check_start,
    draw_merged,
    draw_separate,
)
from ._linear_stack import AbstractLinearStack, check_layers, check_sets, level_sizes, over_layers


class MergedStack(AbstractLinearStack):
    """One key-query matrix and one value per head: Γ_l = Σ_h v_lh U_lh.

    **Fields:**

    - `value`: v.
    - `key_query`: U.

    **Example:**

    ```pycon
    >>> model = icl.MergedStack.init(jr.key(0), dim=3, depth=2, heads=2, scheme="balanced")
    >>> model.steps().shape, model.sets
    ((2, 3, 3), 2)
    ```
    """

    value: Float[Array, "S H"]
    key_query: Float[Array, "S H D D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "value", "key_query")

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        heads: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: MergedScheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> "MergedStack":
        """Initial weights of size `scale`: each layer draws its own, by one of the schemes of
        `models/_initialise.py`. `options` are fields.

        **Arguments:**

        - `tied`: whether all layers share one set of weights.
        - `spread`: δ; layer l draws weights of size s + δ e_l, e_l evenly spaced from 1 in the
          first layer to −1 in the last.
        """
        size = check_start(key, dim, heads, scale, scheme, MERGED_SCHEMES, depth=depth)
        draw = lambda key, size: draw_merged(key, dim, heads, size, scheme)
        parts = _draw_layers(draw, key, size, check_sets(tied, depth, spread), spread)
        return MergedStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.key_query.shape[-1]

    @property
    def sets(self) -> int:
        return self.value.shape[-2]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return self.key_query, self.value

    def step_weights(self) -> Array:
        return over_layers(jnp.einsum("lh,lhab->lab", self.value, self.key_query), self.depth)


class SeparateStack(AbstractLinearStack):
    """Keys and queries of rank R and one value per head: Γ_l = Σ_h v_lh K_lh Q_lhᵀ.

    **Fields:**

    - `value`: v.
    - `K`, `Q`: keys and queries.

    **Example:**

    ```pycon
    >>> model = icl.SeparateStack.init(jr.key(0), dim=3, depth=2, heads=4)
    >>> task = icl.LinearRegression([0.5, 0.3, 0.2], context=20)
    >>> icl.available_kinds(task, model)[0]
    'exact'
    ```
    """

    value: Float[Array, "S H"]
    K: Float[Array, "S H D R"]
    Q: Float[Array, "S H D R"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "value", "K", "Q")

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        heads: int = 1,
        rank: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: Scheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> "SeparateStack":
        """Initial weights of size `scale`: each layer draws its own, by one of the schemes of
        `models/_initialise.py`. `options` are fields.

        **Arguments:**

        - `rank`: R.
        - `tied`, `spread`: as in `MergedStack.init`.
        """
        counts = {"depth": depth, "rank": rank}
        size = check_start(key, dim, heads, scale, scheme, SCHEMES, **counts)
        draw = lambda key, size: draw_separate(key, dim, heads, rank, size, scheme)
        parts = _draw_layers(draw, key, size, check_sets(tied, depth, spread), spread)
        return SeparateStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.Q.shape[-2]

    @property
    def sets(self) -> int:
        return self.value.shape[-2]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return jnp.einsum("lhar,lhbr->lhab", self.K, self.Q), self.value

    def step_weights(self) -> Array:
        return over_layers(jnp.einsum("lh,lhar,lhbr->lab", self.value, self.K, self.Q), self.depth)


def _draw_layers(
    draw: Callable[[PRNGKeyArray, Array], tuple[Array, ...]],
    key: PRNGKeyArray,
    size: Array,
    sets: int,
    spread: ScalarLike,
) -> tuple[Array, ...]:
    """The weights of all layers, each drawn by itself."""
    return jax.vmap(draw)(jr.split(key, sets), level_sizes(size, sets, spread))

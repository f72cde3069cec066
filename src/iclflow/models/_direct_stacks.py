"""Stacks of linear attention whose weights are the matrices Γ_l themselves."""

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._base import Normaliser
from ._linear_stack import (
    AbstractLinearStack,
    DirectScheme,
    StepShape,
    check_layers,
    direct_heads,
    draw_steps,
    over_layers,
)


class ScalarStack(AbstractLinearStack):
    """One number per layer: Γ_l = γ_l·I, plain gradient descent in context.

    **Fields:**

    - `gamma`: γ_l.
    - `dim`: D, which the numbers do not say.

    **Example:**

    ```pycon
    >>> loop = icl.ScalarStack(jnp.array([0.7]), dim=5, depth=2)
    >>> loop.tied, loop.with_depth(4).depth
    (True, 4)
    ```
    """

    shape: ClassVar[StepShape] = "scalar"

    gamma: Float[Array, "S"]
    dim: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma")

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        scale: ScalarLike = 1e-2,
        scheme: DirectScheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> "ScalarStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "scalar", scale, scheme, tied, spread)
        return ScalarStack(*parts, dim=dim, depth=depth, **options)

    @property
    def sets(self) -> int:
        return self.gamma.shape[-1]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)


class DiagonalStack(AbstractLinearStack):
    """A diagonal matrix per layer.

    **Fields:**

    - `gamma`: the diagonals of the Γ_l.

    **Example:**

    ```pycon
    >>> icl.DiagonalStack.init(jr.key(0), 3, 2, scale=0.1, scheme="small_identity").gamma.tolist()
    [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]]
    ```
    """

    shape: ClassVar[StepShape] = "diagonal"

    gamma: Float[Array, "S D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma")

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        scale: ScalarLike = 1e-2,
        scheme: DirectScheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> "DiagonalStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "diagonal", scale, scheme, tied, spread)
        return DiagonalStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

    @property
    def sets(self) -> int:
        return self.gamma.shape[-2]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)


class FullStack(AbstractLinearStack):
    """Any matrix per layer.

    **Fields:**

    - `gamma`: the Γ_l.

    **Example:**

    ```pycon
    >>> model = icl.FullStack.init(jr.key(0), dim=3, depth=2)
    >>> tokens = model.to_attention()
    >>> sequences = icl.isotropic(dim=3, context=20).sample(jr.key(1), 5)
    >>> bool(jnp.allclose(tokens.predict(sequences), model.predict(sequences)))
    True
    ```
    """

    shape: ClassVar[StepShape] = "full"

    gamma: Float[Array, "S D D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma")

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        scale: ScalarLike = 1e-2,
        scheme: DirectScheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> "FullStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "full", scale, scheme, tied, spread)
        return FullStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

    @property
    def sets(self) -> int:
        return self.gamma.shape[-3]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)

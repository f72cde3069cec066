"""Stacks of linear attention whose layers move the inputs too, by matrices B_l: GD++."""

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


class MovingScalarStack(AbstractLinearStack):
    """Numbers γ_l and b_l per layer: Γ_l = γ_l·I, and B_l = b_l·I moves the inputs (GD++).

    **Fields:**

    - `gamma`, `move`: γ_l and b_l.
    - `dim`: D, which the numbers do not say.

    **Example:**

    ```pycon
    >>> gamma, move = jnp.array([0.517, 3.475]), jnp.array([0.868, 0.0])
    >>> model = icl.MovingScalarStack(gamma, move, dim=5, depth=2)
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.risk(task, model)(model).round(4)
    Array(0.0575, dtype=float64)
    ```
    """

    shape: ClassVar[StepShape] = "scalar"

    gamma: Float[Array, "S"]
    move: Float[Array, "S"]
    dim: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma", "move")

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
    ) -> "MovingScalarStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last, and B_l = s·I.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "scalar", scale, scheme, tied, spread, count=2)
        return MovingScalarStack(*parts, dim=dim, depth=depth, **options)

    @property
    def moving(self) -> bool:
        return True

    @property
    def sets(self) -> int:
        return self.gamma.shape[-1]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)

    def move_weights(self) -> Array:
        return over_layers(self.move, self.depth)


class MovingDiagonalStack(AbstractLinearStack):
    """Diagonal Γ_l and B_l per layer (GD++).

    **Fields:**

    - `gamma`, `move`: the diagonals of Γ_l and B_l.

    **Example:**

    ```pycon
    >>> icl.MovingDiagonalStack.init(jr.key(0), dim=3, depth=2).moves().shape
    (2, 3, 3)
    ```
    """

    shape: ClassVar[StepShape] = "diagonal"

    gamma: Float[Array, "S D"]
    move: Float[Array, "S D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma", "move")

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
    ) -> "MovingDiagonalStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last, and B_l = s·I.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "diagonal", scale, scheme, tied, spread, count=2)
        return MovingDiagonalStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

    @property
    def moving(self) -> bool:
        return True

    @property
    def sets(self) -> int:
        return self.gamma.shape[-2]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)

    def move_weights(self) -> Array:
        return over_layers(self.move, self.depth)


class MovingFullStack(AbstractLinearStack):
    """Any Γ_l and B_l per layer (GD++): what the experiments of arXiv 2306.00297 train.

    **Fields:**

    - `gamma`, `move`: Γ_l and B_l.

    **Example:**

    ```pycon
    >>> model = icl.MovingFullStack.init(jr.key(0), dim=3, depth=2)
    >>> icl.available_kinds(icl.isotropic(dim=3, context=20), model)[-1]
    'sampled'
    ```
    """

    shape: ClassVar[StepShape] = "full"

    gamma: Float[Array, "S D D"]
    move: Float[Array, "S D D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_layers(self, "gamma", "move")

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
    ) -> "MovingFullStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last, and B_l = s·I.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        parts = draw_steps(key, dim, depth, "full", scale, scheme, tied, spread, count=2)
        return MovingFullStack(*parts, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

    @property
    def moving(self) -> bool:
        return True

    @property
    def sets(self) -> int:
        return self.gamma.shape[-3]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)

    def move_weights(self) -> Array:
        return over_layers(self.move, self.depth)

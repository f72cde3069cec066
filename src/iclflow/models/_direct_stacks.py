"""Stacks of linear attention whose weights are the matrices Γ_l themselves."""

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

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

# Not `Self`, which the type checks of the tests cannot read.
_Stack = TypeVar("_Stack", bound="AbstractDirectStack")
# Axes of the Γ of one layer, which `gamma` has after that of the layers.
_AXES: dict[StepShape, int] = {"scalar": 0, "diagonal": 1, "full": 2}


class AbstractDirectStack(AbstractLinearStack):
    """A stack whose weights are the Γ_l, and in GD++ the B_l, with no heads.

    **Fields:**

    - `gamma`: Γ_l, of one shape for all layers.

    **Example:**

    ```pycon
    >>> model = icl.ScalarStack.init(jr.key(0), dim=3, depth=2)
    >>> isinstance(model, icl.models.AbstractDirectStack), model.blocks
    (True, ('gamma',))
    ```
    """

    # The fields that hold weights: with `move`, layers move the inputs too.
    blocks: ClassVar[tuple[str, ...]] = ("gamma",)

    # As in `AbstractLinearStack`.
    if TYPE_CHECKING:

        @property
        def gamma(self) -> Array: ...

    else:
        gamma: eqx.AbstractVar[Array]

    def __check_init__(self):
        check_layers(self, *self.blocks)

    @classmethod
    def init(
        cls: type[_Stack],
        key: PRNGKeyArray,
        dim: int,
        depth: int,
        scale: ScalarLike = 1e-2,
        scheme: DirectScheme = "gaussian",
        *,
        tied: bool = False,
        spread: ScalarLike = 0.0,
        **options: Any,
    ) -> _Stack:
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: Γ_l = (s + δ e_l)·I,
          e_l evenly spaced from 1 in the first layer to −1 in the last, and B_l = s·I.
        - `tied`: whether all layers share one set of weights.
        - `spread`: δ.
        """
        count = len(cls.blocks)
        parts = draw_steps(key, dim, depth, cls.shape, scale, scheme, tied, spread, count)
        if cls.shape == "scalar":  # numbers do not say how many inputs there are
            options = options | {"dim": dim}
        build: Any = cls
        return build(*parts, depth=depth, **options)

    @property
    def moving(self) -> bool:
        return "move" in self.blocks

    @property
    def sets(self) -> int:
        return self.gamma.shape[-1 - _AXES[self.shape]]

    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        return direct_heads(self.gamma, self.dim)

    def step_weights(self) -> Array:
        return over_layers(self.gamma, self.depth)

    def move_weights(self) -> Array | None:
        return over_layers(getattr(self, "move"), self.depth) if self.moving else None


class ScalarStack(AbstractDirectStack):
    """One number per layer: Γ_l = γ_l·I, plain gradient descent in context. `init` is that of
    `AbstractDirectStack`.

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


class DiagonalStack(AbstractDirectStack):
    """A diagonal matrix per layer. `init` is that of `AbstractDirectStack`.

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

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]


class FullStack(AbstractDirectStack):
    """Any matrix per layer. `init` is that of `AbstractDirectStack`.

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

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

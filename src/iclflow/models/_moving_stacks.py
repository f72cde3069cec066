"""Stacks of linear attention whose layers move the inputs too, by matrices B_l: GD++."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ._base import Normaliser
from ._direct_stacks import AbstractDirectStack
from ._linear_stack import StepShape

_BLOCKS = ("gamma", "move")


class MovingScalarStack(AbstractDirectStack):
    """Numbers γ_l and b_l per layer: Γ_l = γ_l·I, and B_l = b_l·I moves the inputs (GD++). `init`
    is that of `AbstractDirectStack`.

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
    blocks: ClassVar[tuple[str, ...]] = _BLOCKS

    gamma: Float[Array, "S"]
    move: Float[Array, "S"]
    dim: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)


class MovingDiagonalStack(AbstractDirectStack):
    """Diagonal Γ_l and B_l per layer (GD++). `init` is that of `AbstractDirectStack`.

    **Fields:**

    - `gamma`, `move`: the diagonals of Γ_l and B_l.

    **Example:**

    ```pycon
    >>> icl.MovingDiagonalStack.init(jr.key(0), dim=3, depth=2).moves().shape
    (2, 3, 3)
    ```
    """

    shape: ClassVar[StepShape] = "diagonal"
    blocks: ClassVar[tuple[str, ...]] = _BLOCKS

    gamma: Float[Array, "S D"]
    move: Float[Array, "S D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]


class MovingFullStack(AbstractDirectStack):
    """Any Γ_l and B_l per layer (GD++): what the experiments of arXiv 2306.00297 train. `init` is
    that of `AbstractDirectStack`.

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
    blocks: ClassVar[tuple[str, ...]] = _BLOCKS

    gamma: Float[Array, "S D D"]
    move: Float[Array, "S D D"]
    depth: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.gamma.shape[-1]

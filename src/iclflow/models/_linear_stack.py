"""Layers of linear attention as steps of preconditioned gradient descent in context."""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..tasks import Sequences, check_choice, check_count, check_sequences, is_real
from ._base import AbstractModel, Normaliser, attention_length
from ._initialise import check_start, random_blocks
from ._stack import AttentionStack

DirectScheme = Literal["gaussian", "small_identity"]
DIRECT_SCHEMES: tuple[str, ...] = get_args(DirectScheme)
"""How weights that are the matrices themselves can start.

**Example:**

```pycon
>>> icl.models.DIRECT_SCHEMES
('gaussian', 'small_identity')
```
"""
StepShape = Literal["scalar", "diagonal", "full"]
"""What kind of matrix the step of a layer can be.

**Example:**

```pycon
>>> icl.ScalarStack.shape, icl.SeparateStack.shape  # each a StepShape
('scalar', 'full')
```
"""
_Stack = TypeVar("_Stack", bound="AbstractLinearStack")


class AbstractLinearStack(AbstractModel):
    """L layers of linear attention whose key-query matrices read inputs alone, reduced to what
    they compute (arXiv 2306.00297; docs/theory/depth.md):

    w_{l+1} = w_l + Γ_l (1/N) Σₙ (yₙ − w_l·xₙ) xₙ, w_0 = 0, and ŷ = w_L·x_q.

    With value blocks B_l on the inputs (GD++) every layer moves the inputs too:
    x ← x − B_l Sᵗ Γ_lᵀ x, S = (1/N) Σₙ xₙxₙᵀ. Weights are the Γ_l, or heads whose sum they are;
    their leading axis S holds one set for all layers (a loop) or one for each.

    **Fields:**

    - `depth`: L.
    - `normaliser`: what sums over the context are divided by; see `attention_length`.
    - `self_attention`: whether the query is a key too, which acts as one more pair (x_q, 0).

    **Example:**

    ```pycon
    >>> model = icl.ScalarStack.init(jr.key(0), dim=3, depth=2)
    >>> isinstance(model, icl.AbstractLinearStack), model.moving
    (True, False)
    ```
    """

    # What kind of matrix a Γ_l can be: a multiple of the identity, a diagonal one, any.
    shape: ClassVar[StepShape] = "full"

    # Type checkers would take variables for the first fields of every subclass. D is a field or a
    # property.
    if TYPE_CHECKING:

        @property
        def dim(self) -> int: ...

        @property
        def depth(self) -> int: ...

        @property
        def normaliser(self) -> Normaliser: ...

        @property
        def self_attention(self) -> bool: ...

    else:
        dim: eqx.AbstractVar[int]
        depth: eqx.AbstractVar[int]
        normaliser: eqx.AbstractVar[Normaliser]
        self_attention: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def sets(self) -> int:
        """S, how many sets of weights there are: 1 for a loop."""

    @abc.abstractmethod
    def step_heads(self) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
        """The matrices of the heads of each set of weights, and their values: Γ = Σ_h v_h U_h."""

    @abc.abstractmethod
    def step_weights(self) -> Array:
        """Γ_1 … Γ_L in the smallest form: numbers (L,), diagonals (L, D) or matrices (L, D, D)."""

    def move_weights(self) -> Array | None:
        """B_1 … B_L in the same form; None where inputs stay what they are."""
        return None

    @property
    def moving(self) -> bool:
        """Whether layers move the inputs too (GD++)."""
        return False

    @property
    def tied(self) -> bool:
        """Whether all layers share one set of weights: a loop."""
        return self.sets == 1

    def steps(self) -> Float[Array, "L D D"]:
        """Γ_1 … Γ_L as matrices."""
        return _as_matrices(self.step_weights(), self.dim)

    def moves(self) -> Float[Array, "L D D"]:
        """B_1 … B_L as matrices; zero where inputs stay what they are."""
        found = self.move_weights()
        if found is None:
            return jnp.zeros((self.depth, self.dim, self.dim), self.step_weights().dtype)
        return _as_matrices(found, self.dim)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        check_sequences(sequences)
        x = jnp.concatenate([sequences.x, sequences.x_query[..., None, :]], -2)
        # Label slots hold the residuals yₙ − w·xₙ; that of the query, whose label is 0, −w·x_q.
        left = jnp.concatenate(
            [sequences.y[..., 0], jnp.zeros_like(sequences.x_query[..., :1])], -1
        )
        seen = jnp.ones(x.shape[-2], x.dtype).at[-1].set(float(self.self_attention))
        gain = 1 / attention_length(sequences.length, self.normaliser)[..., None]
        moves = self.moves() if self.moving else None
        for layer, step in enumerate(self.steps()):
            direction = gain * jnp.einsum("...md,...m,m->...d", x, left, seen)
            left = left - jnp.einsum("...md,de,...e->...m", x, step, direction)
            if moves is not None:
                gram = gain[..., None] * jnp.einsum("...md,...me,m->...de", x, x, seen)
                x = x - jnp.einsum("ab,...bc,dc,...md->...ma", moves[layer], gram, step, x)
        return -left[..., -1:]

    def to_attention(self) -> AttentionStack:
        """The same function as attention between tokens (x; y) and (x_q; 0).

        Head h has −U_hᵀ as its key-query matrix, passes v_h times the label (and, in GD++, B times
        the inputs), and the prediction is minus the query's label entry.
        """
        matrices, values = self.step_heads()
        sets, heads = values.shape
        key_query = jnp.pad(-jnp.swapaxes(matrices, -1, -2), ((0, 0), (0, 0), (0, 1), (0, 1)))
        value = jnp.zeros_like(key_query).at[..., -1, -1].set(values)
        if self.moving:
            moves = jnp.broadcast_to(self.moves()[:sets, None], (sets, heads, self.dim, self.dim))
            value = value.at[..., :-1, :-1].set(moves)
        return AttentionStack(
            key_query,
            value,
            depth=self.depth,
            activation="linear",
            normaliser=self.normaliser,
            self_attention=self.self_attention,
            negated=True,
        )

    def with_depth(self: _Stack, depth: int) -> _Stack:
        """The same loop, run another number of times."""
        check_count("depth", depth)
        if not self.tied:
            raise InputError(
                "depth",
                depth,
                "only a loop, with one set of weights, can run another number of times",
                f"does not fit a stack with weights for {self.sets} layers",
            )
        # Not by `tree_at`, which does not see static fields.
        return dataclasses.replace(self, depth=depth)


def over_layers(weights: Array, depth: int) -> Array:
    """Weights with one entry for each layer, from those of a loop or a stack."""
    return jnp.broadcast_to(weights, (depth, *weights.shape[1:]))


def _as_matrices(weights: Array, dim: int) -> Float[Array, "L D D"]:
    if weights.ndim == 3:
        return weights
    columns = weights[:, None] if weights.ndim == 1 else weights
    return columns[..., None] * jnp.eye(dim, dtype=weights.dtype)


def direct_heads(gamma: Array, dim: int) -> tuple[Float[Array, "S H D D"], Float[Array, "S H"]]:
    """One head of value 1 for each set of weights."""
    return _as_matrices(gamma, dim)[:, None], jnp.ones((len(gamma), 1), gamma.dtype)


def check_layers(model: AbstractLinearStack, *names: str) -> None:
    """Refuses weights, given by name, that are neither for one layer nor for all, and unknown
    settings."""
    check_count("depth", model.depth)
    check_choice("normaliser", model.normaliser, get_args(Normaliser))
    check_choice("self_attention", model.self_attention, (True, False))
    for name in names:
        found = len(getattr(model, name))
        if found not in (1, model.depth) or found != model.sets:
            raise InputError(
                name,
                problem=f"holds weights for {found} layers",
                allowed=f"must be 1 (a loop) or `depth` = {model.depth}, the same for all weights",
            )


def check_sets(tied: bool, depth: int, spread: Any) -> int:
    """How many sets of weights there are, after a check of what makes them differ."""
    check_choice("tied", tied, (True, False))
    if not (is_real(spread) or hasattr(spread, "dtype")):
        raise InputError("spread", spread, "must be a number")
    if tied and is_real(spread) and spread != 0:
        raise InputError("spread", spread, "must be 0 in a loop, which has one set of weights")
    return 1 if tied else int(depth)  # NumPy's would be traced as arrays


def draw_steps(
    key: PRNGKeyArray,
    dim: int,
    depth: int,
    shape: StepShape,
    scale: ScalarLike,
    scheme: DirectScheme,
    tied: bool,
    spread: ScalarLike,
    count: int = 1,
) -> tuple[Array, ...]:
    """`count` blocks of initial weights in the given shape, with one entry for each set.

    **Arguments:**

    - `scheme`: `"gaussian"`: every entry is N(0, s²); `"small_identity"`: (s + δ e_l)·I, e_l evenly
      spaced from 1 in the first layer to −1 in the last.
    - `spread`: δ.
    """
    size = check_start(key, dim, 1, scale, scheme, DIRECT_SCHEMES, depth=depth)
    sets = check_sets(tied, depth, spread)
    if scheme == "gaussian" and is_real(spread) and spread != 0:
        allowed = 'must be 0 unless `scheme` is "small_identity": it would be ignored'
        raise InputError("spread", spread, allowed)
    each = {"scalar": (), "diagonal": (dim,), "full": (dim, dim)}[shape]
    if scheme == "gaussian":
        keys = [key] if count == 1 else list(jr.split(key, count))
        return tuple(random_blocks(one, [(sets, *each)], size, scheme, [1])[0] for one in keys)
    first = level_sizes(size, sets, spread)
    ones = {"scalar": jnp.ones(()), "diagonal": jnp.ones(dim), "full": jnp.eye(dim)}[shape]
    levels = (first, *(jnp.full(sets, size) for _ in range(count - 1)))
    return tuple(level.reshape(-1, *(1,) * len(each)) * ones.astype(size.dtype) for level in levels)


def level_sizes(size: Array, sets: int, spread: ScalarLike) -> Float[Array, " S"]:
    """s + δ e_l: sizes that differ evenly from layer to layer."""
    places = jnp.linspace(1.0, -1.0, sets) if sets > 1 else jnp.zeros(1)
    return size + jnp.asarray(spread) * places.astype(size.dtype)

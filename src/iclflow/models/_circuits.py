"""The circuits of attention: which tokens a query attends to, and what is read from them.

A token is z = (x; y), D inputs and I labels, T = D + I entries. The query token is (x_q; 0).
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._fields import refuse_stacks

Activation = Literal["linear", "softmax"]
"""What attention does with its scores.

**Example:**

```pycon
>>> import typing
>>> typing.get_args(icl.models.Activation)
('linear', 'softmax')
```
"""


class AbstractCircuits(eqx.Module):
    """Weights of one layer of attention, and the two circuits that they make.

    Head h has a key-query block B_h (T, D) from query inputs to tokens, and a value matrix a_h
    (I, T) from tokens to labels. All other entries of the attention matrices multiply the zeros in
    the query token or feed outputs that are not read, receive no gradient, and are not stored.

    **Blind** circuits have no weights for the parts that theory sets to zero: keys read only
    inputs, and values read only labels.

    **Example:**

    ```pycon
    >>> class Tied(icl.AbstractCircuits):
    ...     key: jax.Array
    ...     dim = property(lambda self: self.key.shape[-1])
    ...     heads = property(lambda self: self.key.shape[0])
    ...     labels, blind = property(lambda self: 1), property(lambda self: True)
    ...     def kq(self):
    ...         both = self.key[:, :, None] * self.key[:, None, :]
    ...         return jnp.pad(both, ((0, 0), (0, 1), (0, 0)))
    ...     def ov(self):
    ...         return jnp.zeros((self.heads, 1, self.dim + 1)).at[:, :, -1].set(1.0)
    >>> icl.Attention(Tied(jnp.ones((2, 3)))).kq().shape
    (2, 4, 3)
    ```
    """

    # The defaults of attention with these circuits, as in the papers that introduce them.
    activation: ClassVar[Activation] = "softmax"
    self_attention: ClassVar[bool] = False

    # D, the number of inputs: a field or a property. Type checkers see a property: they would take
    # a variable for a field of every subclass.
    if TYPE_CHECKING:

        @property
        def dim(self) -> int: ...

    else:
        dim: eqx.AbstractVar[int]

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        refuse_stacks(cls, "model.circuits")

    @abc.abstractmethod
    def kq(self) -> Float[Array, "H T D"]:
        """The key-query circuit: B_h, which tokens a query attends to."""

    @abc.abstractmethod
    def ov(self) -> Float[Array, "H I T"]:
        """The output-value circuit: a_h, what each head reads from a token into each label."""

    @property
    @abc.abstractmethod
    def heads(self) -> int:
        """H."""

    @property
    @abc.abstractmethod
    def labels(self) -> int:
        """I, the number of labels."""

    @property
    @abc.abstractmethod
    def blind(self) -> bool:
        """Whether keys read inputs alone and values labels alone, whatever the weights are."""

    @property
    def coefficient_rank(self) -> int | None:
        """The largest rank that Σ_h a_h B_h between inputs can take; None: any.

        The smallest loss that is reported is that of all matrices of this rank. Circuits that
        cannot make them all have a `coefficient_basis`; if there is none either, they may not reach
        that loss, and gradient flow needs an `end`.
        """
        return None

    @property
    def coefficient_basis(self) -> Float[Array, "K D D"] | None:
        """Matrices of which Σ_h a_h B_h between inputs is always a sum, and whose every sum it can
        take; None: it can take every matrix of its rank."""
        return None

    def embed(self) -> "AbstractCircuits":
        """The same circuits with weights for all parts, those that were missing being zero."""
        name = type(self).__name__
        raise TypeError(f"{name} is always blind: it has no weights for these parts.")


def check_parts(circuits: AbstractCircuits, keys: int, values: int) -> None:
    """Refuses weights that are neither blind nor over whole tokens: products would mix axes that do
    not belong together.

    **Arguments:**

    - `keys`, `values`: how many entries of a token they read.
    """
    dim, labels = circuits.dim, circuits.labels
    if (keys, values) not in ((dim, labels), (dim + labels, dim + labels)):
        raise ValueError(
            f"The keys of these {type(circuits).__name__} circuits read {keys} entries of a token "
            f"and the values {values}: must be {dim} and {labels} (blind), or {dim + labels} both."
        )


def pad_keys(blocks: Float[Array, "H D E"], labels: int) -> Float[Array, "H T E"]:
    """Blocks over inputs as blocks over tokens, which do not read the labels."""
    return jnp.pad(blocks, ((0, 0), (0, labels), (0, 0)))


def pad_values(blocks: Float[Array, "H I J"], dim: int) -> Float[Array, "H I T"]:
    """Blocks over labels as blocks over tokens, which do not read the inputs."""
    return jnp.pad(blocks, ((0, 0), (0, 0), (dim, 0)))

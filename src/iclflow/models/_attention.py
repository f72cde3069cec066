"""One layer of attention, linear or softmax, from the circuits of its heads."""

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InputError
from ..tasks import Sequences, check_choice, check_sequences
from ._base import AbstractModel, Form, Normaliser, attention_length
from ._circuits import AbstractCircuits, Activation
from ._diagonal import Diagonal
from ._factored import Factored
from ._linear_circuits import Merged, Separate
from ._spectral import BalancedSpectral, Spectral

C = TypeVar("C", bound=AbstractCircuits)

# The fields of attention beside its circuits, and their values.
_FIELDS = {
    "activation": get_args(Activation),
    "normaliser": get_args(Normaliser),
    "self_attention": (True, False),
}


def attention_from(name: str, init: Callable[..., C]) -> "Callable[..., Attention[C]]":
    """A function, such as `Attention.name`, that draws circuits by `init` and makes attention of
    them. Its options are those of `init`, and the fields of `Attention`.

    **Example:**

    ```pycon
    >>> make = icl.models.attention_from("merged", icl.Merged.init)
    >>> make(jr.key(0), dim=4, heads=2, activation="softmax").activation
    'softmax'
    ```
    """

    def make(*arguments: Any, **options: Any) -> "Attention[C]":
        fields = {name: options.pop(name) for name in _FIELDS if name in options}
        return Attention(init(*arguments, **options), **fields)

    make.__name__, make.__qualname__ = name, f"Attention.{name}"
    make.__doc__ = init.__doc__
    setattr(make, "__signature__", _with_fields(inspect.signature(init)))
    # Type checks in tests wrap functions; seen through, all six would be one function.
    vars(make).pop("__wrapped__", None)
    return make


def _with_fields(signature: inspect.Signature) -> inspect.Signature:
    """The signature of `init` with the fields of `Attention` as options."""
    kinds = (Activation | None, None), (Normaliser, "context"), (bool | None, None)
    fields = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in zip(_FIELDS, kinds)
    ]
    given = list(signature.parameters.values())
    # `**options` come last.
    end = len(given) - (given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    circuits = signature.return_annotation
    made = f"Attention[{getattr(circuits, '__name__', circuits)}]"
    return signature.replace(
        parameters=[*given[:end], *fields, *given[end:]], return_annotation=made
    )


class Attention(AbstractModel, Generic[C]):
    """Multi-head attention read at the label positions of the query.

    **Fields:**

    - `circuits`: the weights of the heads; see `AbstractCircuits`.
    - `activation`: `"linear"` or `"softmax"`; by default linear with `Merged` and `Separate`
      circuits, and softmax with all others, as in the papers that have them.
    - `normaliser`: what linear attention divides its sums by; see `attention_length`.
    - `self_attention`: whether the query attends to itself too; by default with `Merged` and
      `Separate` circuits alone.

    `Attention.merged`, `separate`, `factored`, `diagonal`, `spectral` and `balanced` draw circuits
    by `init` of that class, such as `Merged.init`, and make attention of them. They take the
    arguments of `init`, and fields as options.

    **Example:**

    ```pycon
    >>> model = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=1e-2)
    >>> model.heads, model.activation, model.form, model.coefficients().shape
    (4, 'linear', 'bilinear', (4, 4))
    >>> sequences = icl.isotropic(dim=4, context=31).sample(jr.key(1), 5)
    >>> model.predict(sequences).shape
    (5, 1)
    >>> softmax = icl.Attention(icl.Merged.init(jr.key(0), 4, 2), activation="softmax")
    >>> softmax.kq().shape, softmax.ov().shape
    ((2, 5, 4), (2, 1, 5))
    ```
    """

    circuits: C
    activation: Activation = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True)
    self_attention: bool = eqx.field(static=True)

    def __init__(
        self,
        circuits: C,
        activation: Activation | None = None,
        normaliser: Normaliser = "context",
        self_attention: bool | None = None,
    ):
        if not isinstance(circuits, AbstractCircuits):
            raise InputError(
                "circuits", circuits, "must be circuits, such as `Merged.init(key, dim, heads)`"
            )
        self.circuits = circuits
        self.activation = circuits.activation if activation is None else activation
        self.normaliser = normaliser
        self.self_attention = circuits.self_attention if self_attention is None else self_attention
        check_fields(self)

    merged = staticmethod(attention_from("merged", Merged.init))
    separate = staticmethod(attention_from("separate", Separate.init))
    factored = staticmethod(attention_from("factored", Factored.init))
    diagonal = staticmethod(attention_from("diagonal", Diagonal.init))
    spectral = staticmethod(attention_from("spectral", Spectral.init))
    balanced = staticmethod(attention_from("balanced", BalancedSpectral.init))

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.circuits.dim

    @property
    def heads(self) -> int:
        """H."""
        return self.circuits.heads

    @property
    def labels(self) -> int:
        return self.circuits.labels

    @property
    def blind(self) -> bool:
        """Whether keys read inputs alone and values labels alone: attention weights then do not
        depend on the labels."""
        return self.circuits.blind

    @property
    def form(self) -> Form:
        # Several labels could be bilinear too, but risks in closed form exist for one label alone.
        if self.activation != "linear" or self.labels > 1:
            return "general"
        return "bilinear" if self.blind else "cubic"

    @property
    def coefficient_rank(self) -> int | None:
        return self.circuits.coefficient_rank if self.form == "bilinear" else None

    @property
    def coefficient_basis(self) -> Float[Array, "K D D"] | None:
        return self.circuits.coefficient_basis if self.form == "bilinear" else None

    def kq(self) -> Float[Array, "H T D"]:
        """The key-query circuit: which tokens a query attends to."""
        return self.circuits.kq()

    def ov(self) -> Float[Array, "H I T"]:
        """The output-value circuit: what each head reads from a token into each label."""
        return self.circuits.ov()

    def coefficients(self) -> Array:
        if self.form == "general":
            return super().coefficients()
        ov, kq = self.ov()[:, 0], self.kq()
        if self.blind:
            # Of blind circuits only the label is read, and only inputs are attended to.
            return jnp.einsum("h,hde->de", ov[:, -1], kq[:, :-1])
        return jnp.einsum("ha,hbc->abc", ov, kq)

    def embed(self) -> "Attention":
        """The same function with weights, all zero, for the parts that blind circuits lack."""
        return eqx.tree_at(lambda model: model.circuits, self, self.circuits.embed())

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        check_sequences(sequences)
        if sequences.labels != self.labels:
            raise ValueError(
                f"The sequences have {sequences.labels} labels: must be {self.labels}, as many as "
                "the model predicts."
            )
        length = attention_length(sequences.length, self.normaliser)
        if self.form == "bilinear":
            # The same sums in another order: cheaper, as no tokens and no heads are formed.
            beta = jnp.einsum("...nd,...ni->...id", sequences.x, sequences.y)
            beta = beta / length[..., None, None]
            return jnp.einsum("...id,de,...e->...i", beta, self.coefficients(), sequences.x_query)
        tokens = attended_tokens(sequences, self.self_attention)
        values = jnp.einsum("...na,hia->...hni", tokens, self.ov())
        scores = jnp.einsum("...na,hab,...b->...hn", tokens, self.kq(), sequences.x_query)
        if self.activation == "softmax":
            weights = softmax_weights(scores, sequences, self.self_attention)
        else:
            weights = scores / length[..., None, None]
        return jnp.einsum("...hn,...hni->...i", weights, values)


def check_fields(model: Any) -> None:
    """Refuses unknown settings of one or of several layers of attention."""
    for name, allowed in _FIELDS.items():
        check_choice(name, getattr(model, name), allowed)


def attended_tokens(sequences: Sequences, self_attention: bool) -> Float[Array, "*batch M T"]:
    """The tokens that a query attends to: (x; y) of the context, then (x_q; 0) with
    `self_attention`."""
    tokens = jnp.concatenate([sequences.x, sequences.y], -1)
    if not self_attention:
        return tokens
    # The label of the query is what is to be predicted: its token has zeros there.
    widths = [(0, 0)] * (sequences.x_query.ndim - 1) + [(0, sequences.labels)]
    query = jnp.pad(sequences.x_query, widths)
    return jnp.concatenate([tokens, query[..., None, :]], -2)


def softmax_weights(
    scores: Float[Array, "*batch H N"], sequences: Sequences, self_attention: bool
) -> Float[Array, "*batch H N"]:
    """The softmax of scores over the tokens that a query attends to; padding gets no weight."""
    # Scores of padding are 0, not −∞: without a mask it would get weight.
    mask = sequences.mask()
    if self_attention:
        mask = jnp.concatenate([mask, jnp.ones_like(mask[..., :1])], -1)
    return jax.nn.softmax(scores, where=mask[..., None, :], axis=-1)

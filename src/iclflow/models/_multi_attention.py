"""Attention with several labels a token, one output for each (multi-task regression)."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..precision import as_float
from ..tasks import MultiSequences, check_key
from ._attention import Activation, attended_tokens, check_fields, softmax_weights
from ._base import AbstractModel, Normaliser, attention_length
from ._factored import factored_kq
from ._initialise import (
    FULL_SCHEMES,
    STRUCTURED_SCHEMES,
    FactoredScheme,
    FullScheme,
    StructuredScheme,
    check_labels,
    check_sizes,
    factored_weights,
    random_blocks,
    start_signs,
)
from ._structured import as_weights, check_structured, diagonal_blocks


class AbstractMultiAttention(AbstractModel[MultiSequences]):
    """Multi-head attention read at the I label positions of the query.

    Head h has a value matrix a_h (I, T) over tokens z = (x; y), T = D + I, and a key-query block
    B_h (T, D) from query inputs to tokens; the query token is (x_q; 0).
    """

    activation: eqx.AbstractVar[Activation]
    normaliser: eqx.AbstractVar[Normaliser]
    self_attention: eqx.AbstractVar[bool]

    def __check_init__(self):
        check_fields(self.activation, self.normaliser, self.self_attention)

    @property
    def labels(self) -> int:
        """I, the number of labels."""
        return eqx.filter_eval_shape(self.ov).shape[-2]

    @abc.abstractmethod
    def ov(self) -> Float[Array, "H I T"]:
        """The output-value circuit: what each head reads from a token into each label."""

    @abc.abstractmethod
    def kq(self) -> Float[Array, "H T D"]:
        """The key-query circuit: which tokens a query attends to."""

    @property
    def label_blind(self) -> bool:
        """Whether the attention weights are the same whatever the labels are."""
        return False

    def predict(self, sequences: MultiSequences) -> Float[Array, "*batch I"]:
        tokens = attended_tokens(sequences, self.self_attention)
        values = jnp.einsum("...na,hia->...hni", tokens, self.ov())
        scores = jnp.einsum("...na,hab,...b->...hn", tokens, self.kq(), sequences.x_query)
        if self.activation == "softmax":
            weights = softmax_weights(scores, sequences, self.self_attention)
        else:
            length = attention_length(sequences.length, self.normaliser)
            weights = scores / length[..., None, None]
        return jnp.einsum("...hn,...hni->...i", weights, values)


class MultiMergedKQ(AbstractMultiAttention):
    """One merged key-query and one merged output-value matrix a head."""

    value: Float[Array, "H I T"]
    key_query: Float[Array, "H T D"]
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        labels: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: FullScheme = "gaussian",
        **options,
    ) -> "MultiMergedKQ":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `labels`: I.
        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"default"`: U(−s/√T, s/√T);
          `"small_identity"`: key-query s·I on the inputs, output-value s·I on the labels;
          `"opposite"`: the same, with both signs changed in every second head.
        """
        check_key(key)
        check_sizes(dim, heads, scale, scheme, schemes=FULL_SCHEMES)
        check_labels(labels)
        size, token = as_float(scale), dim + labels
        if scheme in ("gaussian", "default"):
            shapes = (heads, labels, token), (heads, token, dim)
            value, block = random_blocks(key, shapes, size, scheme, (token, token))
        else:
            signs = size * start_signs(heads, scheme, size.dtype)[:, None, None]
            value = signs * jnp.eye(labels, token, dim, dtype=size.dtype)
            block = signs * jnp.eye(token, dim, dtype=size.dtype)
        return MultiMergedKQ(value=value, key_query=block, **options)

    @property
    def labels(self) -> int:
        return self.value.shape[-2]

    def ov(self) -> Float[Array, "H I T"]:
        return self.value

    def kq(self) -> Float[Array, "H T D"]:
        return self.key_query


class MultiFactored(AbstractMultiAttention):
    """Separate Q, K, V and O: key-query K_hᵀQ_h/√E and output-value O_hV_h."""

    K: Float[Array, "H E T"]
    Q: Float[Array, "H E T"]
    V: Float[Array, "H E T"]
    O: Float[Array, "H I E"]  # noqa: E741
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        labels: int,
        heads: int,
        width: int | None = None,
        scale: ScalarLike | None = None,
        scheme: FactoredScheme = "default",
        **options,
    ) -> "MultiFactored":
        """As `FactoredAttention.init`, with tokens of D + I entries and I rows of O."""
        K, Q, V, O = factored_weights(key, dim, labels, heads, width, scale, scheme)  # noqa: E741
        return MultiFactored(K=K, Q=Q, V=V, O=O, **options)

    @property
    def labels(self) -> int:
        return self.O.shape[-2]

    def ov(self) -> Float[Array, "H I T"]:
        return jnp.einsum("hie,heb->hib", self.O, self.V)

    def kq(self) -> Float[Array, "H T D"]:
        return factored_kq(self.K, self.Q, self.K.shape[2] - self.O.shape[1])


class MultiStructured(AbstractMultiAttention):
    """Key-query diag(ω_h) and label i read with weight μ_hi: a few numbers a head."""

    omega: Float[Array, " H"] | Float[Array, "H D"] = eqx.field(converter=as_weights)
    mu: Float[Array, "H I"] = eqx.field(converter=as_weights)
    dim: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_structured(self.omega, self.mu, self.dim, axes=2)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        labels: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: StructuredScheme = "gaussian",
        per_coordinate: bool = True,
        **options,
    ) -> "MultiStructured":
        """As `StructuredAttention.init`; in the schemes that are not random all μ_hi are equal."""
        check_key(key)
        check_sizes(dim, heads, scale, scheme, schemes=STRUCTURED_SCHEMES)
        check_labels(labels)
        size = as_float(scale)
        shape = (heads, dim) if per_coordinate else (heads,)
        if scheme == "gaussian":
            omega, mu = random_blocks(key, (shape, (heads, labels)), size, scheme, (dim, dim))
        else:
            signs = size * start_signs(heads, scheme, size.dtype)
            mu = jnp.broadcast_to(signs[:, None], (heads, labels))
            omega = jnp.broadcast_to(signs[:, None], shape) if per_coordinate else signs
        return MultiStructured(omega=omega, mu=mu, dim=dim, **options)

    @property
    def labels(self) -> int:
        return self.mu.shape[-1]

    @property
    def label_blind(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H I T"]:
        blocks = self.mu[:, :, None] * jnp.eye(self.mu.shape[1], dtype=self.mu.dtype)
        return jnp.pad(blocks, ((0, 0), (0, 0), (self.dim, 0)))

    def kq(self) -> Float[Array, "H T D"]:
        blocks = diagonal_blocks(self.omega, self.dim)
        return jnp.pad(blocks, ((0, 0), (0, self.mu.shape[1]), (0, 0)))

"""The section `[model]`: which network, how large, and how it starts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ._base import BelowOne, Count, Flag, Settings

Scale = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e6)]
Imbalance = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e6, le=1e6)]
# How merged and factored softmax attention can start.
Scheme = Literal["gaussian", "default", "small_identity", "opposite"]


class ModelBase(Settings):
    """Settings that all kinds of models share.

    A new kind is a subclass in a file `_model_NAME.py` of this folder, with its `kind`, its
    `weight_count`, the properties below that hold for it, and `builds`.
    """

    # The circuits of `iclflow.models` whose `init` takes these settings, where attention is made of
    # them without preparation.
    builds: ClassVar[str] = ""

    heads: Count = Field(description="Number of heads.")
    normaliser: Literal["context", "tokens", "none"] = Field(
        default="context", description="What linear attention divides its sums by: N, N + 1 or 1."
    )

    @property
    def widest_rank(self) -> int:
        """The rank of the heads; 1 for models without one."""
        return getattr(self, "rank", 1)

    @property
    def layers(self) -> int:
        """The layers of attention between all tokens; 0 if only the query attends."""
        return getattr(self, "depth", 0)

    @property
    def steps(self) -> int:
        """The layers of a stack of linear attention that is reduced to steps of gradient descent;
        0 for other models."""
        return 0

    @property
    def multi(self) -> bool:
        """Whether the model has one output for each of several labels."""
        return getattr(self, "kind").startswith("multi_")

    @property
    def softmax(self) -> bool:
        """Whether attention is softmax; otherwise it is linear."""
        return getattr(self, "activation", "linear") == "softmax"

    @property
    def context_alone(self) -> bool:
        """Whether attention is softmax over the context, without the query itself."""
        return self.softmax and not getattr(self, "self_attention")

    @property
    def bilinear(self) -> bool:
        """Whether the model is reduced linear attention, or a network equivalent to it."""
        return False

    @property
    def cubic(self) -> bool:
        """Whether the model is linear attention with all its blocks."""
        return False

    @property
    def structured(self) -> bool:
        """Whether the model is softmax attention with diagonal key-query matrices."""
        return False

    @property
    def label_blind(self) -> bool:
        """Whether the model is softmax over the context alone, with weights that ignore the
        labels."""
        return False

    @property
    def spectral(self) -> bool:
        """Whether the weights are singular values of decomposable heads."""
        return False

    def weight_count(self, dim: int, labels: int) -> int:
        """The number of trained weights on inputs of dimension `dim`."""
        raise NotImplementedError


# Linear attention by default -----------------------------------------------------------------


class _Reduced(ModelBase):
    """Settings of linear attention and of the networks that it is equivalent to."""

    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Literal["gaussian", "balanced", "identity", "paper"] = Field(
        default="gaussian", description="How the initial weights are drawn."
    )

    @property
    def bilinear(self) -> bool:
        return True

    def weight_count(self, dim: int, labels: int) -> int:
        rank: int | None = getattr(self, "rank", None)
        return self.heads * (1 + (dim**2 if rank is None else 2 * dim * rank))


class _LinearAttention(_Reduced):
    """Settings that merged and separate attention share."""

    form: Literal["reduced", "full"] = Field(
        default="reduced", description="Without or with the blocks that theory sets to zero."
    )
    activation: Literal["linear", "softmax"] = Field(
        default="linear", description="Kind of attention."
    )
    self_attention: Flag = Field(
        default=True, description="Whether the query attends to itself too."
    )

    @property
    def label_blind(self) -> bool:
        return self.context_alone and self.form == "reduced"

    @property
    def bilinear(self) -> bool:
        return self.form == "reduced" and self.activation == "linear"

    @property
    def cubic(self) -> bool:
        return self.form == "full" and self.activation == "linear"

    def weight_count(self, dim: int, labels: int) -> int:
        reduced = super().weight_count(dim, labels)
        # The blocks that theory sets to zero: a row and a column of each merged matrix.
        rank: int = getattr(self, "rank", dim)
        return reduced if self.form == "reduced" else reduced + self.heads * (dim + rank)


class MergedModel(_LinearAttention):
    """Attention with one merged key-query matrix per head."""

    kind: Literal["merged"] = "merged"
    scheme: Literal[
        "gaussian", "balanced", "identity", "paper", "default", "small_identity", "opposite"
    ] = Field(default="gaussian", description="How the initial weights are drawn.")


class SeparateModel(_LinearAttention):
    """Attention with separate keys and queries of low rank."""

    kind: Literal["separate"] = "separate"
    rank: Count = Field(default=1, description="Rank of each head.")


class TwoLayerModel(_Reduced):
    """The two-layer linear network that merged attention is equivalent to."""

    kind: Literal["two_layer"] = "two_layer"


class ConvolutionalModel(_Reduced):
    """The convolutional linear networks that separate attention is equivalent to."""

    kind: Literal["convolutional"] = "convolutional"
    rank: Count = Field(default=1, description="Channels of each network, the rank of its head.")


# Softmax attention by default ----------------------------------------------------------------


class _Softmax(ModelBase):
    """Settings of attention that is softmax by default."""

    activation: Literal["linear", "softmax"] = Field(
        default="softmax", description="Kind of attention."
    )
    self_attention: Flag = Field(
        default=False, description="Whether the query attends to itself too."
    )


class _Structured(_Softmax):
    """Settings of attention with a few numbers per head."""

    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Literal["gaussian", "small_identity", "opposite"] = Field(
        default="gaussian", description="How the initial weights are chosen."
    )

    @property
    def structured(self) -> bool:
        return self.context_alone

    @property
    def label_blind(self) -> bool:
        return self.context_alone

    def weight_count(self, dim: int, labels: int) -> int:
        return self.heads * (labels + (dim if getattr(self, "per_coordinate") else 1))


class StructuredModel(_Structured):
    """Attention with a few numbers per head: key-query diag(ω), output-value μ."""

    kind: Literal["structured"] = "structured"
    per_coordinate: Flag = Field(
        default=False, description="Whether a head has one ω for each coordinate."
    )

    @property
    def bilinear(self) -> bool:
        return not self.softmax


class _Factored(_Softmax):
    """Settings of attention with separate Q, K, V and O."""

    width: Count | None = Field(
        default=None, description="Width of a head (default: the size of a token)."
    )
    scale: Scale | None = Field(
        default=None,
        description='Size of the initial weights (default: 1 for the scheme "default", else 0.01).',
    )
    scheme: Scheme = Field(default="default", description="How the initial weights are drawn.")

    def weight_count(self, dim: int, labels: int) -> int:
        token = dim + labels
        return self.heads * (self.width or token) * (3 * token + labels)


class FactoredModel(_Factored):
    """Attention with separate Q, K, V and O of any width."""

    kind: Literal["factored"] = "factored"

    @property
    def cubic(self) -> bool:
        return not self.softmax


class StackModel(_Softmax):
    """Several layers of attention between all tokens, with residual connections."""

    kind: Literal["stack"] = "stack"
    depth: Annotated[int, Field(strict=True, ge=1, le=256)] = Field(
        default=2, description="Number of layers."
    )
    causal: Flag = Field(
        default=False, description="Whether tokens attend to earlier ones and themselves alone."
    )
    tied: Flag = Field(default=False, description="Whether all layers share their weights.")
    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Scheme = Field(default="gaussian", description="How the initial weights are drawn.")

    def weight_count(self, dim: int, labels: int) -> int:
        return (1 if self.tied else self.depth) * self.heads * 2 * (dim + 1) ** 2


# Softmax attention with several labels -------------------------------------------------------


class MultiMergedModel(_Softmax):
    """Attention with several labels, and merged key-query and output-value matrices."""

    kind: Literal["multi_merged"] = "multi_merged"
    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Scheme = Field(default="gaussian", description="How the initial weights are drawn.")

    def weight_count(self, dim: int, labels: int) -> int:
        return self.heads * (dim + labels) ** 2


class MultiFactoredModel(_Factored):
    """Attention with several labels, and separate Q, K, V and O of any width."""

    kind: Literal["multi_factored"] = "multi_factored"


class MultiBlindModel(_Factored):
    """The same with keys and queries that read inputs alone, and values that read labels alone."""

    kind: Literal["multi_blind"] = "multi_blind"

    @property
    def label_blind(self) -> bool:
        return self.context_alone

    def weight_count(self, dim: int, labels: int) -> int:
        token = dim + labels
        return self.heads * (self.width or token) * 2 * token


class MultiStructuredModel(_Structured):
    """Attention with several labels, and a few numbers per head: ω, and one μ per label."""

    kind: Literal["multi_structured"] = "multi_structured"
    per_coordinate: Flag = Field(
        default=True, description="Whether a head has one ω for each coordinate."
    )


class MultiSpectralModel(_Softmax):
    """Decomposable attention: every head is a number ω on each block of coordinates and a number μ
    on each label. All choices of `weights` start at the same heads."""

    kind: Literal["multi_spectral"] = "multi_spectral"
    weights: Literal["balanced", "factors", "matrices", "tokens"] = Field(
        default="balanced",
        description="What is trained: one number for each ω and μ, their two factors, the matrices "
        "K, Q, V and O, or these with the parts that are zero.",
    )
    width: Count | None = Field(
        default=None, description="Width of a head (default: the number of inputs)."
    )
    scheme: Literal["random", "distinct"] = Field(
        default="random",
        description="Which heads start ahead: every ω is drawn, or head h is ahead on task h.",
    )
    omega: Scale = Field(default=0.01, description="The largest ω at the start.")
    spread: BelowOne = Field(
        default=0.2, description="How far below the largest, as a share, an ω may start."
    )
    mu: Scale = Field(default=0.2, description="Every μ at the start.")
    key_imbalance: Imbalance = Field(default=0.0, description="k² − q² of every ω.")
    value_imbalance: Imbalance = Field(default=0.0, description="o² − v² of every μ.")

    @property
    def label_blind(self) -> bool:
        return self.context_alone and self.weights != "tokens"

    @property
    def spectral(self) -> bool:
        return self.label_blind and self.weights in ("balanced", "factors")

    def weight_count(self, dim: int, labels: int) -> int:
        width = dim if self.width is None else self.width
        rows = {"balanced": 2 * labels, "factors": 4 * labels}
        rows |= {"matrices": 2 * width * (dim + labels)}
        return self.heads * rows.get(self.weights, width * (3 * (dim + labels) + labels))


ModelSettings = (
    MergedModel
    | SeparateModel
    | TwoLayerModel
    | ConvolutionalModel
    | StructuredModel
    | FactoredModel
    | MultiMergedModel
    | MultiFactoredModel
    | MultiStructuredModel
    | MultiBlindModel
    | MultiSpectralModel
    | StackModel
)

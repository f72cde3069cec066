"""The section `[model]`: which network, how large, and how it starts."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Flag, Settings


class _Heads(Settings):
    """What every kind of model has."""

    heads: Count = Field(description="Number of heads.")
    scale: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e6)] = Field(
        default=1e-2, description="Size of the initial weights."
    )
    scheme: Literal["gaussian", "balanced", "identity", "paper"] = Field(
        default="gaussian", description="How the initial weights are drawn."
    )
    normaliser: Literal["context", "tokens", "none"] = Field(
        default="context", description="What linear attention divides its sums by: N, N + 1 or 1."
    )

    @property
    def widest_rank(self) -> int:
        """The rank of the heads; 1 where there is no such thing."""
        return 1

    @property
    def bilinear(self) -> bool:
        """Whether the model is reduced linear attention, or a network equivalent to it."""
        return True

    @property
    def softmax(self) -> bool:
        return False

    def weight_count(self, dim: int) -> int:
        """The number of trained weights on inputs of dimension `dim`."""
        raise NotImplementedError


class _Attention(_Heads):
    """What both kinds of attention have."""

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
    def bilinear(self) -> bool:
        return self.form == "reduced" and self.activation == "linear"

    @property
    def softmax(self) -> bool:
        return self.activation == "softmax"


class MergedModel(_Attention):
    """Attention with one merged key-query matrix per head."""

    kind: Literal["merged"] = "merged"

    def weight_count(self, dim: int) -> int:
        reduced = self.form == "reduced"
        return self.heads * (1 + dim**2 if reduced else (dim + 1) ** 2)


class SeparateModel(_Attention):
    """Attention with separate keys and queries of low rank."""

    kind: Literal["separate"] = "separate"
    rank: Count = Field(default=1, description="Rank of each head.")

    @property
    def widest_rank(self) -> int:
        return self.rank

    def weight_count(self, dim: int) -> int:
        extra = 0 if self.form == "reduced" else dim + self.rank
        return self.heads * (1 + 2 * dim * self.rank + extra)


class TwoLayerModel(_Heads):
    """The two-layer linear network that merged attention is equivalent to."""

    kind: Literal["two_layer"] = "two_layer"

    def weight_count(self, dim: int) -> int:
        return self.heads * (1 + dim**2)


class ConvolutionalModel(_Heads):
    """The convolutional linear networks that separate attention is equivalent to."""

    kind: Literal["convolutional"] = "convolutional"
    rank: Count = Field(default=1, description="Channels of each network, the rank of its head.")

    @property
    def widest_rank(self) -> int:
        return self.rank

    def weight_count(self, dim: int) -> int:
        return self.heads * (1 + 2 * dim * self.rank)


ModelSettings = MergedModel | SeparateModel | TwoLayerModel | ConvolutionalModel

"""The section `[model]`: which network, how large, and how it starts."""

from typing import Literal

from pydantic import Field

from ._base import Count, Flag
from ._model_base import ModelBase, Scale
from ._multi_model import (
    MultiBlindModel,
    MultiFactoredModel,
    MultiMergedModel,
    MultiSpectralModel,
    MultiStructuredModel,
)
from ._softmax_model import FactoredModel, StackModel, StructuredModel


class _Reduced(ModelBase):
    """What linear attention and the networks that it is equivalent to have."""

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


class _Attention(_Reduced):
    """What merged and separate attention have."""

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


class MergedModel(_Attention):
    """Attention with one merged key-query matrix per head."""

    kind: Literal["merged"] = "merged"
    scheme: Literal[
        "gaussian", "balanced", "identity", "paper", "default", "small_identity", "opposite"
    ] = Field(default="gaussian", description="How the initial weights are drawn.")


class SeparateModel(_Attention):
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

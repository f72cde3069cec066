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
    def softmax(self) -> bool:
        return self.activation == "softmax"

    @property
    def label_blind(self) -> bool:
        return self.softmax and self.form == "reduced" and not self.self_attention

    @property
    def bilinear(self) -> bool:
        return self.form == "reduced" and self.activation == "linear"

    @property
    def cubic(self) -> bool:
        return self.form == "full" and self.activation == "linear"


class MergedModel(_Attention):
    """Attention with one merged key-query matrix per head."""

    kind: Literal["merged"] = "merged"
    scheme: Literal[
        "gaussian", "balanced", "identity", "paper", "default", "small_identity", "opposite"
    ] = Field(default="gaussian", description="How the initial weights are drawn.")

    def weight_count(self, dim: int, labels: int) -> int:
        reduced = self.form == "reduced"
        return self.heads * (1 + dim**2 if reduced else (dim + 1) ** 2)


class SeparateModel(_Attention):
    """Attention with separate keys and queries of low rank."""

    kind: Literal["separate"] = "separate"
    rank: Count = Field(default=1, description="Rank of each head.")

    @property
    def widest_rank(self) -> int:
        return self.rank

    def weight_count(self, dim: int, labels: int) -> int:
        extra = 0 if self.form == "reduced" else dim + self.rank
        return self.heads * (1 + 2 * dim * self.rank + extra)


class TwoLayerModel(_Reduced):
    """The two-layer linear network that merged attention is equivalent to."""

    kind: Literal["two_layer"] = "two_layer"

    def weight_count(self, dim: int, labels: int) -> int:
        return self.heads * (1 + dim**2)


class ConvolutionalModel(_Reduced):
    """The convolutional linear networks that separate attention is equivalent to."""

    kind: Literal["convolutional"] = "convolutional"
    rank: Count = Field(default=1, description="Channels of each network, the rank of its head.")

    @property
    def widest_rank(self) -> int:
        return self.rank

    def weight_count(self, dim: int, labels: int) -> int:
        return self.heads * (1 + 2 * dim * self.rank)


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

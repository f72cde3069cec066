"""The kinds of `[model]` that are softmax attention by default."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Flag
from ._model_base import ModelBase, Scale


class SoftmaxBase(ModelBase):
    """What the kinds of attention have that are softmax by default."""

    activation: Literal["linear", "softmax"] = Field(
        default="softmax", description="Kind of attention."
    )
    self_attention: Flag = Field(
        default=False, description="Whether the query attends to itself too."
    )


class StructuredBase(SoftmaxBase):
    """What attention with a few numbers per head has."""

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


class StructuredModel(StructuredBase):
    """Attention with a few numbers per head: key-query diag(ω), output-value μ."""

    kind: Literal["structured"] = "structured"
    per_coordinate: Flag = Field(
        default=False, description="Whether a head has one ω for each coordinate."
    )

    @property
    def bilinear(self) -> bool:
        return not self.softmax


class FactoredBase(SoftmaxBase):
    """What attention with separate Q, K, V and O has."""

    width: Count | None = Field(
        default=None, description="Width of a head (default: the size of a token)."
    )
    scale: Scale | None = Field(
        default=None,
        description='Size of the initial weights (default: 1 for the scheme "default", else 0.01).',
    )
    scheme: Literal["gaussian", "default", "small_identity", "opposite"] = Field(
        default="default", description="How the initial weights are drawn."
    )

    def weight_count(self, dim: int, labels: int) -> int:
        token = dim + labels
        return self.heads * (self.width or token) * (3 * token + labels)


class FactoredModel(FactoredBase):
    """Attention with separate Q, K, V and O of any width."""

    kind: Literal["factored"] = "factored"

    @property
    def cubic(self) -> bool:
        return not self.softmax


class StackModel(SoftmaxBase):
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
    scheme: Literal["gaussian", "default", "small_identity", "opposite"] = Field(
        default="gaussian", description="How the initial weights are drawn."
    )

    def weight_count(self, dim: int, labels: int) -> int:
        return (1 if self.tied else self.depth) * self.heads * 2 * (dim + 1) ** 2

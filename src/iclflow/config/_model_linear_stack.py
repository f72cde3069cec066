"""Stacks and loops of linear attention."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Flag
from ._model import Imbalance, ModelBase, Scale


class LinearStackModel(ModelBase):
    """Several layers of linear attention with keys and queries of inputs alone: steps of
    preconditioned gradient descent in context (arXiv 2306.00297)."""

    kind: Literal["linear_stack"] = "linear_stack"
    heads: Count = Field(
        default=1, description="Number of heads of a layer; 1 unless they are merged or separate."
    )
    weights: Literal["scalar", "diagonal", "full", "merged", "separate"] = Field(
        default="full",
        description="What is trained in a layer: one number, a diagonal or a full matrix, or heads "
        "with merged or with separate keys and queries.",
    )
    rank: Count = Field(default=1, description="Rank of each head, if they are separate.")
    depth: Annotated[int, Field(strict=True, ge=1, le=256)] = Field(
        default=2, description="Number of layers, the steps of gradient descent."
    )
    tied: Flag = Field(default=False, description="Whether all layers share their weights: a loop.")
    moving: Flag = Field(
        default=False,
        description="Whether layers move the inputs too (GD++); not with merged or separate heads.",
    )
    self_attention: Flag = Field(
        default=False, description="Whether the query is a key too, as one more pair (x_q, 0)."
    )
    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Literal["gaussian", "small_identity", "balanced", "identity", "paper"] = Field(
        default="gaussian", description="How the initial weights are drawn."
    )
    spread: Imbalance = Field(
        default=0.0,
        description="How much larger the initial weights of the first layer are, and how much "
        "smaller those of the last; others lie between. Without effect on gaussian matrices.",
    )

    @property
    def layers(self) -> int:
        return 0  # scores between tokens are never formed

    @property
    def steps(self) -> int:
        return self.depth

    @property
    def matrix_shape(self) -> Literal["scalar", "diagonal", "full"]:
        """What the matrix of a layer can be."""
        if self.weights == "scalar" or self.weights == "diagonal":
            return self.weights
        return "full"

    @property
    def by_heads(self) -> bool:
        """Whether matrices are sums over heads."""
        return self.weights in ("merged", "separate")

    def weight_count(self, dim: int, labels: int) -> int:
        each = {
            "scalar": 1,
            "diagonal": dim,
            "full": dim**2,
            "merged": self.heads * (1 + dim**2),
            "separate": self.heads * (1 + 2 * dim * self.rank),
        }
        return (1 if self.tied else self.depth) * (1 + self.moving) * each[self.weights]

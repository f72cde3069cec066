"""The kinds of `[model]` that have one output for each of several labels."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import BelowOne, Count, Flag
from ._model_base import Scale
from ._softmax_model import FactoredBase, SoftmaxBase, StructuredBase


class MultiMergedModel(SoftmaxBase):
    """Attention with several labels, and merged key-query and output-value matrices."""

    kind: Literal["multi_merged"] = "multi_merged"
    scale: Scale = Field(default=1e-2, description="Size of the initial weights.")
    scheme: Literal["gaussian", "default", "small_identity", "opposite"] = Field(
        default="gaussian", description="How the initial weights are drawn."
    )

    def weight_count(self, dim: int, labels: int) -> int:
        return self.heads * (dim + labels) ** 2


class MultiFactoredModel(FactoredBase):
    """Attention with several labels, and separate Q, K, V and O of any width."""

    kind: Literal["multi_factored"] = "multi_factored"


class MultiBlindModel(FactoredBase):
    """The same with keys and queries that read inputs alone, and values that read labels alone."""

    kind: Literal["multi_blind"] = "multi_blind"

    @property
    def label_blind(self) -> bool:
        return self.context_alone

    def weight_count(self, dim: int, labels: int) -> int:
        token = dim + labels
        return self.heads * (self.width or token) * 2 * token


class MultiStructuredModel(StructuredBase):
    """Attention with several labels, and a few numbers per head: ω, and one μ per label."""

    kind: Literal["multi_structured"] = "multi_structured"
    per_coordinate: Flag = Field(
        default=True, description="Whether a head has one ω for each coordinate."
    )


Imbalance = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e6, le=1e6)]


class MultiSpectralModel(SoftmaxBase):
    """Decomposable attention: every head is a number ω on each block of coordinates and a number μ
    on each label. The start is the same whatever the weights are."""

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

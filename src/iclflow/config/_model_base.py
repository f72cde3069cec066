"""What every kind of `[model]` has."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Settings

Scale = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e6)]


class ModelBase(Settings):
    """What every kind of model has."""

    heads: Count = Field(description="Number of heads.")
    normaliser: Literal["context", "tokens", "none"] = Field(
        default="context", description="What linear attention divides its sums by: N, N + 1 or 1."
    )

    @property
    def widest_rank(self) -> int:
        """The rank of the heads; 1 where there is no such thing."""
        return getattr(self, "rank", 1)

    @property
    def layers(self) -> int:
        """How many layers of attention between all tokens there are; 0 if the query alone asks."""
        return getattr(self, "depth", 0)

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
        """Whether the model is softmax over the context alone, whatever the labels are."""
        return False

    @property
    def spectral(self) -> bool:
        """Whether the weights are singular values of decomposable heads."""
        return False

    def weight_count(self, dim: int, labels: int) -> int:
        """The number of trained weights on inputs of dimension `dim`."""
        raise NotImplementedError

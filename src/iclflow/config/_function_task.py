"""The kinds of `[task]` that are families of random functions on white inputs."""

import math
from typing import Annotated, Literal

from pydantic import Field

from ..limits import MAX_SUPPORTS
from ._base import Count, NonNegative
from ._task_base import TaskBase


class _Function(TaskBase):
    """What all families of random functions on white inputs have."""

    inputs: Count = Field(description="Number of input coordinates.")
    noise: NonNegative = Field(default=0.0, description="Variance of the label noise.")

    @property
    def dim(self) -> int:
        return self.inputs


class QuadraticTask(_Function):
    """Random quadratic functions without cross terms."""

    kind: Literal["quadratic"] = "quadratic"
    variance: NonNegative = Field(default=1.0, description="Variance of the noiseless label.")


class SparseTask(_Function):
    """Linear regression on a few coordinates, other ones in every sequence."""

    kind: Literal["sparse"] = "sparse"
    variance: NonNegative = Field(default=1.0, description="Variance of the noiseless label.")
    sparsity: Count = Field(default=3, description="How many coordinates matter.")

    @property
    def bayes_known(self) -> bool:
        few = min(self.sparsity, self.inputs - self.sparsity)
        # A dozen coordinates out of as many others are beyond it: the number need not be found.
        return few < 12 and math.comb(self.inputs, few) <= MAX_SUPPORTS


class TwoLayerReLUTask(_Function):
    """Random two-layer ReLU networks."""

    kind: Literal["two_layer_relu"] = "two_layer_relu"
    variance: NonNegative = Field(default=1.0, description="Variance of the noiseless label.")
    hidden: Count = Field(default=100, description="Hidden units.")

    @property
    def bayes_known(self) -> bool:
        return False

    @property
    def function_size(self) -> int:
        return self.hidden * (self.inputs + self.longest_context)


class DecisionTreeTask(_Function):
    """Random decision trees."""

    kind: Literal["decision_tree"] = "decision_tree"
    variance: NonNegative = Field(default=1.0, description="Variance of the noiseless label.")
    depth: Annotated[int, Field(strict=True, ge=1, le=12)] = Field(
        default=4, description="Depth of the tree."
    )

    @property
    def bayes_known(self) -> bool:
        return False

    @property
    def function_size(self) -> int:
        return 2 ** (self.depth + 1)


class HermiteTask(_Function):
    """A linear function plus one of a higher Hermite degree."""

    kind: Literal["hermite"] = "hermite"
    degree: Annotated[int, Field(strict=True, ge=2, le=12)] = Field(
        default=2, description="Degree of the nonlinear part."
    )
    variance: NonNegative = Field(default=0.5, description="Variance of the nonlinear part.")
    signal: NonNegative = Field(default=1.0, description="Variance of the linear part.")

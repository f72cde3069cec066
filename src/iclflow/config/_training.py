"""The sections `[risk]`, `[flow]` and `[save]`: what is minimised, how, and what is kept."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import BelowOne, Count, NonNegative, Positive, Settings, Tolerance

Several = Annotated[int, Field(strict=True, ge=2, le=10**9)]


class BestRisk(Settings):
    """The exact risk where there is one, else the sampled one."""

    kind: Literal["best"] = "best"


class ExactRisk(Settings):
    """The population risk, without any randomness."""

    kind: Literal["exact"] = "exact"


class LargeContextRisk(Settings):
    """The approximation of the papers for long contexts and many dimensions."""

    kind: Literal["large_context"] = "large_context"


class FirstOrderRisk(Settings):
    """The risk up to first order in 1/N, exact in the dimension."""

    kind: Literal["first_order"] = "first_order"


class DatasetRisk(Settings):
    """The mean over a fixed, finite set of sequences."""

    kind: Literal["dataset"] = "dataset"
    sequences: Count = Field(description="How many sequences the data set has.")
    ridge: NonNegative = Field(
        default=0.0, description="η, for a penalty η‖A‖² on the matrix of reduced linear attention."
    )


class MinibatchRisk(Settings):
    """The mean over random picks from a fixed, finite set of sequences."""

    kind: Literal["minibatch"] = "minibatch"
    sequences: Count = Field(description="How many sequences the data set has.")
    batch: Count = Field(default=64, description="Sequences picked for each step.")


class SampledRisk(Settings):
    """The mean over fresh sequences at every step."""

    kind: Literal["sampled"] = "sampled"
    batch: Several = Field(default=256, description="Sequences drawn for each step.")
    integrate: Literal["auto", "labels", "posterior", "none", "context"] = Field(
        default="auto",
        description="What is integrated out in closed form: less noise, the same mean.",
    )
    precision: Literal["float64", "float32"] = Field(
        default="float64", description="Of the sequences; single precision is faster."
    )


class GradientFlow(Settings):
    """Gradient flow by an adaptive solver."""

    kind: Literal["gradient_flow"] = "gradient_flow"
    end: Positive | None = Field(
        default=None, description="Last moment (default: until converged)."
    )
    solver: Literal["auto", "explicit", "implicit"] = Field(
        default="auto", description="ODE solver."
    )
    rtol: Annotated[float, Field(strict=True, ge=1e-13, lt=1)] = Field(
        default=1e-9, description="Relative tolerance of the solver."
    )
    atol: Annotated[float, Field(strict=True, ge=1e-24, lt=1)] | None = Field(
        default=None, description="Absolute tolerance (default: 1e-9 of the initial weights)."
    )
    tolerance: Tolerance = Field(
        default=1e-6, description="Share of the way down at which the run counts as converged."
    )
    max_steps: Annotated[int, Field(strict=True, ge=1, le=10**9)] = Field(
        default=2_000_000, description="Gives up after this many attempted steps."
    )


class _Descent(Settings):
    """Settings of all training in steps."""

    learning_rate: Positive = Field(description="Size of a step.")
    steps: Count = Field(description="Number of steps.")


class GradientDescent(_Descent):
    """Plain gradient descent."""

    kind: Literal["gradient_descent"] = "gradient_descent"


class StochasticDescent(_Descent):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    momentum: BelowOne = Field(default=0.0, description="Momentum.")


class Adam(_Descent):
    """Adam."""

    kind: Literal["adam"] = "adam"
    b1: BelowOne = Field(default=0.9, description="Decay of the first moment.")
    b2: BelowOne = Field(default=0.999, description="Decay of the second moment.")


class SaveDrops(Settings):
    """Dense where the loss moves, sparse where it does not."""

    kind: Literal["drops"] = "drops"
    loss: Positive = Field(default=2e-3, description="Change of the loss, as a share of its range.")
    clock: Positive = Field(
        default=1e-2, description="Change of the clock, as a share of its reading."
    )


class SaveLinear(Settings):
    """Equally spaced moments."""

    kind: Literal["linear"] = "linear"
    count: Several = Field(default=200, description="How many moments.")


class SaveLog(Settings):
    """Moments in equal ratios."""

    kind: Literal["log"] = "log"
    count: Several = Field(default=200, description="How many moments.")
    first: Positive = Field(default=1.0, description="The first moment after the start.")


class SaveExplicit(Settings):
    """Exactly these moments."""

    kind: Literal["explicit"] = "explicit"
    times: Annotated[tuple[NonNegative, ...], Field(min_length=1)] = Field(
        description="The moments, increasing."
    )


RiskSettings = (
    BestRisk
    | ExactRisk
    | LargeContextRisk
    | FirstOrderRisk
    | DatasetRisk
    | MinibatchRisk
    | SampledRisk
)
FlowSettings = GradientFlow | GradientDescent | StochasticDescent | Adam
SaveSettings = SaveDrops | SaveLinear | SaveLog | SaveExplicit

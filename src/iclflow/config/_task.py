"""The section `[task]`: what the sequences look like."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Counts, Flag, Matrix, NonNegative, Numbers, Positive, Settings, Share


class _Regression(Settings):
    """What every kind of in-context linear regression has."""

    eigenvalues: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = Field(
        default=None, description="Eigenvalues of the input covariance, which is then diagonal."
    )
    covariance: Matrix | None = Field(
        default=None, description="The input covariance as a full matrix, instead of `eigenvalues`."
    )
    context: Counts = Field(
        default=(31,), description="Labelled pairs in a context; several lengths make it vary."
    )
    context_probabilities: Numbers | None = Field(
        default=None, description="Probability of each length in `context` (default: all equal)."
    )
    noise: NonNegative = Field(default=0.0, description="Variance of the label noise.")
    noisy_query: Flag = Field(
        default=True, description="Whether the query label carries noise too."
    )
    prior_mean: Numbers | None = Field(
        default=None, description="Mean of the task vector (default 0)."
    )
    prior_covariance: Matrix | None = Field(
        default=None, description="Covariance of the task vector (default: the identity)."
    )

    @property
    def dim(self) -> int:
        """D, the dimension of the inputs; 0 if the file gives none."""
        return len(self.eigenvalues or self.covariance or ())

    @property
    def longest_context(self) -> int:
        return max(self.context)


class LinearRegressionTask(_Regression):
    """In-context linear regression: a fresh task vector for every sequence."""

    kind: Literal["linear_regression"] = "linear_regression"


class InContextInWeightTask(_Regression):
    """A mixture: some sequences with a fresh task vector, the others with a fixed one."""

    kind: Literal["in_context_in_weight"] = "in_context_in_weight"
    fraction: Share = Field(description="Share of sequences with a fresh task vector.")
    fixed_weight: Numbers | None = Field(
        default=None, description="The task vector of the others (default: all ones)."
    )


TaskSettings = LinearRegressionTask | InContextInWeightTask

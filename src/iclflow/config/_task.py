"""The section `[task]`: what the sequences look like."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Matrix, NonNegative, NonNegatives, Numbers, Place, Positive, Share
from ._function_task import (
    DecisionTreeTask,
    HermiteTask,
    QuadraticTask,
    SparseTask,
    TwoLayerReLUTask,
)
from ._task_base import TaskBase


class _Regression(TaskBase):
    """What every kind of in-context linear regression has."""

    eigenvalues: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = Field(
        default=None, description="Eigenvalues of the input covariance, which is then diagonal."
    )
    covariance: Matrix | None = Field(
        default=None, description="The input covariance as a full matrix, instead of `eigenvalues`."
    )
    context_probabilities: Numbers | None = Field(
        default=None, description="Probability of each length in `context` (default: all equal)."
    )
    noise: NonNegative = Field(default=0.0, description="Variance of the label noise.")
    prior_mean: Numbers | None = Field(
        default=None, description="Mean of the task vector (default 0)."
    )
    prior_covariance: Matrix | None = Field(
        default=None, description="Covariance of the task vector (default: the identity)."
    )
    prior_variance: NonNegative | None = Field(
        default=None,
        description="Variance of each entry of the task vector, instead of `prior_covariance`.",
    )

    @property
    def dim(self) -> int:
        """D, the dimension of the inputs; 0 if the file gives none."""
        return len(self.eigenvalues or self.covariance or ())

    @property
    def linear(self) -> bool:
        return True


class LinearRegressionTask(_Regression):
    """In-context linear regression: a fresh task vector for every sequence."""

    kind: Literal["linear_regression"] = "linear_regression"

    @property
    def isotropic(self) -> bool:
        round_inputs = len(set(self.eigenvalues or ())) <= 1 and _is_round(self.covariance)
        return round_inputs and _is_round(self.prior_covariance) and not any(self.prior_mean or ())


class InContextInWeightTask(_Regression):
    """A mixture: some sequences with a fresh task vector, the others with a fixed one."""

    kind: Literal["in_context_in_weight"] = "in_context_in_weight"
    fraction: Share = Field(description="Share of sequences with a fresh task vector.")
    fixed_weight: Numbers | None = Field(
        default=None, description="The task vector of the others (default: all ones)."
    )


class MultiTask(TaskBase):
    """Several regressions in one sequence, each with its own label and its own coordinates."""

    kind: Literal["multi_task"] = "multi_task"
    coordinates: Annotated[
        tuple[Annotated[tuple[Place, ...], Field(min_length=1)], ...], Field(min_length=1)
    ] = Field(description="The coordinates, from 0, that each task reads.")
    inputs: Count | None = Field(
        default=None,
        description="Number of input coordinates (default: as many as the tasks need).",
    )
    noise: NonNegatives = Field(
        default=(0.0,), description="Variance of the label noise, one number or one a task."
    )
    signal: NonNegatives | None = Field(
        default=None,
        description="Variance of an entry of a task vector, one or one a task (default: 1/size).",
    )
    input_rotation: Matrix | None = Field(
        default=None, description="Orthogonal matrix that mixes the inputs."
    )
    output_rotation: Matrix | None = Field(
        default=None, description="Orthogonal matrix that mixes the labels."
    )

    @property
    def dim(self) -> int:
        needed = 1 + max(max(read) for read in self.coordinates)
        return needed if self.inputs is None else self.inputs

    @property
    def labels(self) -> int:
        return len(self.coordinates)

    @property
    def disjoint(self) -> bool:
        """Whether no coordinate is read by two tasks."""
        used = [place for read in self.coordinates for place in read]
        return len(set(used)) == len(used)

    @property
    def rotated(self) -> bool:
        return self.input_rotation is not None or self.output_rotation is not None


def _is_round(matrix: tuple[tuple[float, ...], ...] | None) -> bool:
    """Whether the matrix is a multiple of the identity, as it is if it is not given."""
    if matrix is None:
        return True
    size, first = len(matrix), matrix[0][0]
    wanted = (tuple(first if i == j else 0.0 for j in range(size)) for i in range(size))
    return matrix == tuple(wanted)


TaskSettings = (
    LinearRegressionTask
    | InContextInWeightTask
    | MultiTask
    | QuadraticTask
    | SparseTask
    | TwoLayerReLUTask
    | DecisionTreeTask
    | HermiteTask
)

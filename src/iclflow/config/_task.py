"""The section `[task]`: what the sequences look like."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..limits import MAX_SUPPORTS
from ._base import (
    Count,
    Counts,
    Flag,
    Matrix,
    NonNegative,
    NonNegatives,
    Numbers,
    Place,
    Positive,
    Settings,
    Share,
)


class TaskBase(Settings):
    """Settings that all kinds of tasks share.

    A new kind is a subclass in a file `_task_NAME.py` of this folder, with its `kind`, its `dim`,
    and `builds`.
    """

    # The class of `iclflow.tasks` that takes these settings, where they need no preparation.
    builds: ClassVar[str] = ""

    context: Counts = Field(
        default=(31,), description="Labelled pairs in a context; several lengths make it vary."
    )
    noisy_query: Flag = Field(
        default=True, description="Whether the query label carries noise too."
    )

    @property
    def dim(self) -> int:
        """D, the dimension of the inputs."""
        raise NotImplementedError

    @property
    def longest_context(self) -> int:
        return max(self.context)

    @property
    def labels(self) -> int:
        """How many labels a token has."""
        return 1

    @property
    def linear(self) -> bool:
        """Whether the moments of tokens are known in closed form: linear attention is exact."""
        return False

    @property
    def isotropic(self) -> bool:
        """Whether no direction is preferred: x ~ N(0, cI) and w ~ N(0, γI)."""
        return False

    @property
    def white_inputs(self) -> bool:
        """Whether the input covariance is known to be a multiple of the identity."""
        return False

    @property
    def diagonal_inputs(self) -> bool:
        """Whether the input covariance is known to be diagonal."""
        return False

    @property
    def bayes_known(self) -> bool:
        """Whether the posterior of the query label can be computed."""
        return True

    @property
    def function_size(self) -> int:
        """The estimated numbers in memory for the random function of one sequence, without its
        values."""
        return 0


class RegressionTask(TaskBase):
    """Settings that all kinds of in-context linear regression share."""

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


class LinearRegressionTask(RegressionTask):
    """In-context linear regression: a fresh task vector for every sequence."""

    kind: Literal["linear_regression"] = "linear_regression"

    @property
    def white_inputs(self) -> bool:
        return len(set(self.eigenvalues or ())) <= 1 and is_round(self.covariance)

    @property
    def diagonal_inputs(self) -> bool:
        return self.covariance is None or _is_diagonal(self.covariance)

    @property
    def isotropic(self) -> bool:
        return (
            self.white_inputs and is_round(self.prior_covariance) and not any(self.prior_mean or ())
        )


class InContextInWeightTask(RegressionTask):
    """A mixture: some sequences with a fresh task vector, the others with a fixed one."""

    kind: Literal["in_context_in_weight"] = "in_context_in_weight"
    fraction: Share = Field(description="Share of sequences with a fresh task vector.")
    fixed_weight: Numbers | None = Field(
        default=None, description="The task vector of the others (default: all ones)."
    )


class MultiTask(TaskBase):
    """Several regressions in one sequence, each with its own label and its own coordinates.

    **Example:**

    ```pycon
    >>> settings = icl.config.MultiTask(coordinates=[[0, 1], [2, 3]], context=40)
    >>> settings.dim, settings.labels, settings.disjoint
    (4, 2, True)
    ```
    """

    kind: Literal["multi_task"] = "multi_task"
    coordinates: Annotated[
        tuple[Annotated[tuple[Place, ...], Field(min_length=1)], ...], Field(min_length=1)
    ] = Field(description="The coordinates, from 0, that each task reads.")
    inputs: Count | None = Field(
        default=None,
        description="Number of input coordinates (default: as many as the tasks need).",
    )
    noise: NonNegatives = Field(
        default=(0.0,), description="Variance of the label noise, one number or one per task."
    )
    signal: NonNegatives | None = Field(
        default=None,
        description="Variance of an entry of a task vector, one or one per task (default: 1/size).",
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


# Families of random functions on white inputs ------------------------------------------------


class _Function(TaskBase):
    """Settings that all families of random functions share."""

    inputs: Count = Field(description="Number of input coordinates.")
    noise: NonNegative = Field(default=0.0, description="Variance of the label noise.")

    @property
    def dim(self) -> int:
        return self.inputs


class _Variance(_Function):
    """A family that is scaled to a variance of its noiseless label."""

    variance: NonNegative = Field(default=1.0, description="Variance of the noiseless label.")


class QuadraticTask(_Variance):
    """Random quadratic functions without cross terms."""

    kind: Literal["quadratic"] = "quadratic"


class SparseTask(_Variance):
    """Linear regression on a few coordinates, other ones in every sequence."""

    kind: Literal["sparse"] = "sparse"
    sparsity: Count = Field(default=3, description="How many coordinates matter.")

    @property
    def bayes_known(self) -> bool:
        few = min(self.sparsity, self.inputs - self.sparsity)
        # With 12 or more the count always exceeds the limit, and is slow to compute.
        return few < 12 and math.comb(self.inputs, few) <= MAX_SUPPORTS


class TwoLayerReLUTask(_Variance):
    """Random two-layer ReLU networks."""

    kind: Literal["two_layer_relu"] = "two_layer_relu"
    hidden: Count = Field(default=100, description="Hidden units.")

    @property
    def bayes_known(self) -> bool:
        return False

    @property
    def function_size(self) -> int:
        return self.hidden * (self.inputs + self.longest_context)


class DecisionTreeTask(_Variance):
    """Random decision trees."""

    kind: Literal["decision_tree"] = "decision_tree"
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


def is_round(matrix: tuple[tuple[float, ...], ...] | None) -> bool:
    """Whether the matrix is a multiple of the identity, or not given, which means the identity."""
    if matrix is None:
        return True
    size, first = len(matrix), matrix[0][0]
    wanted = (tuple(first if i == j else 0.0 for j in range(size)) for i in range(size))
    return matrix == tuple(wanted)


def _is_diagonal(matrix: tuple[tuple[float, ...], ...]) -> bool:
    return not any(x for i, row in enumerate(matrix) for j, x in enumerate(row) if i != j)


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

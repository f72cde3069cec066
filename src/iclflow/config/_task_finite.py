"""The kind `finite_tasks` of `[task]`: pretraining on K tasks."""

from typing import Annotated, Literal

from pydantic import Field

from ._base import Count, Matrix, NonNegative, Share
from ._task import RegressionTask, is_round


class FiniteTasksTask(RegressionTask):
    """In-context linear regression with finitely many task vectors, all equally likely."""

    kind: Literal["finite_tasks"] = "finite_tasks"
    tasks: Count | None = Field(
        default=None, description="K, the number of task vectors, drawn from the prior."
    )
    vectors: Matrix | None = Field(
        default=None, description="The task vectors themselves, one row each, instead of `tasks`."
    )
    law: Literal["gaussian", "sphere"] = Field(
        default="gaussian",
        description="How task vectors are drawn: from the prior, or of one norm.",
    )
    clusters: Count | None = Field(
        default=None, description="Number of centres that task vectors are near (default: none)."
    )
    spread: Share = Field(
        default=0.0, description="Share of their variance that is within clusters."
    )
    task_seed: Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)] = Field(
        default=0, description="Seed of the task vectors; `seed` does not change them."
    )
    test_covariance: Matrix | None = Field(
        default=None, description="Covariance of unseen task vectors (default: that of the prior)."
    )
    test_variance: NonNegative | None = Field(
        default=None,
        description="Variance of each entry of an unseen one, instead of `test_covariance`.",
    )

    @property
    def isotropic(self) -> bool:
        """On white inputs structured heads see the mean squared norm of task vectors alone."""
        return len(set(self.eigenvalues or ())) <= 1 and is_round(self.covariance)

"""What every kind of `[task]` has."""

from pydantic import Field

from ._base import Counts, Flag, Settings


class TaskBase(Settings):
    """What every kind of task has."""

    context: Counts = Field(
        default=(31,), description="Labelled pairs in a context; several lengths make it vary."
    )
    noisy_query: Flag = Field(
        default=True, description="Whether the query label carries noise too."
    )

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
    def bayes_known(self) -> bool:
        """Whether the posterior of the query label can be computed."""
        return True

    @property
    def function_size(self) -> int:
        """About how many numbers a random function of one sequence takes, its values aside."""
        return 0

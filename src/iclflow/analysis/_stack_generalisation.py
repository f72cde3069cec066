"""Trained stacks in other conditions than those of their training, exactly: loops that run longer,
and contexts of other lengths."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from ..models import AbstractLinearStack, AbstractModel
from ..risks import risk
from ..tasks import LinearRegression, check_count, with_context


class LoopRisks(NamedTuple):
    """The exact risk of a loop by the number of loops that it is run for.

    **Fields:**

    - `loops`: how often it is run.
    - `losses`: the risk of each.
    - `of_zero`: that of predicting zero.
    """

    loops: Int[np.ndarray, " K"]
    losses: Float[np.ndarray, " K"]
    of_zero: float

    @property
    def best(self) -> int:
        """The number of loops with the smallest risk."""
        return int(self.loops[np.argmin(self.losses)])

    @property
    def breaks_at(self) -> int | None:
        """The fewest loops beyond the best from which on all are worse than predicting zero; None
        if the last are not.

        At finite D and N eigenvalues of S have no upper end: a loop that is run without end
        diverges (docs/theory/depth.md).
        """
        order = np.argsort(self.loops)
        worse = (self.losses > self.of_zero)[order] & (self.loops[order] > self.best)
        if not worse[-1]:
            return None
        return int(self.loops[order][len(worse) - np.argmin(worse[::-1])])


def more_loops(
    model: AbstractLinearStack, task: LinearRegression, loops: Sequence[int]
) -> LoopRisks:
    """The exact risk of a loop that is run longer, or shorter, than it was trained.

    **Arguments:**

    - `model`: a loop: one set of weights for all layers.
    - `loops`: how often to run it, each time.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> loop = icl.ScalarStack(jnp.array([0.742518]), dim=5, depth=2)  # the best of two loops
    >>> longer = icl.analysis.more_loops(loop, task, [2, 4, 6, 8, 10])
    >>> longer.losses.round(4), longer.best, longer.breaks_at
    (array([0.0998, 0.0376, 0.0514, 0.3224, 4.8571]), 4, 10)
    ```
    """
    counts = [check_count("loops", count) for count in loops]
    if not counts:
        raise InputError("loops", loops, "must be at least one number of loops")
    models = [model.with_depth(count) for count in counts]
    risks = [risk(task, each, "exact") for each in models]
    losses = [float(one(each)) for one, each in zip(risks, models)]
    zero = risks[0].of_zero(models[0])
    return LoopRisks(np.asarray(counts), np.asarray(losses), float(np.asarray(zero)))


def other_contexts(
    model: AbstractModel, task: LinearRegression, lengths: Sequence[int]
) -> Float[np.ndarray, " K"]:
    """The exact risk of a trained model on a task with contexts of other lengths.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> stack = icl.ScalarStack(jnp.array([1.2491, 0.5153]), dim=5, depth=2)
    >>> icl.analysis.other_contexts(stack, task, [5, 20, 80]).round(4)
    array([1.6718, 0.0722, 0.0213])
    ```
    """
    tasks = [with_context(task, check_count("lengths", length)) for length in lengths]
    return np.asarray([float(risk(other, model, "exact")(model)) for other in tasks])

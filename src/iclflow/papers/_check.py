"""A check: one comparison of a prediction with a measurement."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from ..files import to_plain

Comparison = Literal[
    "absolute", "relative", "standard errors", "equal", "at least", "at most", "above", "below"
]


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a prediction with a measurement.

    **Fields:**

    - `comparison`: `"absolute"` and `"relative"`: the largest deviation must stay within
      `tolerance`; `"standard errors"`: the same in units of `standard_error`; `"equal"`: the same
      to the last digit; `"at least"`, `"at most"`: the measurement must be on the right side of
      the prediction, or miss it by at most `tolerance`; `"above"`, `"below"`: strictly so.
    - `scale`: what a prediction of zero is a share of, such as the size of the two things whose
      distance is measured. Without it a prediction of zero has no relative change, so no power.

    **Example:**

    ```pycon
    >>> check = icl.papers.Check("loss", predicted=0.5, measured=0.501, tolerance=0.01)
    >>> check.passed, round(check.error, 4), round(check.strain, 2)
    (True, 0.001, 0.1)
    ```
    """

    name: str
    predicted: Any
    measured: Any
    tolerance: float = 0.0
    comparison: Comparison = "absolute"
    standard_error: Any = None
    scale: Any = None

    @property
    def mismatch(self) -> str:
        """Why the two cannot be compared at all, with their shapes; empty if they can."""
        if self.comparison == "equal":
            return ""
        predicted, measured = np.shape(self.predicted), np.shape(self.measured)
        # A single prediction is compared with every measurement.
        if 0 in measured or predicted not in ((), measured):
            return f"predicted with the shape {predicted}, measured with {measured}"
        return ""

    @property
    def error(self) -> float:
        """The deviation that the tolerance bounds; infinite if the two cannot be compared."""
        if self.comparison == "equal":
            return 0.0 if plain(self.predicted) == plain(self.measured) else math.inf
        if self.mismatch:
            return math.inf
        measured = np.asarray(self.measured, float)
        predicted = np.asarray(self.predicted, float)
        difference = measured - predicted
        if self.comparison == "at least":
            difference = np.maximum(-difference, 0)
        elif self.comparison == "at most":
            difference = np.maximum(difference, 0)
        elif self.comparison in ("above", "below"):
            over = difference if self.comparison == "below" else -difference
            # Equality is a violation as well, of no size.
            difference = np.where(over < 0, 0.0, np.maximum(over, np.finfo(float).tiny))
        elif self.comparison == "relative":
            difference = np.abs(difference) / np.abs(predicted)
        elif self.comparison == "standard errors":
            # With a standard error of zero, nothing but equality passes.
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.abs(difference) / np.asarray(self.standard_error, float)
            difference = np.where(difference == 0, 0.0, share)
        worst = float(np.max(np.abs(difference), initial=0.0))
        return worst if math.isfinite(worst) else math.inf

    @property
    def passed(self) -> bool:
        # A tolerance may be a number of NumPy, whose comparison is not a Python bool.
        return bool(self.error <= self.tolerance)

    @property
    def strain(self) -> float:
        """The ratio of the error to the tolerance; infinite for an error where none is allowed."""
        if self.tolerance > 0:
            return self.error / self.tolerance
        return math.inf if self.error > 0 else 0.0


# The return type of a claim, which yields its checks.
Checks = Iterator[Check]
"""What a claim yields: its checks, one after the other.

**Example:**

```pycon
>>> checks: icl.papers.Checks = iter([icl.papers.Check("heads", 2, 2, comparison="equal")])
>>> [check.passed for check in checks]
[True]
```
"""


def plain(value: Any) -> Any:
    """A value as data that JSON can hold; what is not finite is spelled out."""
    return to_plain(value, spelled=True)

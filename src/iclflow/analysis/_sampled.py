"""Means over drawn samples, with their standard errors."""

from typing import NamedTuple

import numpy as np


class Sampled(NamedTuple):
    """A mean over draws with its standard error.

    **Example:**

    ```pycon
    >>> mean = icl.analysis.Sampled.of(np.array([1.0, 2.0, 3.0]))
    >>> mean.value, round(mean.standard_error, 3)
    (2.0, 0.577)
    ```
    """

    value: float
    standard_error: float

    @staticmethod
    def of(losses: np.ndarray) -> "Sampled":
        return Sampled(float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5))

    @staticmethod
    def ratio(above: np.ndarray, below: np.ndarray) -> "Sampled":
        """The ratio of two means over the same draws, with its error by the delta method."""
        value = float(above.mean() / below.mean())
        rest = Sampled.of((above - value * below) / below.mean())
        return Sampled(value, rest.standard_error)

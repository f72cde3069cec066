"""The middle and the spread of runs with the same x, as a figure shows them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..analysis import wilson
from ..config import InputError

Values = Sequence[float] | Float[np.ndarray, " runs"]


def _median(values: Values) -> Sequence[float]:
    return np.quantile(values, [0.25, 0.5, 0.75]).tolist()


def _mean(values: Values) -> Sequence[float]:
    """With one standard error; 0 for a single run, which does not determine one."""
    middle = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return middle - error, middle, middle + error


def _share(values: Values) -> Sequence[float]:
    """With the 95 % interval (Wilson)."""
    hits = round(float(np.sum(values)))
    low, high = wilson(hits, len(values))
    return low, hits / len(values), high


# From values to the lower end of the spread, the middle and the upper end.
STATISTICS: dict[str, Callable[[Values], Sequence[float]]] = {
    "median": _median,
    "mean": _mean,
    "share": _share,
}

# What the band around the middle shows, for the legend.
SPREADS = {"median": "quartiles", "mean": "± standard error", "share": "95 % interval"}


def choose_statistic(wanted: str, flag: str, text: str, values: Sequence[Any]) -> str:
    """The statistic to draw for the values of a flag; refused if they do not have it."""
    for value in values[:1]:
        if isinstance(value, bool):
            return "share" if wanted == "auto" else wanted
        example = f"`{flag}` = \"{text} = '{value}'\""
        if not isinstance(value, int | float):
            raise InputError(
                f"`{flag}` = {text} holds {value!r}: must be a column of numbers; {example} "
                "draws the share of runs where this holds."
            )
        if wanted == "share":
            example = f'`{flag}` = "{text} = {value:g}"'
            raise InputError(
                f"`statistic` = share: `{flag}` = {text} holds {value:g}, must be true or "
                f"false, such as {example}."
            )
    return "median" if wanted == "auto" else wanted

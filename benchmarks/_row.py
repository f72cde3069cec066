"""One measured number, with its spread, its bar and the circumstances."""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Bar:
    """What a number must not fall below (`at_least`) or exceed."""

    limit: float
    at_least: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a benchmark.

    **Fields:**

    - `group`, `name`: what was measured.
    - `value`, `unit`: the median over `repeats`; None if it could not be measured, and `note`
      then says why.
    - `spread`: the smallest and the largest of the repeats.
    - `bar`: what is promised, where something is.
    - `load`: the load average of the last minute; above the number of cores, times are too long.
    """

    group: str
    name: str
    value: float | None
    unit: str = ""
    spread: tuple[float, float] | None = None
    repeats: int = 1
    bar: Bar | None = None
    note: str = ""
    load: float = dataclasses.field(default_factory=lambda: load_average())

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without a bar or without a value."""
        if self.bar is None or self.value is None:
            return None
        return self.bar.met_by(self.value)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"met": self.met}


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.seconds), max(self.seconds)

    def times(self, factor: float) -> "Timing":
        return Timing(tuple(factor * second for second in self.seconds))

    def row(self, group: str, name: str, unit: str = "s", **fields) -> Row:
        """The line that shows these seconds in `unit`: s, ms or µs."""
        scaled = self.times({"s": 1.0, "ms": 1e3, "µs": 1e6}[unit])
        count = len(self.seconds)
        return Row(group, name, scaled.median, unit, scaled.spread, count, **fields)

    def ratio_row(self, group: str, name: str, ours: "Timing", **fields) -> Row:
        """How many times as long this took as `ours`: of the medians, and at the extremes."""
        low, high = self.spread
        spread = (low / ours.spread[1], high / ours.spread[0])
        count = min(len(self.seconds), len(ours.seconds))
        return Row(group, name, self.median / ours.median, "×", spread, count, **fields)


def measure(function: Callable[[], Any], repeats: int) -> Timing:
    """Times `repeats` calls, each of which must return only when its work is done."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return Timing(tuple(seconds))


def load_average() -> float:
    """How many processes wanted to run, averaged over the last minute; NaN where not known."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return float("nan")

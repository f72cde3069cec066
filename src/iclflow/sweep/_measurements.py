"""What can be measured of the runs of a sweep, by name: each adds columns to the table."""

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..config import Config, InputError, shown
from ..models import AbstractModel
from ..tasks import AbstractTask
from ..trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Measured:
    """A finished run, as measurements see it.

    **Fields:**

    - `final`: the model at its end.
    - `curve`: gives the whole run, with the losses that are reported of it.
    - `floor`: gives the smallest loss that weights of this shape can reach; None if not known.
    """

    config: Config
    final: AbstractModel
    task: AbstractTask
    curve: Callable[[], Trajectory]
    floor: Callable[[], float | None]

    @property
    def run(self) -> Trajectory:
        return self.curve()


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One entry of the registry.

    **Fields:**

    - `columns`: the columns that it adds, with their DuckDB types.
    - `measure`: the values of these columns for one run; a `ValueError` says why there are none.
    - `refuses`: what a config must have that this one has not, as the end of a sentence; None if
      it can be measured.
    """

    name: str
    words: str
    columns: Mapping[str, str]
    measure: Callable[[Measured], Mapping[str, Any]]
    refuses: Callable[[Config], str | None]


class NotMeasured(ValueError):
    """Says why something is missing of a run where something else, `found`, is there."""

    def __init__(self, reason: str, found: Mapping[str, Any]):
        super().__init__(reason)
        self.found = found


MEASUREMENTS: dict[str, Measurement] = {}


def measurement(
    name: str, refuses: Callable[[Config], str | None] = lambda config: None, **columns: str
) -> Callable:
    """Adds a function to the registry; its docstring says what it measures.

    **Arguments:**

    - `columns`: name and DuckDB type of each column.
    """

    def add(function: Callable[[Measured], Mapping[str, Any]]):
        words = " ".join((function.__doc__ or "").split())
        MEASUREMENTS[name] = Measurement(name, words, columns, function, refuses)
        return function

    return add


def check_measurements(names: Sequence[str], configs: Sequence[Config]) -> None:
    """Refuses names that are unknown or given twice, measurements that cannot be made of one of the
    configs, and claims that speak of none."""
    from ._claim_measurements import check_claim, is_claim

    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(f"`measure.names` holds {name!r} twice: names must differ.")
        if is_claim(name):
            check_claim(name, configs)
            continue
        if name not in MEASUREMENTS:
            close = difflib.get_close_matches(name, MEASUREMENTS, n=1)
            known = f"allowed are {', '.join(MEASUREMENTS)}."
            remedy = f"did you mean {close[0]!r}?" if close else known
            raise InputError(f"`measure.names` holds {shown(name)}, which is unknown: {remedy}")
        for config in configs:
            reason = MEASUREMENTS[name].refuses(config)
            if reason is not None:
                raise InputError(f"`measure.names` holds {name!r}, which {reason}.")


def columns_of(names: Sequence[str]) -> dict[str, str]:
    """The columns that measurements add, with their types."""
    found: dict[str, str] = {}
    for name in names:
        found |= _entry(name).columns
    return found


def measure(names: Sequence[str], measured: Measured) -> dict[str, Any]:
    """The values of all columns; where something cannot be measured they are None, and
    `not_measured` says why."""
    values, reasons = {}, []
    for name in names:
        entry = _entry(name)
        try:
            # Of weights that have diverged: what overflows is None in the table.
            with np.errstate(over="ignore", invalid="ignore"):
                found = entry.measure(measured)
        except (ValueError, np.linalg.LinAlgError) as error:
            reasons.append(f"{name}: {' '.join(str(error).split())}")
            found = error.found if isinstance(error, NotMeasured) else {}
        values |= {column: plain(found.get(column)) for column in entry.columns}
    return values | {"not_measured": " ".join(reasons) or None}


def _entry(name: str) -> Measurement:
    """A measurement of the registry, or a claim as one."""
    if name in MEASUREMENTS:
        return MEASUREMENTS[name]
    from ._claim_measurements import claim_measurement

    return claim_measurement(name)


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are not finite become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""What can be measured of the runs of a sweep, by name: each adds columns to the table."""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..config import Config, InputError
from ..errors import shorten
from ..files import to_plain
from ..trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run, as measurements see it.

    **Fields:**

    - `final`: the model at its end.
    - `task`: any task; the `Need`s of a measurement have checked that it can be used.
    - `curve`: returns the whole run with its reported losses. It is a function because these losses
      take long to compute, and few measurements need them.
    - `floor`: returns the smallest loss that weights of this shape can reach; None if not known.
    """

    config: Config
    final: Any
    task: Any
    curve: Callable[[], Trajectory]
    floor: Callable[[], float | None]

    @property
    def trajectory(self) -> Trajectory:
        return self.curve()


class Need(NamedTuple):
    """A condition on a config, and the end of a sentence for configs that do not meet it, with
    placeholders such as `{0.task.kind}` for settings of the config."""

    holds: Callable[[Any], bool]
    refusal: str


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One entry of the registry.

    **Fields:**

    - `columns`: the columns that it adds, with their DuckDB types.
    - `measure`: the values of these columns for one run; a `ValueError` says why there are none.
    - `needs`: what a config must have.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("softmax/pair")
    >>> icl.sweeps.MEASUREMENTS["components"].refuses(config) is not None
    True
    ```
    """

    name: str
    words: str
    columns: Mapping[str, str]
    measure: Callable[[FinishedRun], Mapping[str, Any]]
    needs: tuple[Need, ...] = ()

    def refuses(self, config: Config) -> str | None:
        """What the config lacks, as the end of a sentence; None if it can be measured."""
        lacking = (need for need in self.needs if not need.holds(config))
        return next((need.refusal.format(config) for need in lacking), None)


class NotMeasured(ValueError):
    """Says why some columns of a run have no value; those in `found` have one."""

    def __init__(self, reason: str, found: Mapping[str, Any]):
        super().__init__(reason)
        self.found = found


MEASUREMENTS: dict[str, Measurement] = {}
"""What a sweep can measure of each run, by name.

**Example:**

```pycon
>>> icl.sweeps.MEASUREMENTS["plateaus"].words
'How many plateaus the loss has, their levels, and when each begins and ends.'
```
"""


def add_measurement(
    name: str,
    words: str,
    find: Callable[[FinishedRun], Any],
    *needs: Need,
    **columns: str | tuple[str, Callable[[Any], Any]],
) -> None:
    """Adds a measurement to the registry.

    **Arguments:**

    - `find`: measures a run; what it returns has an entry or an attribute for each column.
    - `columns`: the DuckDB type of each column, or the type and a function from what was found to
      the value of the column.
    """
    types = {name: of if isinstance(of, str) else of[0] for name, of in columns.items()}

    def measure(run: FinishedRun) -> dict[str, Any]:
        found = find(run)
        if isinstance(found, dict):
            return found
        return {
            name: getattr(found, name) if isinstance(of, str) else of[1](found)
            for name, of in columns.items()
        }

    MEASUREMENTS[name] = Measurement(name, words, types, measure, needs)


def check_measurements(names: Sequence[str], configs: Sequence[Config]) -> None:
    """Refuses names that are unknown or given twice, measurements that do not exist for one of the
    configs, and claims that apply to none."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(f"`measure.names` holds {name!r} twice: names must differ.")
        if _is_claim(name):
            _check_claim(name, configs)
            continue
        if name not in MEASUREMENTS:
            close = difflib.get_close_matches(name, MEASUREMENTS, n=1)
            known = f"allowed are {', '.join(MEASUREMENTS)}."
            remedy = f"did you mean {close[0]!r}?" if close else known
            raise InputError(f"`measure.names` holds {shorten(name)}, which is unknown: {remedy}")
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


def measure(names: Sequence[str], run: FinishedRun) -> dict[str, Any]:
    """The values of all columns; where something cannot be measured they are None, and
    `not_measured` says why."""
    values, reasons = {}, []
    for name in names:
        entry = _entry(name)
        try:
            # Weights that have diverged overflow: the value is None in the table.
            with np.errstate(over="ignore", invalid="ignore"):
                found = entry.measure(run)
        except (ValueError, np.linalg.LinAlgError) as error:
            reasons.append(f"{name}: {' '.join(str(error).split())}")
            found = error.found if isinstance(error, NotMeasured) else {}
        values |= {column: to_plain(found.get(column)) for column in entry.columns}
    return values | {"not_measured": " ".join(reasons) or None}


def _entry(name: str) -> Measurement:
    """A measurement of the registry, or one that checks a claim."""
    return MEASUREMENTS[name] if name in MEASUREMENTS else _claim_measurement(name)


# Claims as measurements: the verdict on each run ----------------------------------------------


def _is_claim(name: str) -> bool:
    """Whether a name in `measure.names` has the form of a claim: `paper/name`."""
    return "/" in name


@functools.cache
def _claim_measurement(name: str) -> Measurement:
    """The verdict of a claim on each run, and its largest error over its tolerance.

    Raises an `InputError` if no claim on runs has this name.
    """
    # Imported here: the registry takes a second to load, and most sweeps name no claim.
    from ..papers import find_claim_on_runs, strain

    try:
        found = find_claim_on_runs(name)
    except InputError as error:
        problem = f"holds {shorten(name)}, which {error.problem}"
        raise InputError("measure.names", problem=problem, allowed=error.allowed) from None
    column = "claim_" + name.replace("/", "_").replace("-", "_")

    def measure(run: FinishedRun) -> dict[str, Any]:
        outcome = found.check(run.trajectory, run.task, run.config)
        if outcome.verdict == "inconclusive":
            raise NotMeasured(f"{outcome.reason}.", {column: outcome.verdict})
        return {column: outcome.verdict, f"{column}_error": strain(outcome)}

    return Measurement(
        name,
        f"The claim `{name}`: {found.statement}",
        {column: "VARCHAR", f"{column}_error": "DOUBLE"},
        measure,
    )


def _check_claim(name: str, configs: Sequence[Config]) -> None:
    """Refuses a claim that is unknown, or that applies to no run of the sweep."""
    _claim_measurement(name)
    from ..papers import find_claim_on_runs

    reason = find_claim_on_runs(name).refuses_all(configs)
    if reason is not None:
        raise InputError(
            f"`measure.names` holds {name!r}, which applies to no run of this sweep: it {reason}."
        )

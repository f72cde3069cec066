"""How often runs end in each pattern: shares with intervals, for each setting."""

import dataclasses
from collections import Counter

from ..analysis import wilson
from ..trajectory import Result
from ._table import Table

# Columns that describe how a run ended. The order of the entries in a list does not matter.
_PATTERN_COLUMNS = ("roles", "one_task_a_head", "algorithm")


@dataclasses.dataclass(frozen=True)
class Share:
    """A pattern that some runs of one setting ended in.

    **Fields:**

    - `setting`: the values of the swept settings, by name.
    - `column`, `value`: the pattern; "none: …" with the result of runs that did not reach their
      end, and "not measured" for runs that did and have no such value.
    - `runs`, `of`: how many ended in it, of how many.
    - `low`, `high`: the 95 % interval of the share (Wilson).
    """

    setting: dict[str, object]
    column: str
    value: str
    runs: int
    of: int
    low: float
    high: float


def emergence(table: Table) -> list[Share]:
    """The shares of all patterns that a sweep has measured, the most frequent first.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 4, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.2] * 5, "context": 40},
    ...     "model": {"kind": "structured", "heads": 2}, "risk": {"kind": "large_context"},
    ...     "flow": {"end": 50.0}}, "measure": {"names": ["patterns"]}}
    >>> table = icl.sweep(spec, progress=False)
    >>> share = icl.sweeps.emergence(table)[0]
    >>> share.column, share.of, 0 <= share.low <= share.runs / share.of <= share.high <= 1
    ('roles', 4, True)
    ```
    """
    axes = [name for name in table.columns if "." in name]
    found = []
    for column in _PATTERN_COLUMNS:
        if column not in table.columns:
            continue
        names = ", ".join([*axes, "result", column])
        _, rows = table.ask(f"SELECT {names} FROM results")
        # A setting may be a list, which is not hashable: its text is the key.
        settings: dict[str, list] = {}
        counts: dict[str, Counter[str]] = {}
        for *setting, result, value in rows:
            key = repr(setting)
            settings[key] = setting
            # Every run of a setting counts: one that did not reach its end has no pattern.
            counts.setdefault(key, Counter())[_classify_end(result, value)] += 1
        for key, patterns in counts.items():
            total = patterns.total()
            for value, runs in patterns.most_common():
                low, high = wilson(runs, total)
                where = dict(zip(axes, settings[key]))
                found.append(Share(where, column, value, runs, total, low, high))
    return found


def _classify_end(result: str, value: object) -> str:
    """The pattern of one run as text. Runs that did not reach their end are measured too, but their
    weights are not those of an end."""
    if not Result[result].ok:
        return f"none: {result}"
    return "not measured" if value is None else _describe(value)


def _describe(value: object) -> str:
    """A pattern as text: roles read "2 positive, 1 dummy"."""
    if not isinstance(value, list):
        return str(value)
    counts = sorted(Counter(map(str, value)).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count} {name}" for name, count in counts)

"""The rows that a figure of a sweep shows: checked, with a note on what is left out."""

import decimal
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..config import InputError
from ._table import QUOTED, Table

# Larger numbers overflow while an axis is drawn.
_LARGEST = 1e300
Note = Callable[[str], object]
Row = tuple[Any, ...]


def select_rows(
    table: Table, flags: Mapping[str, str | None], where: str | None, heat: bool = False
) -> list[Row]:
    """The value of each flag for every run that meets `where`, and whether the run diverged; None
    for flags that are not given."""
    for flag, text in (*flags.items(), ("where", where)):
        if text is not None:
            _check_expression(table, flag, text)
    diverged = "result = 'diverged'" if "result" in table.columns else "false"
    # The line break ends a comment, which would otherwise hide the bracket.
    wanted = ", ".join(f"({text or 'NULL'}\n)" for text in flags.values())
    condition = f" WHERE ({where}\n)" if where else ""
    given = ", ".join(f"`{flag}` = {text}" for flag, text in flags.items() if text)
    rows = _ask(table, f"SELECT {wanted}, {diverged} FROM results{condition}", given)[1]
    _, [(count,)] = table.ask(f"SELECT count(*) FROM results{condition}")
    if len(rows) != count:
        raise InputError(f"{given}: must each have one value for every run, without unnest().")
    columns = [
        [_check_value(table, flag, text or "", row[place], heat) for row in rows]
        for place, (flag, text) in enumerate(flags.items())
    ]
    return list(zip(*columns, (row[-1] for row in rows)))


def _check_expression(table: Table, flag: str, text: str) -> None:
    """Refuses all but one SQL expression: a second one after a comma would shift the columns."""
    refusal = InputError(f"`{flag}` = {text}: must be one column, or one SQL expression of some.")
    depth = 0
    for sign in re.sub(QUOTED, "", text, flags=re.DOTALL):
        depth += (sign == "(") - (sign == ")")
        if depth < 0 or sign == ";":
            raise refusal
    if depth or not text.strip():
        raise refusal
    names, _ = _ask(table, f"SELECT ({text}\n) FROM results LIMIT 0", f"`{flag}` = {text}")
    if len(names) != 1:
        raise refusal
    if flag == "where":
        _ask(table, f"SELECT count(*) FROM results WHERE ({text}\n)", f"`where` = {text}")


def _ask(table: Table, query: str, given: str) -> tuple[list[str], list[Row]]:
    """The result of a query; an error names what was given, not our query."""
    try:
        return table.ask(query)
    except InputError as error:
        raise InputError(f"{given} {error.predicate}") from None


def _check_value(table: Table, flag: str, text: str, value: Any, heat: bool) -> Any:
    """A value that can be sorted and drawn: a number, a text, or a swept list, which is a label: it
    has no place on the vertical axis of a curve."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list) and "." in text and text in table.columns and (heat or flag != "y"):
        return _tuple(value)
    if isinstance(value, list | tuple | dict):
        entry = f", such as {text}[1]" if isinstance(value, list) else ""
        raise InputError(
            f"`{flag}` = {text}: must be one column of numbers or texts{entry}, and this has "
            "several values per run."
        )
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def drop_diverged(rows: list[Row], texts: Sequence[str | None], note: Note) -> list[Row]:
    """The rows of runs that did not diverge; all rows if an expression uses `result`."""
    if any(re.search(r"\bresult\b", text, re.IGNORECASE) for text in texts if text):
        return rows
    kept = [row for row in rows if not row[-1]]
    if len(kept) < len(rows):
        note(f"{len(rows) - len(kept)} of {len(rows)} runs diverged and are left out.")
    return kept


def drop_unusable(
    rows: list[Row], flags: Mapping[str, str | None], log: Sequence[str], note: Note
) -> list[Row]:
    """The rows that can be drawn: values are finite, and positive on logarithmic axes."""
    for place, (flag, text) in enumerate(flags.items()):
        total = len(rows)
        if text is None:
            continue
        if flag != "facet":
            rows = _filter(
                rows, lambda row: row[place] is not None, f"have no `{text}`", total, note
            )
        words = f"have a `{text}` that is not finite"
        rows = _filter(rows, lambda row: _is_drawable(row[place]), words, total, note)
        if flag in log:
            _check_logarithm(flag, text, [row[place] for row in rows])
            words = f"have a `{text}` that is not positive, as a logarithmic {flag} needs it,"
            rows = _filter(rows, lambda row: row[place] > 0, words, total, note)
    return rows


def _filter(rows: list[Row], fits: Callable[[Row], bool], words: str, total: int, note: Note):
    kept = [row for row in rows if fits(row)]
    if len(kept) < len(rows):
        note(f"{len(rows) - len(kept)} of {total} runs {words} and are left out.")
    return kept


def _is_drawable(value: Any) -> bool:
    return not isinstance(value, int | float) or math.isfinite(value) and abs(value) < _LARGEST


def _check_logarithm(flag: str, text: str, values: Sequence[Any]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"`log` = {flag}: `{text}` holds {value!r}: must be numbers.")
        if flag == "x" and value <= 0:
            raise InputError(
                f"`log` = x: the values of `{text}` must be positive, and {value} is not."
            )

"""The columns of the table of a sweep."""

from collections.abc import Sequence
from typing import Any

from ._file import Sweep
from ._measurements import columns_of

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def schema_of(sweep: Sweep) -> dict[str, str]:
    """The columns of the table with their DuckDB types."""
    swept = {
        name: _column_type([point.settings[name] for point in sweep.points]) for name in sweep.axes
    }
    columns = {"run": "BIGINT", **swept, "seed": "BIGINT", "hash": "VARCHAR", "result": "VARCHAR"}
    columns |= {"last_time": "DOUBLE", "initial_loss": "DOUBLE", "final_loss": "DOUBLE"}
    return columns | columns_of(sweep.names) | {"not_measured": "VARCHAR"}


def _column_type(values: Sequence[Any]) -> str:
    """The type that holds all values of an axis; JSON text if there is no other."""
    if all(isinstance(value, list | tuple) for value in values):
        inner = _column_type([entry for value in values for entry in value])
        return "VARCHAR" if inner == "VARCHAR" else f"{inner}[]"
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return "DOUBLE"
    return _TYPES.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "VARCHAR"

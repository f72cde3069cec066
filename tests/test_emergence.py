"""How often runs of a sweep end in each pattern: which runs count, and settings of any kind."""

from pathlib import Path

import duckdb
import pytest

from iclflow.sweeps import Share, Table, emergence
from iclflow.trajectory import Result

ROLES = "['positive', 'negative']"


def shares(folder: Path, rows: list[str], columns: str) -> list[Share]:
    """Of a table with these rows, written as SQL."""
    path = folder / "results.parquet"
    values = f"(VALUES {', '.join(rows)}) AS t({columns})"
    duckdb.sql(f"COPY (SELECT * FROM {values}) TO '{path}' (FORMAT parquet)")
    return emergence(Table([path]))


def test_settings_that_are_lists_are_told_apart_and_kept(tmp_path):
    rows = [
        f"([1.0, 1.0], 'finished', {ROLES})",
        f"([2.0, 2.0], 'finished', {ROLES})",
        f"([1.0, 1.0], 'converged', {ROLES})",
    ]
    found = shares(tmp_path, rows, '"task.eigenvalues", result, roles')
    assert [(share.setting, share.runs, share.of) for share in found] == [
        ({"task.eigenvalues": [1.0, 1.0]}, 2, 2),
        ({"task.eigenvalues": [2.0, 2.0]}, 1, 1),
    ]


@pytest.mark.parametrize("result", list(Result))
def test_only_runs_that_came_to_their_end_ended_in_a_pattern(tmp_path, result):
    rows = [f"(2, '{result.name}', {ROLES})", f"(2, 'finished', {ROLES})"]
    found = shares(tmp_path, rows, '"model.heads", result, roles')
    counts = {share.value: (share.runs, share.of) for share in found}
    pattern = "1 negative, 1 positive"
    broken = {"cancelled", "diverged", "step_limit", "step_underflow"}
    if result.name in broken:
        assert counts == {pattern: (1, 2), f"none: {result.name}": (1, 2)}
    else:
        assert counts == {pattern: (2, 2)}


def test_a_pattern_that_was_not_measured_is_not_called_none(tmp_path):
    rows = ["(2, 'finished', NULL, true)", f"(2, 'converged', {ROLES}, NULL)"]
    found = shares(tmp_path, rows, '"model.heads", result, roles, one_task_a_head')
    counts = {(share.column, share.value): share.runs for share in found}
    assert counts == {
        ("roles", "not measured"): 1,
        ("roles", "1 negative, 1 positive"): 1,
        ("one_task_a_head", "True"): 1,
        ("one_task_a_head", "not measured"): 1,
    }

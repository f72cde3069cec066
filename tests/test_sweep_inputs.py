"""What a sweep's file and a question to its table may say, and what is refused in a sentence."""

import json
from contextlib import nullcontext

import pytest

from iclflow.cli import main
from iclflow.config import InputError, Limit, to_toml
from iclflow.sweeps import Table, _file, parse_sweep
from iclflow.sweeps._axes import parse_axes
from iclflow.sweeps._table import encode_part

BASE = {
    "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
    "model": {"kind": "separate", "heads": 2, "scale": 0.1},
    "flow": {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 60},
}
SCALES = {"model.scale": [0.3, 0.1]}
SCHEMA = {"run": "BIGINT", "model.scale": "DOUBLE", "last_time": "DOUBLE", "plateaus": "BIGINT"}


def sweep(**rest):
    return {"name": "small", "seeds": 2, "base": BASE, "axes": SCALES} | rest


@pytest.fixture(autouse=True)
def away_from_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table(tmp_path):
    rows = [
        {"run": i, "model.scale": 0.1 * i, "last_time": 5.0, "plateaus": i % 3} for i in range(9)
    ]
    file = tmp_path / "rows.parquet"
    file.write_bytes(encode_part(SCHEMA, rows, tmp_path))
    return Table([file])


@pytest.fixture
def asked(table, monkeypatch, capsys):
    """Answers `iclflow query` about the table."""
    monkeypatch.setattr(
        "iclflow.cli._query.open_table", lambda options, watched: nullcontext(table)
    )

    def ask(*words):
        code = main(["query", "any", *words])
        return code, *capsys.readouterr()

    return ask


# Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({"model.scale": [0.1], "model": {"scale": [0.2]}}, "`axes.model.scale` is given twice"),
        ({"theory": [True, False]}, "`axes.theory` cannot be an axis: it changes the figure"),
        ({"a": {"from": 1.0, "to": 1.0 + 2**-52, "count": 5}}, "so many different numbers"),
        ({"a": {"from": 10**17, "to": 10**17 + 16, "count": 9}}, "so many different numbers"),
        ({"a": {"from": -1.7e308, "to": 1.7e308, "count": 3}}, "so many different numbers"),
        ({"a": {"from": 1, "to": 10**400, "count": 3}}, "`axes.a.to` = 1000"),
        ({"a": {"from": 10**400, "to": 1, "count": 3, "log": True}}, "must be a finite number"),
        ({"a": {"from": 0, "to": 1, "count": 10**7}}, "`axes.a.count` = 10000000: must be a whole"),
        ({"a": [0.5] * (10**6 + 1)}, "`axes.a` holds 1000001 values: must be at most 1000000."),
        ({"a": [[1, 2], [1.0, 2]]}, "`axes.a` holds [1.0, 2] twice"),
    ],
)
def test_axes_that_cannot_be_meant_are_refused(axes, sentence):
    with pytest.raises(InputError) as refused:
        parse_axes(axes)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_too_many_points_are_refused_before_any_is_made(monkeypatch):
    def made(*_):
        raise AssertionError("a point was made")

    monkeypatch.setattr(_file, "_parse_config", made)
    scales = {"from": 0.1, "to": 1.0, "count": 10**5}
    axes = {"model.scale": scales, "flow.end": {"from": 1.0, "to": 2.0, "count": 11}}
    for axes, seeds, sentence in (
        (axes, 1, "The axes make 1100000 points: must be at most 1000000; `seeds` may make"),
        ({"model.scale": scales}, 101, "make 10100000 runs: must be at most 10000000."),
    ):
        with pytest.raises(InputError, match=sentence):
            parse_sweep({"base": {}, "axes": axes, "seeds": seeds})
    # A million runs are allowed, where there is memory for a list of them.
    least = Limit(2.0**29, "that this container allows")
    monkeypatch.setattr(_file, "memory_here", lambda: least)
    with pytest.raises(InputError, match="100000 points and 1000000 runs: listing them would need"):
        parse_sweep({"base": {}, "axes": {"model.scale": scales}, "seeds": 10})
    monkeypatch.undo()
    _file._check_count(10**5, 10)


def test_whole_ends_far_from_zero_keep_what_lies_between_them():
    first = 10**12
    (axis,) = parse_axes({"a": {"from": first, "to": first + 3, "count": 3}})
    assert axis.values == (first, first + 1.5, first + 3)


@pytest.mark.parametrize("entry", [["model.scale"], {"model.scale": 1}, 3, None])
def test_zips_name_axes(entry):
    with pytest.raises(InputError, match="`zip` names .*, which is no axis"):
        parse_sweep(sweep(zip=[[entry, "model.scale"]]))


def test_only_errors_that_the_axes_make_say_so():
    with pytest.raises(InputError) as refused:
        parse_sweep(sweep(name=3))
    assert "`name` = 3" in str(refused.value) and "[axes]" not in str(refused.value)
    with pytest.raises(InputError) as refused:
        parse_sweep(sweep(base=BASE | {"task": BASE["task"] | {"context": 0}}))
    assert "`task.context` = 0" in str(refused.value) and "[axes]" not in str(refused.value)
    with pytest.raises(InputError, match=r"`model.heads` = 0.*\(in \[axes\], at model.heads = 0\)"):
        parse_sweep(sweep(axes={"model.heads": [2, 0]}))


@pytest.mark.parametrize(
    ("flag", "key"), [("--seeds", "seeds"), ("--seed", "seeds"), ("--zip", "zip")]
)
def test_what_stands_in_the_file_is_no_flag(flag, key, tmp_path, capsys):
    (tmp_path / "small.toml").write_text(to_toml(sweep()))
    assert main(["sweep", "small.toml", flag, "3"]) == 2
    error = capsys.readouterr().err
    assert f"`{flag}` is not a flag: set `{key}` in the file instead." in error


# Questions ------------------------------------------------------------------------------------


def test_every_column_can_be_asked_by_its_name(table):
    for name in table.columns:
        assert len(table.ask(f"SELECT {name} FROM results")[1]) == 9, name


@pytest.mark.parametrize(
    "query",
    [
        "SELECT MODEL.SCALE FROM results",
        "SELECT results.model.scale FROM results",
        "SELECT r.Model.Scale FROM results r",
        "SELECT model.scale -- model.scale\nFROM results /* model.scale */",
    ],
)
def test_dotted_names_are_found_however_they_are_written(table, query):
    names, rows = table.ask(query)
    assert names == ["model.scale"] and len(rows) == 9


def test_texts_are_no_names(table):
    _, rows = table.ask("SELECT 'model.scale', $$model.scale$$, $a$model.scale$a$")
    assert rows == [("model.scale",) * 3]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("SELECT platea FROM results", "no column `platea`: did you mean `plateaus`?"),
        ("SELECT model.scal FROM results", "no column `model.scal`: did you mean `model.scale`?"),
        ("SELECT results.model.scal FROM results", "did you mean `model.scale`?"),
        ("SELECT xyz FROM results", "there are run, model.scale, last_time, plateaus."),
    ],
)
def test_a_misspelled_column_gets_a_suggestion(asked, query, sentence):
    code, out, error = asked(query)
    assert (code, out) == (2, "") and sentence in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "query", ["COPY results TO 'o.csv'", "UPDATE EXTENSIONS", "SELECT 1; DROP TABLE results", ""]
)
def test_what_is_no_question_is_refused(asked, query):
    code, out, error = asked(query)
    assert (code, out) == (2, "") and f"`query` = {query!r} is not one SELECT" in error


def test_a_sweep_that_is_not_there_gets_the_names_of_those_that_are(tmp_path, capsys):
    for name in ("first-0123", "second-4567"):
        (tmp_path / "sweeps" / name).mkdir(parents=True)
        (tmp_path / "sweeps" / name / "sweep.toml").write_text("")
    assert main(["query", "third"]) == 2
    assert "give a folder, or one of first-0123, second-4567." in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_flag_is_not_the_flag(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory").mkdir()
    assert main(["query", "memory", "SELECT 1", "--memory", "1"]) == 2
    assert "`--memory`" not in capsys.readouterr().err
    (tmp_path / "memory" / "config.toml").write_text("")
    assert main(["query", "memory", "SELECT 1", "--memory", "1"]) == 2
    assert "`memory` is the folder of a run" in capsys.readouterr().err


def test_no_question_shows_the_columns_and_the_first_runs(asked):
    code, out, _ = asked()
    assert code == 0 and "9 runs, 4 columns: run (bigint), model.scale (double)" in out
    assert "0.4" in out and "0.5" not in out
    assert len(json.loads(asked("--json")[1])) == 9


def test_a_wide_table_is_cut_with_a_word(asked):
    long = ", ".join(f"repeat('{i}', 90) AS column_{i:02}" for i in range(30))
    code, out, error = asked(f"SELECT {long}")
    assert code == 0 and max(map(len, out.splitlines())) <= 240
    assert "the last 18 of 30 columns are left out and long values are cut" in error
    code, out, error = asked("SELECT repeat('a', 200) AS a")
    assert code == 0 and "a" * 200 in out and error == ""


def test_json_has_numbers_and_loses_no_column(asked):
    code, out, _ = asked("SELECT 1.5 AS a, {'b': 'nan'::DOUBLE, 'c': [2.5]} AS d", "--json")
    assert code == 0 and json.loads(out) == [{"a": 1.5, "d": {"b": None, "c": [2.5]}}]
    code, out, error = asked("SELECT 1 AS a, 2 AS a", "--json")
    assert (code, out) == (2, "") and "`a` names two columns" in error

"""Bad input: one sentence, exit code 2, nothing left behind; never a traceback."""

import copy
import os
import random
import sys
from pathlib import Path

import jax
import pytest

from iclflow.cli import main
from iclflow.config import InputError, load_config, read_toml, to_toml
from iclflow.papers import STUDIES

STAIRCASE = Path(__file__).parent.parent / "examples" / "staircase.toml"


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves the user's compile cache alone."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)


@pytest.fixture
def no_computing(monkeypatch):
    """A run stops where it would begin to compute. Returns what has come that far."""
    reached = []

    def stop(config):
        reached.append(config)
        raise InputError("This one is good.")

    monkeypatch.setattr("iclflow.experiment._run.prepare", stop)
    return reached


def refused(words, capsys) -> str:
    """The one sentence with which a command line is refused."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code == 2, (words, captured)
    assert captured.out == ""
    assert captured.err.startswith("iclflow: ") and captured.err.count("\n") == 1
    assert captured.err.rstrip().endswith((".", "?"))
    assert "Traceback" not in captured.err
    return captured.err.removeprefix("iclflow: ").rstrip()


def leftovers() -> list[Path]:
    return list(Path.cwd().rglob("*"))


FILES = {
    "a covariance that is not positive definite": (
        {"task": {"eigenvalues": None, "covariance": [[1, 2], [2, 1]]}},
        "`task.covariance` has an eigenvalue -1: must be positive definite.",
    ),
    "a covariance that is not square": (
        {"task": {"eigenvalues": None, "covariance": [[1, 2, 3], [2, 1, 3]]}},
        "`task.covariance` has shape (2, 3): must be square.",
    ),
    "a prior that is not positive": (
        {"task": {"prior_covariance": [[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}},
        "`task.prior_covariance` has an eigenvalue -1: must be positive semi-definite.",
    ),
    "probabilities that are no probabilities": (
        {"task": {"context": [8, 16], "context_probabilities": [0.5, 0.6]}},
        "`task.context_probabilities` sum to 1.1: must be 1.",
    ),
    "a context listed twice": (
        {"task": {"context": [8, 8]}},
        "`task.context` = (8, 8): needs at least one length, each listed once.",
    ),
    "a fixed weight of the wrong length": (
        {"task": {"kind": "in_context_in_weight", "fraction": 0.5, "fixed_weight": [1.0]}},
        "`task.fixed_weight` has 1 entries: must have 4.",
    ),
    "a share above one": (
        {"task": {"kind": "in_context_in_weight", "fraction": 1.5}},
        "`task.fraction` = 1.5: must be at most 1.",
    ),
    "a rank above the dimension": (
        {"model": {"rank": 5}},
        "`model.rank` = 5: must not exceed the input dimension, 4.",
    ),
    "NaN": ({"task": {"noise": float("nan")}}, "`task.noise` = nan: must be finite."),
    "infinity": ({"model": {"scale": float("inf")}}, "`model.scale` = inf: must be finite."),
    "an unknown key": (
        {"model": {"head": 3}},
        "`model.head` is not a setting of [model]: did you mean `heads`?",
    ),
}


@pytest.mark.parametrize("changes, sentence", FILES.values(), ids=FILES)
def test_files_that_cannot_work_are_refused(changes, sentence, tmp_path, capsys):
    data = read_toml(STAIRCASE)
    for section, settings in changes.items():
        merged = {**data[section], **settings}
        data[section] = {key: value for key, value in merged.items() if value is not None}
    (tmp_path / "bad.toml").write_text(to_toml(data))
    assert refused(("run", tmp_path / "bad.toml"), capsys) == sentence
    assert leftovers() == []


def test_files_that_cannot_be_read_are_refused(tmp_path, capsys):
    (tmp_path / "bad.toml").write_text("[task\n")
    (tmp_path / "binary.toml").write_bytes(os.urandom(100) + b"\xff")
    (tmp_path / "empty.toml").write_text("")
    assert "is not valid TOML" in refused(("run", tmp_path / "bad.toml"), capsys)
    assert "must be TOML" in refused(("run", tmp_path / "binary.toml"), capsys)
    assert "does not exist" in refused(("run", tmp_path / "none.toml"), capsys)
    assert "is a folder" in refused(("run", tmp_path), capsys)
    assert "`task` is missing" in refused(("run", tmp_path / "empty.toml"), capsys)
    assert "File name too long" in refused(("run", "x" * 5000), capsys)
    if os.path.exists("/dev/zero"):  # it has no end
        assert "bytes long: must be a TOML file" in refused(("run", "/dev/zero"), capsys)
    assert leftovers() == []


def test_memory_that_runs_out_is_told_in_one_sentence_and_leaves_nothing(monkeypatch, capsys):
    def exhausted(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr("iclflow.experiment._run.train", exhausted)
    sentence = refused(("run", STAIRCASE), capsys)
    assert sentence.startswith("This needs more memory than there is") and leftovers() == []


@pytest.mark.skipif(sys.platform == "win32", reason="these paths are of Unix")
@pytest.mark.parametrize("folder", ["/dev/null/run", "/proc/run", "x" * 300, "a\0b"])
def test_folders_that_cannot_be_written_are_refused_before_computing(folder, no_computing, capsys):
    sentence = refused(("run", STAIRCASE, "--out", folder), capsys)
    assert "cannot be" in sentence and no_computing == [] and leftovers() == []
    assert "cannot be" in refused(("verify", "--tier", "smoke", "--out", folder), capsys)


def test_a_folder_without_permission_is_refused_before_computing(
    tmp_path, no_computing, monkeypatch, capsys
):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    # Permissions do not bind the superuser, who may be running this.
    monkeypatch.setattr("tempfile.TemporaryFile", forbidden)
    sentence = refused(("run", STAIRCASE, "--out", "a/b"), capsys)
    assert sentence == "`a/b` cannot be written to: Permission denied."
    assert no_computing == [] and leftovers() == []


def test_a_file_in_the_place_of_a_folder_is_refused(no_computing, capsys):
    Path("taken").write_text("mine")
    assert "is a file" in refused(("run", STAIRCASE, "--out", "taken"), capsys)
    assert "Not a directory" in refused(("run", STAIRCASE, "--out", "taken/below"), capsys)
    assert Path("taken").read_text() == "mine" and no_computing == []


def test_an_end_that_only_the_risk_finds_missing_leaves_nothing_behind(capsys):
    words = ("--model.form", "full", "--task.eigenvalues", ".5", ".4", "--model.heads", "2")
    assert "`flow.end` is needed" in refused(("run", STAIRCASE, *words), capsys)
    assert leftovers() == []


# Fuzzing --------------------------------------------------------------------------------------

JUNK = (
    *(-1, 0, 1, 2, 3, 10**30, -(10**30), 0.0, -0.0, 0.5, -2.5, 1e300, -1e300, 1e-300, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), True, False, "", "x", "linear", "merged", "ε\x7f"),
    *([], [0], [1.0, -1.0], ["x"], [[]], [[1.0]], [[1.0, 2.0], [2.0, 1.0]], [1e12] * 4),
    *({}, {"kind": "adam"}, {"kind": 3}, [{}], [float("nan")]),
)
KEYS = (
    "kind",
    "rank",
    "heads",
    "context",
    "noise",
    "end",
    "steps",
    "sequences",
    "count",
    "zzz",
    "",
)


def mutated(data: dict, chance: random.Random) -> dict:
    """A config with a few of its settings taken away, replaced by junk, added or moved."""
    data = copy.deepcopy(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        tables = [data] + [value for value in data.values() if isinstance(value, dict)]
        table = chance.choice(tables)
        key = chance.choice(sorted(table)) if table else "kind"
        change = chance.choice(("drop", "junk", "junk", "junk", "add", "swap"))
        if change == "drop":
            table.pop(key, None)
        elif change == "junk":
            table[key] = copy.deepcopy(chance.choice(JUNK))
        elif change == "add":
            table[chance.choice(KEYS)] = copy.deepcopy(chance.choice(JUNK))
        else:
            other = chance.choice(tables)
            if table is not data and other is not data and key in table:
                other[key] = table.pop(key)
    return data


def damaged(text: str, chance: random.Random) -> str:
    """A file with a few characters lost, doubled or replaced."""
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(("", "=", "[", '"', "\n", "\0", "é", "#", "1")) + text[
            place + chance.choice((0, 1)) :
        ]  # fmt: skip
    return text


def test_200_fuzzed_configs_never_give_a_traceback(tmp_path, no_computing, capsys):
    chance = random.Random(0)
    examples = [dict(study.data) for study in STUDIES.values()]
    path = tmp_path / "fuzzed.toml"
    sentences = []
    for _ in range(200):
        text = damaged(to_toml(mutated(chance.choice(examples), chance)), chance)
        path.write_text(text)
        sentences.append(refused(("run", path), capsys))
        assert leftovers() == [], text
    good = sentences.count("This one is good.")
    assert good == len(no_computing)
    # Both kinds must be there in number, or this would test little.
    assert 10 < good < 100 and len(set(sentences)) > 80


@pytest.mark.slow
def test_fuzzed_flags_never_give_a_traceback(no_computing, capsys):
    chance = random.Random(1)
    flags = (
        *("--seed", "--task.noise", "--task.context", "--task.eigenvalues", "--model.rank"),
        *("--model.kind", "--flow.kind", "--flow.end", "--save.kind", "--theory", "--name"),
        *("--risk.kind", "--nothing", "-x", "--", "--task", "--task.kind=", "--seed="),
    )
    values = ("3", "-1", "nan", "inf", "1e400", "", "x", "true", "merged", "sampled", "[1]", "é")
    for _ in range(60):
        words = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            words += [chance.choice(flags), *chance.choices(values, k=chance.choice((0, 1, 1, 2)))]
        refused(("run", STAIRCASE, *words), capsys)
        assert leftovers() == []


@pytest.mark.slow
def test_fuzzed_configs_that_are_good_run_to_an_end(tmp_path, capsys, sketched):
    """A few of them for real, made short: they end with a result, whatever it is."""
    chance = random.Random(2)
    small = {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 10},
        "model": {"kind": "separate", "heads": 2, "scale": 0.1},
        "flow": {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 10},
    }
    path, codes = tmp_path / "fuzzed.toml", []
    while len(codes) < 12:
        path.write_text(to_toml(mutated(small, chance)))
        try:
            config = load_config(path)
        except InputError:
            continue
        if getattr(config.flow, "steps", 0) > 100 or config.flow.kind == "gradient_flow":
            continue
        codes.append(main(["run", str(path), "--out", str(tmp_path / "run"), "--force", "--json"]))
        assert "Traceback" not in capsys.readouterr().err
    assert set(codes) <= {0, 1, 2} and 0 in codes

"""Following a record that another process writes."""

import json
import math
import os

import pytest

from iclflow.cli import main
from iclflow.watching import Columns, Follower, describe, describe_plateaus, named
from iclflow.watching._words import percent
from watch_records import Writer, line, look


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "training")


def read_all(follower: Follower) -> bool:
    """Reads what is new; whether there was anything."""
    changed, more = follower.read()
    while more:
        found, more = follower.read()
        changed = changed or found
    return changed


def steps(follower: Follower) -> list[float]:
    return list(follower.columns.steps)


def test_looks_are_read_as_they_are_written(writer):
    follower = Follower(writer.folder)
    assert read_all(follower) and steps(follower) == [] and follower.about["bayes_loss"] == 0.2
    writer.looks(0, 1)
    assert read_all(follower) and steps(follower) == [0, 10]
    assert not read_all(follower)
    half = line(2)
    writer.add(half[:100])
    assert not read_all(follower)
    writer.add(half[100:])
    assert read_all(follower) and steps(follower) == [0, 10, 20]
    assert [follower.look(index) for index in range(3)] == [look(0), look(1), look(2)]
    assert follower.last == look(2) and not follower.turns
    assert follower.columns.numbers["excess"][1] == pytest.approx(math.exp(-1 / 12))


def test_files_larger_than_a_chunk_are_read_in_parts(writer, monkeypatch):
    monkeypatch.setattr("iclflow.watching._follow._CHUNK", 1000)  # less than one line
    writer.looks(*range(30))
    follower = Follower(writer.folder)
    assert follower.read() == (True, True) and 0 < len(follower.columns) < 30
    assert read_all(follower) and steps(follower) == [10 * k for k in range(30)]
    assert follower.look(17) == look(17)


def test_a_training_that_resumes_replaces_the_steps_that_it_repeats(writer):
    follower = Follower(writer.folder)
    writer.looks(*range(6))
    writer.add(b'{"step": 60, "lo')
    read_all(follower)
    writer.resume(6)  # the process that goes on drops the line that was cut off
    assert read_all(follower)
    assert [(turn.kept, turn.kind) for turn in follower.turns] == [(6, "resumed")]
    writer.resume(4)
    writer.looks(4, 5, shift=0.125)
    assert read_all(follower) and steps(follower) == [0, 10, 20, 30, 40, 50]
    turn = follower.turns[-1]
    assert (turn.kept, turn.kind, turn.step) == (4, "replaced", 40)
    assert follower.look(3) == look(3) and follower.look(4) == look(4, 0.125)
    expected = look(5, 0.125)["loss"][0]
    assert follower.columns.numbers["loss"][5] == expected
    assert follower.columns.distances[0]["zero"][5] == pytest.approx(0.05 + 0.6 + 0.125)


def test_a_new_file_with_the_number_of_a_removed_one_is_noticed(writer):
    follower = Follower(writer.folder)
    writer.looks(0, 1)
    read_all(follower)
    inode = os.stat(writer.path).st_ino
    # As if it were another file: written in place, longer than before.
    writer.path.write_bytes(line(0) + line(1, 0.125) + line(2, 0.125))
    assert os.stat(writer.path).st_ino == inode
    read_all(follower)
    assert follower.turns[-1].kept == 1 and steps(follower) == [0, 10, 20]


def test_verdicts_are_read_when_they_change(writer):
    writer.looks(0, 1)
    follower = Follower(writer.folder)
    follower.read()
    assert follower.verdicts is None and follower.read() == (False, False)
    writer.judge(10)
    assert follower.read() == (True, False) and follower.verdicts["step"] == 10
    assert follower.read() == (False, False)
    (writer.folder / "verdicts.json").write_text("{")
    assert follower.read() == (True, False) and follower.verdicts is None


def test_a_training_that_resumes_with_other_plans_is_the_same_training(writer):
    writer.looks(0, 1)
    follower = Follower(writer.folder)
    read_all(follower)
    Writer(writer.folder, schedule="every 20 steps", steps=500)
    assert read_all(follower) and follower.turns == [] and len(follower.columns) == 2
    assert follower.about["schedule"] == "every 20 steps" and follower.about["steps"] == 500


def test_another_training_in_the_same_folder_is_another_record(writer):
    follower = Follower(writer.folder)
    writer.looks(0, 1, 2)
    read_all(follower)
    writer.path.unlink()
    Writer(writer.folder, seed=1).looks(0, shift=0.125)
    read_all(follower)
    assert follower.turns[-1].kind == "other" and follower.turns[-1].kept == 0
    assert steps(follower) == [0] and follower.last == look(0, 0.125)
    (writer.folder / "watch.json").unlink()
    read_all(follower)
    assert steps(follower) == [] and follower.state()[0] == "gone"


@pytest.mark.parametrize(
    "bad",
    [b"nonsense\n", b"[]\n", b"{}\n", b'{"step": 1}\n', line(9).replace(b'"near"', b'"near", 1')],
)
def test_a_line_that_is_damaged_ends_the_reading(writer, bad):
    follower = Follower(writer.folder)
    writer.looks(0)
    writer.add(bad)
    writer.looks(2)
    read_all(follower)
    assert follower.damage is not None and "line 2: it is damaged" in follower.damage
    assert steps(follower) == [0] and not read_all(follower)
    writer.resume(1)
    writer.looks(1)
    read_all(follower)
    assert follower.damage is None and steps(follower) == [0, 10]


def test_a_turn_is_seen_after_the_looks_that_it_takes_back_are_gone(writer):
    follower, counts = Follower(writer.folder), []

    class Turns(list):
        def append(self, turn):
            counts.append(len(follower.columns))
            super().append(turn)

    follower.turns = Turns()
    writer.looks(*range(6))
    read_all(follower)
    writer.resume(3)
    read_all(follower)
    Writer(writer.folder, seed=1)
    read_all(follower)
    assert counts == [3, 0] and [turn.step for turn in follower.turns] == [30, 0]


def test_a_record_that_was_repaired_is_read_on(writer):
    writer.looks(0)
    follower, path = Follower(writer.folder), writer.folder / "watch.json"
    read_all(follower)
    whole = path.read_bytes()
    path.write_bytes(b"{")
    assert read_all(follower) and "watch.json` " in str(follower.damage)
    path.write_bytes(whole)
    writer.looks(1)
    assert read_all(follower) and follower.damage is None and steps(follower) == [0, 10]


def test_a_training_that_ended_before_its_first_look_does_not_wait(writer):
    follower = Follower(writer.folder)
    read_all(follower)
    writer.end()
    assert follower.state() == ("ended", None, None)


def test_what_a_training_does_is_told_from_its_lock_and_its_pace(writer):
    follower = Follower(writer.folder)
    read_all(follower)
    assert follower.state()[0] == "waiting"
    writer.looks(*range(5))
    read_all(follower)
    written = os.stat(writer.path).st_mtime
    state, age, pace = follower.state(written + 1)
    assert (state, age, pace) == ("running", pytest.approx(1.0, abs=1e-3), 0.5)
    assert follower.state(written + 4.9)[0] == "running"  # in a moment nobody dies
    assert follower.state(written + 60)[0] == "silent"
    writer.end()
    assert follower.state(written + 1)[0] == "ended"


def test_a_schedule_with_growing_gaps_is_given_more_time(writer):
    follower = Follower(writer.folder)
    for number, seconds in enumerate([0, 1, 3, 9, 27, 81]):
        row = look(number) | {"seconds": float(seconds)}
        writer.add(json.dumps(row).encode() + b"\n")
    read_all(follower)
    written = os.stat(writer.path).st_mtime
    # The next look is expected after three times 54 seconds.
    assert follower.state(written + 600)[0] == "running"
    assert follower.state(written + 700)[0] == "silent"


@pytest.mark.parametrize(
    "distance, words",
    [(3e-8, "below 0.01 %"), (0.00314, "0.31 %"), (0.0996, "10 %"), (0.997, "100 %"),
     (1.0, "100 %"), (52.3, "5230 %"), (1e9, "1e+11 %")],
)  # fmt: skip
def test_distances_are_said_without_needless_digits(distance, words):
    assert percent(distance, 2) == words


def test_words_say_what_it_is_and_since_when():
    columns = Columns()
    for number in range(15):
        columns.add(look(number))
    words = describe(columns)
    assert words[0].startswith("Step 140: loss 0.511 ± 0.01, 0.311 above Bayes")
    assert words[1] == "Nearest: ridge regression, since step 100, now 5 % away."
    assert words[2] == "Before that: one gradient step from step 0 (5 % away)."
    unknown = look(15) | {"closeness": ["unknown"]}
    columns.add(unknown)
    assert (
        "No known estimator: ridge regression is the nearest, since step 100"
        in describe(columns)[1]
    )
    columns.add(look(16) | {"distances": [], "closeness": [], "excess": None})
    assert "too large" in describe(columns)[1] and "Bayes" not in describe(columns)[0]
    assert describe(Columns()) == []
    exact = look(17)
    exact["distances"][0][0]["distance"] = 3e-8
    columns.add(exact)
    assert describe(columns)[1].endswith("now below 0.01 % away.")
    assert named(columns.nearest[0]) == ["ridge regression", "one gradient step"]
    plateau = {"level": 1.0, "start": 0.0, "end": 40.0}
    assert describe_plateaus([plateau]) == "1 plateau of the loss so far: 1 from step 0 to 40."
    later = {"level": 0.5, "start": 60.0, "end": 90.0}
    assert describe_plateaus([plateau, later], [51.2]).endswith(
        "0.5 from step 60 to 90; half-way from one to the next at step 51."
    )


def test_a_training_that_is_watched_records_its_problems(writer):
    """The file of problems is read whole; what is no problem in it is left out."""
    follower = Follower(writer.folder)
    (writer.folder / "problems.jsonl").write_text(
        '[10, "out of luck."]\nnonsense\n[20, "again."]\n'
    )
    with open(writer.folder / "problems.jsonl", "ab") as stream:
        stream.write(b"\xff\n")  # not in UTF-8
    read_all(follower)
    assert follower.problems == {10: "out of luck.", 20: "again."}
    (writer.folder / "problems.jsonl").unlink()
    assert read_all(follower) and follower.problems == {}


# Tables -----------------------------------------------------------------------------------------


def command(capsys, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_a_record_is_queried_as_tables(writer, capsys):
    layer = {"name": "layers.0", "roles": ["positive", "idle"]}
    writer.looks(*range(12))
    writer.add(json.dumps(look(12) | {"layers": [layer]}).encode() + b"\n" + line(13)[:50])
    ask = lambda query: json.loads(command(capsys, "query", writer.folder, query, "--json")[1])
    (row,) = ask("SELECT count(*) AS n, max(step) AS last, min(loss) AS least FROM results")
    assert row == {"n": 13, "last": 120, "least": look(12)["loss"][0]}
    turned = ask("SELECT min(step) AS s FROM results WHERE nearest = 'ridge regression'")
    assert turned == [{"s": 100}]
    found = ask("SELECT * FROM distances WHERE step = 50 ORDER BY place")
    assert [row["estimator"] for row in found] == [
        *("one gradient step", "ridge regression", "least squares", "zero"),
    ]
    assert found[1]["distance"] == look(5)["distances"][0][1]["distance"] and found[0]["label"] == 1
    lengths = ask("SELECT length, loss, excess FROM lengths WHERE step = 50 ORDER BY length")
    assert [list(row.values()) for row in lengths] == [
        [length, loss[0], excess[0]]
        for length, loss, excess in zip(
            *(look(5)[name] for name in ("lengths", "losses", "excesses"))
        )
    ]
    roles = ask("SELECT role FROM heads WHERE step = 120 ORDER BY head")
    assert [row["role"] for row in roles] == ["positive", "idle"]
    code, out, _ = command(capsys, "query", writer.folder)
    assert code == 0 and "results, 13 rows" in out and "distances, 52 rows" in out
    code, _, error = command(capsys, "query", writer.folder, "SELECT estimatr FROM distances")
    assert code == 2 and "did you mean `estimator`?" in error


@pytest.mark.parametrize("bad", [b"{}\n", b"[]\n", b"\xff\n", b"nonsense\n", b'{"step": 1}\n'])
def test_a_query_of_a_damaged_record_names_the_line(writer, capsys, bad):
    writer.looks(0)
    writer.add(bad)
    code, out, error = command(capsys, "query", writer.folder)
    assert code == 2 and out == "" and "line 2: it is damaged" in error and error.count("\n") == 1


def test_a_folder_of_a_training_says_what_reads_it(writer, tmp_path, capsys):
    for words in (("show", writer.folder), ("plot", writer.folder, "--x", "step", "--y", "loss")):
        code, _, error = command(capsys, *words)
        assert code == 2 and "is the folder of a watched training" in error
        assert f"iclflow explore --watch {writer.folder}" in error
    code, out, error = command(capsys, "runs", "--root", tmp_path)
    assert code == 0 and "`icl.watch` recorded a training in" in out + error
    assert str(writer.folder) in out + error

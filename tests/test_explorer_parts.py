"""Parts of the explorer that need neither a server nor a browser."""

import asyncio
import itertools
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from explorer_client import STAIRCASE
from iclflow.config import parse_config
from iclflow.explorer._changes import changed, checked, field_in
from iclflow.explorer._exports import as_csv, as_json, as_program, as_toml
from iclflow.explorer._limits import LIMITS, Refusal, told_limits
from iclflow.explorer._presets import presets
from iclflow.explorer._queue import FairQueue
from iclflow.explorer._run_data import Points, RunData
from iclflow.explorer._session import Run, Session

KINDS = {
    "flow": ("gradient_flow", "gradient_descent", "sgd", "adam"),
    "task": (
        *("linear_regression", "in_context_in_weight", "multi_task", "quadratic", "sparse"),
        *("two_layer_relu", "decision_tree", "hermite"),
    ),
    "model": (
        *("merged", "separate", "structured", "factored", "stack"),
        *("multi_merged", "multi_factored", "multi_structured", "multi_blind", "multi_spectral"),
    ),
}


def new_run(session: Session, folder: Path, config: dict = STAIRCASE) -> Run:
    run = Run(session, parse_config(config), "a run", "run", {}, None, folder)
    session.runs[run.id] = run
    return run


# Changes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", KINDS)
def test_every_kind_can_be_chosen_from_presets_of_all_papers(section):
    for preset, kind in itertools.product(presets()[::5], KINDS[section]):
        given = preset.config.given()
        try:
            config, others = changed(given, f"{section}.kind", kind)
        except Refusal as refusal:
            # Tasks that overlap have no singular values of their own.
            assert "must not overlap" in str(refusal) and preset.id == "softmax/two-tasks"
            continue
        assert getattr(config, section).kind == kind
        assert f"{section}.kind" not in others


def test_a_change_that_works_changes_nothing_else():
    config, others = changed(parse_config(STAIRCASE).given(), "model.heads", 2)
    assert config.model.heads == 2 and others == []


def test_a_change_of_kind_keeps_what_the_new_kind_knows_too():
    config, others = changed(parse_config(STAIRCASE).given(), "model.kind", "merged")
    assert (config.model.kind, config.model.heads, config.model.scale) == ("merged", 4, 1e-2)
    assert others == []


def test_what_had_to_change_as_well_is_told():
    config, others = changed(parse_config(STAIRCASE).given(), "model.activation", "softmax")
    assert config.model.softmax and not config.exact
    assert others and "model.activation" not in others


def test_a_change_that_cannot_work_is_refused_at_its_setting():
    with pytest.raises(Refusal) as refusal:
        changed(parse_config(STAIRCASE).given(), "model.rank", 9)
    assert refusal.value.field == "model.rank" and "must not exceed" in str(refusal.value)


@pytest.mark.parametrize(
    "config, field",
    [
        ({**STAIRCASE, "model": {"kind": "separate", "heads": 17}}, "model.heads"),
        ({**STAIRCASE, "task": {**STAIRCASE["task"], "context": 2001}}, "task.context"),
        (
            {**STAIRCASE, "task": {"kind": "linear_regression", "eigenvalues": [1.0] * 33}},
            "task.eigenvalues",
        ),
        (
            {**STAIRCASE, "flow": {"kind": "adam", "learning_rate": 1.0, "steps": 10**6}},
            "flow.steps",
        ),
        ({**STAIRCASE, "colour": 1}, None),
        ([], "config"),
        ({**STAIRCASE, "task": {"kind": "linear_regression"}}, "task.eigenvalues"),
    ],
)
def test_what_is_too_large_or_wrong_is_refused_with_the_name_of_its_setting(config, field):
    with pytest.raises(Refusal) as refusal:
        checked(config)
    assert refusal.value.field == field and str(refusal.value).endswith((".", "?"))


def test_every_limit_is_stated_to_the_page_and_no_preset_is_beyond_one():
    told = told_limits()
    assert {limit.words for limit in LIMITS} <= {entry["words"] for entry in told}
    for preset in presets():
        assert checked(preset.config.given()) == preset.config


def test_the_setting_that_a_sentence_is_about_is_found():
    assert field_in("`model.rank` = 9: must not exceed `task.inputs`.") == "model.rank"
    assert field_in("Nothing is named here.") is None


# The queue --------------------------------------------------------------------------------------


def test_pages_take_turns_whoever_asked_for_more(tmp_path):
    greedy, modest = Session(), Session()
    queue = FairQueue()
    first, second, third = (new_run(greedy, tmp_path) for _ in range(3))
    for run in (first, second, third):
        queue.add(run)
    late = new_run(modest, tmp_path)
    queue.add(late)
    assert list(queue.order()) == [first, late, second, third]
    assert [queue.next() for _ in range(5)] == [first, late, second, third, None]


def test_a_run_that_is_taken_out_of_the_queue_leaves_the_others(tmp_path):
    page = Session()
    queue = FairQueue()
    runs = [new_run(page, tmp_path) for _ in range(3)]
    for run in runs:
        queue.add(run)
    assert queue.remove(runs[1]) and not queue.remove(runs[1])
    assert len(queue) == 2 and list(queue.order()) == [runs[0], runs[2]]
    assert not queue.waits_besides(page.id) and queue.waits_besides("another")


# Events and points ------------------------------------------------------------------------------


def test_only_the_newest_word_of_how_far_a_run_is_stays(tmp_path):
    page = Session()
    run = new_run(page, tmp_path)
    page.publish(run, "queued", place=3, config={})
    for place in (2, 1):
        page.publish(run, "queued", place=place)
        page.publish(run, "progress", steps=place)
    told = [json.loads(text) for _, text in page.after(0)]
    assert [(e["type"], e.get("place", e.get("steps"))) for e in told] == [
        ("queued", 3),
        ("queued", 1),
        ("progress", 1),
    ]


def test_a_stream_that_comes_back_gets_exactly_what_it_missed(tmp_path):
    page = Session()
    run = new_run(page, tmp_path)
    for i in range(5):
        page.publish(run, "points", step=i)
    events = page.after(0)
    assert [json.loads(text)["step"] for _, text in events] == [0, 1, 2, 3, 4]
    assert page.after(events[2][0]) == events[3:] and page.after(events[-1][0]) == []


def test_a_run_that_is_forgotten_takes_its_events_with_it(tmp_path):
    page = Session()
    kept, dropped = new_run(page, tmp_path), new_run(page, tmp_path)
    for run in (kept, dropped, kept):
        page.publish(run, "points")
    page.forget(dropped)
    told = [json.loads(text) for _, text in page.after(0)]
    assert [(event["run"] == kept.id, event["type"]) for event in told] == [
        (True, "points"),
        (True, "points"),
        (False, "forgotten"),
    ]


def test_waiting_for_events_ends_when_there_is_one(tmp_path):
    async def waited() -> int:
        page = Session()
        run = new_run(page, tmp_path)
        asyncio.get_running_loop().call_later(0.05, page.publish, run, "progress")
        await asyncio.wait_for(page.more(30), 5)
        return len(page.after(0))

    assert asyncio.run(waited()) == 1


def points(start: int, times: list[float]) -> tuple[int, Points, dict]:
    values = np.asarray(times)
    frames = {start + i: {"KQ": np.full((2, 1, 1), t, np.float32)} for i, t in enumerate(times)}
    lines = {"mu": np.stack([values, -values], 1)}
    return start, Points(values, -values, lines, [["idle", "idle"]] * len(times)), frames


def test_points_replace_those_that_were_provisional():
    data = RunData()
    data.add(*points(0, [0.0, 1.0, 1.5]))
    data.add(*points(2, [2.0, 3.0]))
    joined = data.points()
    assert joined.times.tolist() == [0, 1, 2, 3] and data.count == 4
    assert joined.lines["mu"][:, 1].tolist() == [0, -1, -2, -3] and len(joined.roles) == 4
    assert [float(data.frame(i)[1]["KQ"][0, 0, 0]) for i in range(4)] == [0, 1, 2, 3]


def test_points_that_were_handed_out_never_change():
    data = RunData()
    data.add(*points(0, [0.0, 1.0, 1.5]))
    before = data.points()
    data.add(*points(2, [2.0, 3.0]))
    assert before.times.tolist() == [0, 1, 1.5] and len(before.roles) == 3


def test_a_moment_without_weights_of_its_own_has_those_before_it():
    data = RunData()
    start, given, frames = points(0, [0.0, 1.0, 2.0])
    del frames[1]
    data.add(start, given, frames)
    place, frame = data.frame(1)
    assert place == 0 and frame["KQ"][0, 0, 0] == 0.0


# Exports ----------------------------------------------------------------------------------------


def test_settings_as_a_file_are_the_same_settings(tmp_path):
    config = parse_config(STAIRCASE)
    assert parse_config(tomllib.loads(as_toml(config).decode())) == config


def test_data_as_tables_hold_every_point_and_line():
    _, given, _ = points(0, [0.0, 1.0, 2.5])
    panels = {"clock": "time", "panels": [{"id": "mu", "series": ["head 1", "head 2"]}]}
    told = {"panels": json.dumps({"type": "panels", **panels})}
    rows = as_csv(given, told).decode().splitlines()
    assert rows[0] == "time,loss,mu: head 1,mu: head 2" and rows[3] == "2.5,-2.5,2.5,-2.5"
    content = json.loads(as_json({"config": STAIRCASE}, given, told))
    assert content["times"] == [0, 1, 2.5] and content["config"] == STAIRCASE
    assert content["panels"] == panels


def test_the_program_of_a_run_makes_it_again_to_the_bit(tmp_path):
    from iclflow.experiment import prepare, train

    config = parse_config(STAIRCASE)
    program = as_program(config, 'a "title"\nwith \\ odd """ parts').decode()
    (tmp_path / "again.py").write_text(program + "print(repr(float(run.losses[-1])))\n")
    command = [sys.executable, str(tmp_path / "again.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    watched = train(prepare(config), lambda status: None, None, 500)
    assert float(done.stdout.splitlines()[-1]) == float(watched.losses[-1])

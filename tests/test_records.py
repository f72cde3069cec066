"""Recorded results: written once, shown apart, and compared with what is computed anew."""

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from iclflow.papers import Check, Claim, Lab, Outcome, once, run_claim
from iclflow.papers._hashes import hash_runs
from iclflow.report import RunInfo, render_report
from iclflow.runtime import _start, source_commit
from iclflow.verification import _record, compare, read_records, write_records

INFO = RunInfo("2025-01-02 03:04", "paper", False, 61.5, "Linux, an H200", {"jax": "0.11"})
ID = "linear/pcr"
ROOT = Path(__file__).resolve().parent.parent


def outcome(measured=1.25, verdict="holds", hashes=(), **fields) -> Outcome:
    claim = Claim(ID, "linear", "A statement.", "Eq. (22)", "paper", "A reason.", lambda lab: [])
    check = Check("a check", 1.25, measured, 0.01, **fields)
    return Outcome(claim, (check,), verdict, "", 1.5, {"heads": 4}, dict(hashes))


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Writes a record and reads it back."""
    monkeypatch.setattr(_record, "_home", lambda: tmp_path)

    def make(given: Outcome):
        (path,) = write_records([given], INFO, tmp_path)
        assert path.name == "linear-pcr.json"
        return read_records()[ID]

    return make


def test_a_record_keeps_numbers_settings_versions_device_date_and_command(record):
    kept = record(outcome(hashes={"run 1": "ab"})).as_json()
    assert kept["machine"] == "Linux, an H200" and kept["versions"] == {"jax": "0.11"}
    assert kept["date"] == INFO.date and kept["command"].endswith(f"--tier paper --claim {ID}")
    assert kept["config"] == {"heads": 4} and kept["hashes"] == {"run 1": "ab"}
    assert kept["checks"][0]["measured"] == 1.25 and kept["verdict"] == "holds"


@pytest.mark.parametrize(
    "fresh, wanted",
    [
        (outcome(1.25, hashes={"run 1": "ab"}), "same bits"),
        (outcome(1.255), "agrees"),
        (outcome(1.265), "differs"),
        (outcome(1.25, verdict="fails"), "differs"),
        (outcome(1.25, comparison="relative"), "agrees"),
    ],
)
def test_a_fresh_result_agrees_within_the_tolerance_of_its_check(record, fresh, wanted):
    assert compare(fresh, record(outcome(hashes={"run 1": "ab"})))[0] == wanted


def test_a_record_names_the_commit_and_those_without_one_are_read(record, tmp_path):
    record(outcome())
    path = tmp_path / "linear-pcr.json"
    data = json.loads(path.read_text())
    assert data.pop("commit") == ""
    path.write_text(json.dumps(data))
    assert read_records()[ID].info.commit == ""
    path.write_text(json.dumps(data | {"commit": f"{40 * 'a'}-dirty"}))
    kept = read_records()[ID].info
    assert kept.software == f"jax 0.11 (commit {10 * 'a'}-dirty)"


def test_the_commit_of_a_checkout_is_known_and_that_of_another_project_is_not_taken(monkeypatch):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("the tests run outside of a checkout")
    assert source_commit().removesuffix("-dirty") == head.stdout.strip()
    monkeypatch.setattr(_start, "__file__", str(ROOT / "lib" / "iclflow" / "runtime" / "_start.py"))
    assert source_commit() == ""


def test_counts_need_only_pass_as_before(record):
    kept = record(outcome(30, comparison="equal", verdict="misstated"))
    assert compare(outcome(28, comparison="equal", verdict="misstated"), kept)[0] == "agrees"


def test_a_check_that_is_gone_is_a_difference(record):
    kept = record(outcome())
    renamed = dataclasses.replace(outcome().checks[0], name="another")
    assert compare(dataclasses.replace(outcome(), checks=(renamed,)), kept) == (
        "differs",
        "another; a check",
    )


def test_the_page_shows_records_apart_from_what_was_computed(record):
    kept = record(outcome())
    beside = render_report([outcome()], [], INFO, (), [kept])
    assert "Recorded elsewhere" in beside and "elsewhere, not computed here" not in beside
    alone = render_report([outcome_of("linear/levels")], [], INFO, (), [kept])
    assert "Recorded elsewhere, not computed here" in alone and "an H200" in alone


def outcome_of(id: str) -> Outcome:
    return dataclasses.replace(outcome(), claim=dataclasses.replace(outcome().claim, id=id))


def test_a_broken_record_is_named(record, tmp_path):
    record(outcome())
    (tmp_path / "linear-pcr.json").write_text(json.dumps({"claim": ID}))
    with pytest.raises(ValueError, match="linear-pcr.json` is not a recorded result"):
        read_records()


class Run:
    def __init__(self, losses):
        self.times, self.losses, self.weights = np.arange(2.0), np.array(losses), np.ones(3)


def test_hashes_see_every_bit_of_trajectories_and_nothing_else():
    one, same, other = Run([1.0, 2.0]), Run([1.0, 2.0]), Run([1.0, 2.0 + 4e-16])
    assert hash_runs([one, 3]) == hash_runs({"a": same}) != hash_runs([other])
    assert hash_runs({"a": 1.0, "b": "words"}) is None


@once
def make_run(lab, size):
    return Run([size, 2.0])


@once
def measure(lab):
    return make_run(lab, 1.0).losses[0]


def test_a_claim_keeps_the_hashes_of_what_it_rests_on_also_if_it_was_computed_before():
    def test(lab):
        return [lab.close("x", 1.0, measure(lab), 0.01)]

    claim = dataclasses.replace(outcome().claim, test=test)
    lab = Lab()
    first, second = (run_claim(claim, lab).hashes for _ in range(2))
    assert first == second == {"make_run 1": hash_runs(Run([1.0, 2.0]))}


@once
def last_losses(lab):
    runs = [Run([1.0, 2.0]), Run([1.0, 3.0])]
    lab.hash_runs(runs)
    return [run.losses[-1] for run in runs]


def test_a_result_without_trajectories_has_the_hash_of_all_that_it_was_measured_on():
    def test(lab):
        return [lab.close("x", [2.0, 3.0], last_losses(lab), 0.01)]

    lab, claim = Lab(), dataclasses.replace(outcome().claim, test=test)
    wanted = {"last_losses 1": hash_runs([Run([1.0, 2.0]), Run([1.0, 3.0])])}
    assert run_claim(claim, lab).hashes == run_claim(claim, lab.bent()).hashes == wanted


def test_the_records_of_the_package_are_of_known_claims_and_whole():
    for id, kept in read_records().items():
        assert kept.info.tier == "paper" and kept.checks, id
        assert kept.outcome["verdict"] != "fails", id

"""Claims and figures in several processes."""

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from iclflow.cli import main
from iclflow.files import MARKER
from iclflow.papers import FIGURES, Lab, Outcome, run_claim, select_claims
from iclflow.verification import _jobs as jobs
from iclflow.verification._jobs import Settings, Topic, choose_topic, compute, topics_of

# Quick, from two topics, and with a figure each.
CLAIMS = ("linear/white-sigmoid", "linear/scalar-ode")


def die(pipe, settings):
    """A process that is killed at its first claim."""
    pipe.recv()
    os.kill(os.getpid(), 9)


def die_unread(pipe, settings):
    """A process that is killed before it heard of a claim."""
    os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_several_processes_find_what_one_finds(tmp_path, capsys):
    flags = [word for id in CLAIMS for word in ("--claim", id)]
    assert main(["verify", *flags, "--jobs", "2", "--out", str(tmp_path)]) == 0
    assert "2 hold" in capsys.readouterr().out
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    alone = [run_claim(claim, Lab()).as_json() for claim in select_claims(CLAIMS)]
    for ours, theirs in zip(claims, alone, strict=True):
        for key in ("id", "predicted", "measured", "verdict", "config"):
            assert ours[key] == theirs[key]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [MARKER, "claims.json", "figures", "report.html"]
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert "linear-scalar-ode.pdf" in figures and "linear-white.png" in figures


def test_a_figure_that_breaks_is_an_error(tmp_path, monkeypatch, capsys):
    def draw(lab):
        raise ValueError("no data")

    broken = dataclasses.replace(FIGURES["linear/white"], draw=draw)
    monkeypatch.setitem(FIGURES._items, "linear/white", broken)  # pyright: ignore
    words = ["verify", "--claim", "linear/white-sigmoid", "--jobs", "1", "--out", str(tmp_path)]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "1 figure could not be drawn: linear/white.\n" in printed.out
    assert "✗ figure linear/white: ValueError: no data" in printed.out + printed.err
    (figure,) = json.loads((tmp_path / "claims.json").read_text())["figures"]
    assert figure["problem"] == "ValueError: no data"


@pytest.fixture
def copies(monkeypatch):
    """Processes that are copies of this one: they load no modules, but may not compute."""
    copying = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: copying)


# Both JAX and Python warn that threads are not copied.
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("death", [die, die_unread])
def test_what_a_dead_process_owes_is_reported(death, tmp_path, monkeypatch, copies):
    monkeypatch.setattr(jobs, "_serve", death)
    topics = [Topic((id,), ("linear/scalar-ode",) if id == CLAIMS[1] else ()) for id in CLAIMS]
    falsify, verdict = (False, "fails") if death is die else (True, "inconclusive")
    results = list(compute(topics, Settings("smoke", falsify, tmp_path), 2))
    outcomes = {r.claim.id: r for r in results if isinstance(r, Outcome)}
    assert set(outcomes) == set(CLAIMS)
    assert all(outcome.verdict == verdict for outcome in outcomes.values())
    assert "process ended with -9 (out of memory?)" in outcomes[CLAIMS[0]].reason
    (figure,) = (r for r in results if not isinstance(r, Outcome))
    assert figure.name == "linear/scalar-ode" and "-9" in figure.problem


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_told_to_end_leaves_nothing_behind(number, tmp_path):
    out = tmp_path / "o"
    words = ["verify", "--claim", "linear/", "--jobs", "2", "--out", str(out)]
    command = [sys.executable, "-m", "iclflow", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.glob("o/.figures-*")):
        time.sleep(0.1)
        assert process.poll() is None
    time.sleep(1)  # the others are loading modules
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert error == "iclflow: interrupted; no report was written.\n"
    assert not out.exists()
    with pytest.raises(ProcessLookupError):  # soon nobody of the family is left
        for _ in range(50):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_claims_go_with_those_beside_them_and_figures_with_the_first_that_names_them():
    claims = select_claims((), "linear")
    names = list(dict.fromkeys(name for claim in claims for name in claim.figures))
    topics = topics_of(claims, names)
    assert [id for topic in topics for id in topic.claims] == [claim.id for claim in claims]
    assert sorted(name for topic in topics for name in topic.figures) == sorted(names)
    for topic in topics:
        chosen = select_claims(topic.claims)
        assert len({claim.test.__module__ for claim in chosen}) == 1
        assert set(topic.figures) <= {name for claim in chosen for name in claim.figures}


@pytest.mark.parametrize(
    ("left", "last", "chosen"),
    [
        (range(9), None, 0),  # the first process begins at the beginning
        (range(1, 9), None, 5),  # the second in the middle
        ({1, 2, 6, 7}, 0, 1),  # each goes on with the next
        ({1, 2, 3, 7}, 8, 2),  # or in the middle of what is left
        ({4}, 2, 4),
    ],
)
def test_processes_keep_to_their_neighbourhood(left, last, chosen):
    assert choose_topic(left, last) == chosen


@pytest.mark.parametrize("count", ["0", "-3"])
def test_no_process_at_all_is_refused(count, capsys):
    assert main(["verify", "--jobs", count]) == 2
    assert f"`--jobs` = {count}: must be at least 1" in capsys.readouterr().err

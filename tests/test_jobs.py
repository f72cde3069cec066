"""Claims and figures in several processes."""

import json
import os

import pytest

from iclflow.claims import Outcome, select_claims
from iclflow.cli import _jobs as jobs
from iclflow.cli import main
from iclflow.cli._jobs import Settings, Topic, compute, next_topic, topics_of

# Quick, from two topics, and with a figure each.
CLAIMS = ("linear/scalar-ode", "softmax/linear-longer-contexts")


def die(pipe, settings):
    """A process that is killed at its first claim."""
    pipe.recv()
    os.kill(os.getpid(), 9)


def test_several_processes_find_what_one_finds(tmp_path, capsys):
    found = {}
    for count in (1, 2):
        flags = [word for id in CLAIMS for word in ("--claim", id)]
        out = tmp_path / str(count)
        assert main(["verify", *flags, "--jobs", str(count), "--out", str(out)]) == 0
        claims = json.loads((out / "claims.json").read_text())["claims"]
        found[count] = [(c["id"], c["predicted"], c["measured"], c["verdict"]) for c in claims]
        figures = sorted(path.name for path in (out / "figures").iterdir())
        assert "linear-scalar-ode.pdf" in figures and "softmax-context.png" in figures
        assert sorted(path.name for path in out.iterdir()) == [
            "claims.json",
            "figures",
            "report.html",
        ]
    assert found[1] == found[2]
    assert [id for id, *_ in found[2]] == list(CLAIMS)
    assert "2 hold" in capsys.readouterr().out


def test_what_a_dead_process_owes_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_serve", die)
    topics = [Topic((id,), ("linear/scalar-ode",) if id == CLAIMS[0] else ()) for id in CLAIMS]
    for falsify, verdict in ((False, "fails"), (True, "inconclusive")):
        results = list(compute(topics, Settings("smoke", falsify, tmp_path), 2))
        outcomes = {r.claim.id: r for r in results if isinstance(r, Outcome)}
        assert set(outcomes) == set(CLAIMS)
        assert all(outcome.verdict == verdict for outcome in outcomes.values())
        assert "process ended with -9 (out of memory?)" in outcomes[CLAIMS[0]].reason
        (figure,) = (r for r in results if not isinstance(r, Outcome))
        assert figure.name == "linear/scalar-ode" and "-9" in figure.problem


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
    assert next_topic(left, last) == chosen


@pytest.mark.parametrize("count", ["0", "-3"])
def test_no_process_at_all_is_refused(count, capsys):
    assert main(["verify", "--jobs", count]) == 2
    assert f"`--jobs` = {count}: must be at least 1" in capsys.readouterr().err

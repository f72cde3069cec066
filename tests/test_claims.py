import dataclasses
import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import deterministic_merged
from iclflow.analysis import StationaryPoints
from iclflow.experiment import prepare, train
from iclflow.models import Attention
from iclflow.papers import (
    CLAIMS,
    Check,
    Claim,
    Given,
    Inconclusive,
    Lab,
    all_claims,
    claim_on_run,
    once,
    run_claim,
    select_claims,
    study,
)
from iclflow.papers.linear.claims_merged import require_converged, white_sigmoid
from iclflow.papers.linear.claims_order import name_sets
from iclflow.papers.linear.claims_rank import (
    conspicuous_plateaus,
    rank_count,
    rank_divisor,
    rank_plateaus,
)
from iclflow.papers.linear.runs import eight_components
from iclflow.papers.linear.runs_rank import RankRuns, Sample, rank_runs
from iclflow.report import error_text


def make_claim(test, **fields) -> Claim:
    return Claim("linear/test", "linear", "A sentence.", "nowhere", "smoke", "none", test, **fields)


@pytest.mark.parametrize(
    ("check", "error", "passed"),
    [
        (Check("absolute", [1.0, 2.0], [1.1, 2.0], 0.2), 0.1, True),
        (Check("absolute", [1.0, 2.0], [1.1, 2.5], 0.2), 0.5, False),
        (Check("relative", 200.0, 201.0, 0.01, "relative"), 0.005, True),
        (Lab().sampled("drawn", [1.0, 2.0], [1.3, 2.0], [0.1, 0.2]), 3.0, True),
        (Lab().sampled("drawn, far", 1.0, 1.5, 0.1), 5.0, False),
        (Lab().sampled("drawn, without spread", 1.0, 1.5, 0.0), np.inf, False),
        (Check("equal", (0, 1), [0, 1], comparison="equal"), 0.0, True),
        (Check("equal, ragged", [[], [0]], [[], [1]], comparison="equal"), np.inf, False),
        (Check("at least", 0.9, 0.95, comparison="at least"), 0.0, True),
        (Check("at least", 0.9, 0.85, comparison="at least"), 0.05, False),
        (Check("at most", [1.0, 1.0], [0.5, 1.5], comparison="at most"), 0.5, False),
        (Check("shapes differ", [1.0, 2.0], [1.0, 2.0, 3.0], 9.0), np.inf, False),
        (Check("nothing measured", 0.0, [], 9.0), np.inf, False),
        (Check("one number for two", [1.0, 2.0], 1.0, 9.0), np.inf, False),
        (Check("not a number", 1.0, np.nan, 9.0), np.inf, False),
    ],
    ids=lambda value: value.name if isinstance(value, Check) else None,
)
def test_a_check_measures_the_deviation_that_its_tolerance_bounds(check, error, passed):
    assert check.error == pytest.approx(error)
    assert check.passed is passed


def test_a_check_of_other_shapes_says_both():
    short, empty = Check("levels", [1.0, 2.0], [1.0], 0.1), Check("none", 0.0, [], 9.0)
    assert short.mismatch == "predicted with the shape (2,), measured with (1,)"
    assert empty.mismatch == "predicted with the shape (), measured with (0,)"
    for good in (Check("one for all", 1.0, [1.0, 2.0]), Check("same", [[], [0]], 1, 0, "equal")):
        assert good.mismatch == ""
    outcome = run_claim(make_claim(lambda lab: [short]), Lab())
    assert outcome.reason == f"failed: levels ({short.mismatch})"
    for check in (short, Lab().at_most("bound", [1.0, 2.0], [1.0])):
        assert error_text(check) == short.mismatch


def test_a_claim_of_one_run_may_make_several_of_its_own():
    config, runs = study("linear/white"), [[1.0, 2.0], [3.0]]

    def on(lab):
        return (Given(config, None, run[0], own=True, seeds=run) for run in runs)

    def test(given, lab):
        yield lab.close("values", given.each(lambda x: x), given.each(lambda x: x + 0.1), 0.2)

    words = {"source": "nowhere", "tolerance_reason": "none", "tolerance_on_any_run": "none"}
    made = claim_on_run("linear/test", "A sentence.", on=on, needs=(), **words)(test)
    try:
        checks = run_claim(made, Lab()).checks
    finally:
        del CLAIMS._items["linear/test"]
    assert [check.predicted for check in checks] == runs
    alone = Given(config, None, 1.0)
    assert alone.each(lambda x: x) == 1.0 and alone.runs == (1.0,)


def test_verdicts_follow_from_the_checks():
    good, bad = Check("good", 1.0, 1.0), Check("bad", 1.0, 2.0)
    lab = Lab()
    assert run_claim(make_claim(lambda lab: [good]), lab).verdict == "holds"
    failed = run_claim(make_claim(lambda lab: [good, bad]), lab)
    assert failed.verdict == "fails" and failed.reason == "failed: bad" and failed.worst is bad
    for check, verdict in ((bad, "misstated"), (good, "holds")):
        stated = make_claim(lambda lab, check=check: [check], corrected_by="linear/honest")
        assert run_claim(stated, lab).verdict == verdict


def test_an_undecided_claim_says_why():
    def test(lab):
        raise Inconclusive("too few seeds")

    outcome = run_claim(make_claim(test), Lab())
    assert (outcome.verdict, outcome.reason) == ("inconclusive", "too few seeds")


def test_a_check_that_cannot_fail_is_found_by_falsification():
    def falsify(*tolerances):
        test = lambda lab: [lab.close(f"within {t}", 2.0, 2.0, t) for t in tolerances]
        outcome = run_claim(make_claim(test), Lab(falsify=True))
        return outcome.verdict, outcome.reason

    assert falsify(0.01) == ("fails", "")
    assert falsify(0.01, 1.0) == ("fails", "too coarse to notice: within 1.0")
    assert falsify(1.0) == ("holds", "no check notices predictions that are wrong by 3 %")
    assert falsify(0.01, 5.0) == ("holds", "cannot fail: within 5.0")


def test_wrong_predictions_are_off_by_three_per_cent_by_one_or_reversed():
    lab = Lab(falsify=True)
    assert lab.relative("x", 2.0, 2.0, 0.1).predicted == pytest.approx(2.06)
    assert lab.close("x", 0.0, 0.0, 0.1, scale=2.0).predicted == pytest.approx(0.06)
    assert lab.equal("x", [3, True], [3, True]).predicted == [4, False]
    for bound in (lab.at_least, lab.at_most):
        # A bound that is met exactly is one whose reverse is refuted too.
        assert not bound("x", 1.0, 1.0).passed
    assert not lab.at_least("x", 1.0, 1.1).passed and lab.at_least("x", 1.0, 0.9).passed
    assert not lab.at_most("x", 1.0, 0.9).passed and lab.at_most("x", 1.0, 1.1).passed


def test_an_outcome_is_plain_json():
    def test(lab):
        lab.note(scale=np.float64(0.1), seeds=(1, 2))
        return [Check("levels", np.array([1.0, np.inf]), np.array([1.0, 2.0]), 0.1)]

    text = json.dumps(run_claim(make_claim(test), Lab()).as_json(), allow_nan=False)
    fields = {"id", "paper", "statement", "predicted", "measured", "error", "tolerance"}
    fields |= {"tolerance_reason", "verdict", "seconds", "config"}
    assert fields <= set(json.loads(text))


def test_every_claim_is_complete_and_every_correction_exists():
    known = {claim.id for claim in all_claims()}
    assert len(known) == len(all_claims()) > 25
    for claim in all_claims():
        assert claim.statement.endswith(".") and claim.source and claim.tolerance_reason
        assert not claim.fault or claim.corrected_by in known
        assert not claim.overread or claim.corrected_by


def test_claims_are_selected_by_id_paper_and_tier():
    assert [c.id for c in select_claims(["linear/cascade"])] == ["linear/cascade"]
    assert select_claims(["linear/"]) == select_claims(paper="linear", tier="paper")
    assert {c.tier for c in select_claims(tier="smoke")} == {"smoke"}
    with pytest.raises(ValueError, match="`claim` = 'linear/nothing' is not a claim: `iclflow"):
        select_claims(["linear/nothing"])
    with pytest.raises(ValueError, match=r"is not a claim: did you mean linear/cascade\?"):
        select_claims(["linear/cascad"])


# Claims of linear attention, on runs made by hand ---------------------------------------------


def ranked(rank: int, brief: float, seeds: int = 2) -> RankRuns:
    """Runs in which plateaus that wait for a new head last 100 drops, and the others `brief`."""
    new = np.arange(8) % rank == 0
    scale = 1 / np.square(np.diag(eight_components().covariance))
    durations = np.tile(np.where(new, 100.0, brief) * scale, (seeds, 1))
    ones, nothing = np.tile(scale, (seeds, 1)), np.full((seeds, 8), np.nan)
    rests = np.where(new, durations / 2, np.nan)
    sample = Sample(*(np.zeros(1) for _ in Sample._fields))
    return RankRuns(durations, ones, rests, rests, nothing, nothing, [], sample)


@pytest.mark.parametrize("brief, verdict", [(2.0, "holds"), (11.0, "fails")])
def test_plateaus_of_each_rank_are_counted_by_how_long_they_last(brief, verdict):
    lab = Lab("smoke")
    for rank in (1, 2, 4, 8):
        lab.assume(ranked(rank, brief), rank_runs, rank, 2)
    # The source has no rule, so that the claim itself is undecided.
    decided = dataclasses.replace(rank_count, undecided="")
    assert run_claim(decided, lab).verdict == verdict
    assert run_claim(rank_count, lab).verdict == "inconclusive"
    assert run_claim(rank_count, lab.bent()).verdict == "fails"
    # What stands out is a factor of five, however many drops it lasts.
    assert run_claim(rank_plateaus, lab).verdict == "holds"
    assert run_claim(rank_divisor, lab).verdict == "misstated"


def test_without_a_gap_every_plateau_is_conspicuous():
    durations = np.geomspace(1.0, 100.0, 8)[None]
    assert conspicuous_plateaus(durations) == list(range(8))
    assert conspicuous_plateaus(np.where(np.arange(8) == 3, 6.0, 1.0)[None]) == [3]


@pytest.mark.parametrize("failed, passed", [(0, True), (2, True), (30, False)])
def test_restarts_that_do_not_converge_are_counted_and_must_be_few(failed, passed):
    numbers = np.zeros(98)
    found = StationaryPoints(numbers, numbers, deterministic_merged(), failed)
    assert found.words == f"98 of {98 + failed} converged"
    if passed:
        require_converged(found)
        return
    with pytest.raises(Inconclusive, match="98 of 128 converged"):
        require_converged(found)


def test_sets_of_components_are_named_as_in_figures():
    assert name_sets([(), (0,), (0, 1)]) == ["∅", "{1}", "{1, 2}"]


@pytest.mark.slow
def test_smoke_claims_hold_and_fail_against_wrong_predictions():
    lab = Lab("smoke")
    # One of each topic: `iclflow verify` computes them all.
    topics = {claim.test.__module__: claim for claim in reversed(select_claims(tier="smoke"))}
    assert white_sigmoid in topics.values()
    for claim in topics.values():
        outcome = run_claim(claim, lab)
        assert outcome.verdict == (claim.fault or "holds"), outcome.reason
        if claim is white_sigmoid:  # settings are numbers, not names
            assert lab.config["eigenvalues"] == [1.0] * 4 and lab.config["context"] == 31
        assert run_claim(claim, lab.bent()).verdict == "fails", claim.id


# The lab ------------------------------------------------------------------------------------------


def test_a_lab_computes_once_for_the_same_function_and_arguments():
    calls = []

    @once
    def double(lab: Lab, values, factor: float = 2.0):
        calls.append(values)
        return factor * np.asarray(values)

    lab = Lab()
    assert double(lab, [1.0]) is double(lab, [1.0], factor=2.0) is double(lab.bent(), [1.0])
    double(lab, np.array([1.0]))
    double(lab, jnp.asarray([1.0 + 1e-15]))
    double(lab, [1.0], 3.0)
    assert len(calls) == 4
    lab.assume("told", double, [5.0])
    assert double(lab, [5.0]) == "told" and len(calls) == 4
    assert lab.compute(np.add, 1.0, 2.0) == 3.0


def test_a_lab_tells_models_of_one_shape_and_keys_apart():
    lab, models = Lab(), [Attention.merged(jr.key(seed), 2, 1, 1.0) for seed in (0, 1, 0)]
    found = [lab.compute(lambda model: model.circuits.v, model) for model in models]
    assert found[0] is found[2] and found[0] != found[1]
    drawn = [lab.compute(jr.normal, jr.key(seed)) for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    with pytest.raises(TypeError, match="cannot tell values of type object apart"):
        lab.compute(lambda value: value, object())


def test_a_lab_runs_a_study_as_the_command_does():
    config = study("linear/white", flow={"end": 5.0})
    lab = Lab()
    run = lab.run(config)
    assert lab.run(study("linear/white", flow={"end": 5.0})) is run
    np.testing.assert_array_equal(run.losses, train(prepare(config)).losses)
    other = lab.run(config, 0)
    expected = Attention.merged(jr.key(0), 4, 8, 1e-3).circuits.v
    np.testing.assert_array_equal(other.at(0).circuits.v, expected)

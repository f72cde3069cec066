"""Claims on runs: they hold where they speak, fail where they are bent, and say why they do not."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate

from iclflow import theory
from iclflow.claims import (
    all_claims,
    all_run_checks,
    check_run,
    find_run_check,
    run_checks,
    select_claims,
)
from iclflow.claims._staircase_facts import relaxation_rate
from iclflow.cli import main
from iclflow.config import InputError, parse_config, to_toml
from iclflow.experiment import build_task, prepare, train
from iclflow.flows import gradient_flow_ensemble, init_many
from iclflow.models import MergedKQ, SeparateKQ, StructuredAttention
from iclflow.risks import risk
from iclflow.sweep import parse_sweep
from iclflow.sweep._measurements import Measured, columns_of, measure
from iclflow.tasks import LinearRegression
from iclflow.trajectory import Result, Trajectory

LINEAR = [
    "linear/merged-conservation", "linear/single-drop", "linear/merged-drop-time",
    "linear/merged-reduced-flow", "linear/white-sigmoid", "linear/lazy-limit",
    "linear/plateau-losses", "linear/ordered-drops", "linear/cascade", "linear/pcr",
    "linear/fewer-heads", "linear/separate-conservation", "linear/scalar-ode",
    "linear/noise-and-prior",
]  # fmt: skip


def config(task=None, model=None, **sections):
    """A config of linear attention, with some settings changed."""
    task = {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20} | (task or {})
    model = {"kind": "separate", "heads": 2, "scale": 0.01} | (model or {})
    return parse_config({"task": task, "model": model, **sections})


def trained(task: dict, model: dict, seeds: int, key: int):
    """Runs of one config from several random starts, with that config."""
    given = config(task, model)
    settings = {k: v for k, v in given.model if k not in ("kind", "form")}
    kind = MergedKQ if given.model.kind == "merged" else SeparateKQ
    heads, dim = settings.pop("heads"), given.task.dim
    models = init_many(
        partial(kind.init, dim=dim, heads=heads, **settings), jr.split(jr.key(key), seeds)
    )
    runs = gradient_flow_ensemble(models, risk(build_task(given), models)).runs
    return [(given, run) for run in runs]


@pytest.fixture(scope="module")
def grid():
    """Runs of settings that no claim has been tuned on: sizes, spectra, noise, heads, scales."""
    rng, found = np.random.default_rng(11), []
    for dim, heads, tasks in ((3, 3, 2), (5, 6, 1)):
        for i in range(tasks):
            ratios = np.cumprod(np.concatenate([[1.0], rng.uniform(0.5, 0.8, dim - 1)]))
            task = {
                "eigenvalues": (rng.uniform(0.4, 1.5) * ratios).tolist(),
                "context": int(rng.integers(4, 120)),
                "noise": float(rng.choice([0.0, 0.3])),
            }
            for scale in (0.05, 0.008, 0.001):
                found += trained(task, {"heads": heads, "scale": scale}, 2, 10 * i)
                if dim == 3:
                    merged = {"kind": "merged", "heads": 3, "scale": scale}
                    found += trained(task, merged, 2, 10 * i + 1)
    task = {"eigenvalues": [1.1, 0.6, 0.35], "context": 17, "noise": 0.1}
    found += trained(task, {"heads": 2, "rank": 2, "scale": 0.01}, 2, 3)
    found += trained(task, {"heads": 2, "scale": 0.01}, 2, 4)
    found += trained(task, {"heads": 3, "scale": 0.02, "scheme": "identity"}, 2, 5)
    merged = {"kind": "merged", "heads": 3}
    found += trained(task, {**merged, "scale": 0.04, "scheme": "balanced"}, 2, 6)
    white = {"eigenvalues": [0.7] * 3, "context": 12}
    found += trained(white, {**merged, "scale": 0.03, "scheme": "identity"}, 2, 7)
    two = {"eigenvalues": [1.1, 0.6], "context": 17}
    found += trained(two, {**merged, "heads": 128, "scale": 1.5}, 4, 8)
    return found


# On linear attention --------------------------------------------------------------------------


def test_linear_claims_hold_on_settings_nobody_tried_and_fail_where_they_are_bent(grid):
    held = set()
    for given, run in grid:
        straight, bent = (check_run(given, run, falsify=falsify) for falsify in (False, True))
        for outcome, wrong in zip(straight, bent, strict=True):
            told = (outcome.claim.id, outcome.reason, wrong.reason, given.task, given.model)
            assert (outcome.verdict, wrong.verdict) in (
                ("holds", "fails"),
                ("inconclusive", "inconclusive"),
            ), told
            if outcome.verdict == "holds":
                held.add(outcome.claim.id)
    assert held == set(LINEAR)


def test_claims_fail_on_the_run_of_another_task(grid):
    given, run = next(pair for pair in grid if "linear/cascade" in holding(*pair))
    eigenvalues = [1.1 * value for value in given.task.eigenvalues]
    other = config({**dict(given.task), "eigenvalues": eigenvalues}, dict(given.model))
    failing = {o.claim.id for o in check_run(other, run) if o.verdict == "fails"}
    assert {"linear/plateau-losses", "linear/cascade", "linear/pcr"} <= failing


def holding(given, run) -> set[str]:
    return {outcome.claim.id for outcome in check_run(given, run) if outcome.verdict == "holds"}


def test_a_run_under_way_never_fails_and_tells_more_and_more(grid):
    given, run = next(pair for pair in grid if "linear/cascade" in holding(*pair))
    decided = []
    for share in (0.02, 0.5, 0.8, 1.0):
        part = dataclasses.replace(run[: max(2, int(share * len(run)))], result=Result.cancelled)
        outcomes = check_run(given, part)
        assert all(o.verdict in ("holds", "inconclusive") for o in outcomes)
        decided.append(sum(o.verdict == "holds" for o in outcomes))
    assert decided[0] < decided[-1]


def test_a_run_that_diverged_decides_nothing(grid):
    given, run = grid[0]
    outcomes = check_run(given, dataclasses.replace(run, result=Result.diverged))
    assert {o.reason for o in outcomes} == {"the run diverged"}


def test_heads_lose_what_they_have_of_other_components_at_the_rate_of_the_flow():
    """Against the eigenvalues of the flow around a learned head, by differences of the loss."""
    task = LinearRegression(eigenvalues=[1.0, 0.7, 0.4], context=15, noise=0.2)
    size = float(np.cbrt(theory.modes(task).strengths[0]))
    loss = lambda at: theory.loss_of_matrix(task, at[0] * np.outer(at[1:4], at[4:]))
    point, step = size * np.array([1.0, 1, 0, 0, 1, 0, 0]), 1e-4 * np.eye(7)
    curvature = lambda a, b: (
        (loss(point + a + b) - loss(point + a - b) - loss(point - a + b) + loss(point - a - b))
        / (4e-8)
    )
    hessian = np.array([[curvature(a, b) for b in step] for a in step])
    # The flow is half the slope; differences leave 1e-6.
    rates = np.linalg.eigvalsh(hessian) / 2
    assert np.min(np.abs(rates - relaxation_rate(task, 1))) < 1e-5


@pytest.mark.parametrize(
    "id, task, model, sections, reason",
    [
        ("linear/plateau-losses", {}, {"scale": 1.0}, {}, "small first weights: `model.scale` = 1"),
        ("linear/plateau-losses", {}, {"kind": "merged"}, {}, '`model.kind` = "merged"'),
        ("linear/cascade", {}, {"rank": 2}, {}, "heads of rank one: `model.rank` = 2"),
        (
            "linear/cascade", {"eigenvalues": [1.0, 0.2], "prior_covariance": [[0.1, 0], [0, 1]]},
            {"scale": 1e-4}, {}, "in which they pay",
        ),
        ("linear/pcr", {"prior_covariance": [[1, 0], [0, 2]]}, {}, {}, "E[wwᵀ] ∝ I"),
        ("linear/pcr", {"eigenvalues": [0.5, 0.49]}, {}, {}, "too near for `model.scale` = 0.01"),
        ("linear/cascade", {}, {}, {"flow": {"rtol": 1e-6}}, "`flow.rtol` = 1e-06 is above 1e-08"),
        ("linear/fewer-heads", {}, {}, {}, "HR = 2 is not below 2"),
        ("linear/noise-and-prior", {}, {"heads": 1}, {}, "all 2 components: HR = 1 is less"),
        ("linear/white-sigmoid", {}, {"kind": "merged", "scheme": "identity"}, {}, "white inputs"),
        ("linear/lazy-limit", {}, {"kind": "merged"}, {}, "very large first weights"),
        (
            "linear/cascade", {}, {},
            {"risk": {"kind": "dataset", "sequences": 10}}, "the risk is dataset",
        ),
        (
            "linear/separate-conservation", {}, {},
            {"flow": {"kind": "adam", "learning_rate": 0.1, "steps": 5}}, '`flow.kind` = "adam"',
        ),
        ("softmax/zero-sum-ov", {}, {}, {}, '`model.kind` = "separate"'),
        ("multitask/heads-ahead", {}, {}, {}, '`model.kind` = "separate"'),
    ],
)  # fmt: skip
def test_a_claim_says_why_it_does_not_speak_of_a_config(id, task, model, sections, reason):
    given = config(task, model, **sections)
    told = find_run_check(id).refuses(given)
    assert told is not None and reason in told and not told.endswith(".")
    assert id not in {check.id for check in run_checks(given)}


def test_every_claim_on_runs_is_in_the_registry_and_none_is_misstated():
    known = {claim.id: claim for claim in all_claims()}
    for check in all_run_checks():
        assert known[check.id] is check.claim and not check.claim.misstated
        assert check.tolerance_reason and check.needs
    assert {check.claim.paper for check in all_run_checks()} == {"linear", "softmax", "multitask"}


def test_claims_that_speak_of_no_run_are_refused_in_a_sentence():
    with pytest.raises(InputError, match=r"speaks of no single run: `iclflow verify --claim"):
        find_run_check("linear/hessian-index")
    with pytest.raises(InputError, match="did you mean linear/cascade"):
        find_run_check("linear/cascades")
    (claim,) = select_claims(["linear/cascade"])
    assert find_run_check("linear/cascade").claim is claim


# On softmax attention -------------------------------------------------------------------------

DIM, CONTEXT, NOISE = 3, 20, 0.1


def softmax_config(**model):
    task = {"eigenvalues": [1.0] * DIM, "prior_variance": 1 / DIM, "context": CONTEXT}
    model = {"kind": "structured", "heads": 2, "scale": 0.1} | model
    return config(task | {"noise": NOISE}, model, flow={"end": 10.0})


def softmax_run(omega, mu) -> Trajectory:
    """A run that ends at these heads and at their loss, which it approaches exponentially."""
    left = np.exp(-np.linspace(0.1, 14, 60))
    end = float(theory.softmax_exact_loss(omega, mu, DIM, CONTEXT, NOISE))
    models = stacked((1 - left)[:, None] * omega, (1 - left)[:, None] * mu)
    return Trajectory(np.linspace(0, 10, 60), end + (1 + NOISE - end) * left, models)


def stacked(omega: np.ndarray, mu: np.ndarray) -> StructuredAttention:
    """Heads along a run."""
    init = lambda omega, mu: StructuredAttention(omega=omega, mu=mu, dim=DIM)
    return jax.vmap(init)(jnp.asarray(omega), jnp.asarray(mu))


def softmax_verdicts(given, run, **options) -> dict[str, str]:
    # Which estimator a model is takes seconds: it has a test of its own.
    checks = [c for c in run_checks(given) if c.id != "softmax/debiased-gradient-descent"]
    return {check.id: check.check(run, None, given, **options).verdict for check in checks}


def test_softmax_claims_hold_at_the_best_pair_and_fail_against_bent_predictions():
    best = theory.pair_optimum(DIM, CONTEXT, NOISE)
    signs = np.array([1.0, -1.0])
    run, given = softmax_run(best.w * signs, best.mu * signs), softmax_config()
    expected = ("equal-magnitude", "zero-sum-ov", "trained-loss", "pair-or-trap")
    assert softmax_verdicts(given, run) == {f"softmax/{name}": "holds" for name in expected}
    assert set(softmax_verdicts(given, run, falsify=True).values()) == {"fails"}
    four = softmax_run(best.w * np.tile(signs, 2), best.mu * np.tile(signs, 2) / 2)
    found = softmax_verdicts(softmax_config(heads=4), four)
    expected = ("zero-sum-ov", "roles", "heads-alike", "pair-or-trap")
    assert found == {f"softmax/{name}": "holds" for name in expected}


def test_softmax_claims_fail_where_weights_have_no_such_pattern():
    best = theory.pair_optimum(DIM, CONTEXT, NOISE)
    signs = np.array([1.0, -1.0])
    good = softmax_run(best.w * signs, best.mu * signs)
    # Weights of another run, under losses that say that it is trained.
    other = softmax_run(np.array([best.w, -3 * best.w]), best.mu * np.array([1.0, -0.6]))
    found = softmax_verdicts(softmax_config(), dataclasses.replace(good, models=other.models))
    assert found["softmax/zero-sum-ov"] == found["softmax/equal-magnitude"] == "fails"


def test_heads_of_one_sign_decide_nothing_but_that_they_are_caught():
    best = theory.one_head_optimum(DIM, CONTEXT, NOISE)
    run, given = softmax_run(np.full(2, best.omega), np.full(2, best.mu / 2)), softmax_config()
    found = softmax_verdicts(given, run)
    assert found.pop("softmax/pair-or-trap") == "holds"
    assert set(found.values()) == {"inconclusive"}
    assert (
        "caught at one sign"
        in find_run_check("softmax/trained-loss").check(run, None, given).reason
    )


def test_an_opposite_pair_follows_the_flow_by_theory():
    """Against the gradient of the large-context risk, integrated by SciPy."""
    given = softmax_config(scheme="opposite")
    given = parse_config(given.model_dump() | {"risk": {"kind": "large_context"}})
    signs = jnp.array([1.0, -1.0])
    first = StructuredAttention(omega=0.1 * signs, mu=0.1 * signs, dim=DIM)
    exact = risk(build_task(given), first, "large_context")

    @jax.jit
    def velocity(state):
        model = StructuredAttention(omega=state[0] * signs, mu=state[1] * signs, dim=DIM)
        slopes = jax.tree.leaves(exact.gradient(model))
        return exact(model), -jnp.array([slope[0] for slope in slopes]) / 2

    times = np.linspace(0, 10, 15)
    flow = lambda _, state: velocity(state)[1]
    path = scipy.integrate.solve_ivp(
        flow, (0, 10), [0.1, 0.1], t_eval=times, rtol=1e-9, atol=1e-12
    ).y
    losses = [float(velocity(state)[0]) for state in path.T]
    models = stacked(path[0][:, None] * signs, path[1][:, None] * signs)
    run = Trajectory(times, np.asarray(losses), models)
    expected = {"softmax/slow-manifold", "softmax/structured-manifold"}
    assert {(o.claim.id, o.verdict) for o in check_run(given, run)} == {
        (id, "holds") for id in expected
    }
    assert {o.verdict for o in check_run(given, run, falsify=True)} == {"fails"}


# On several tasks -----------------------------------------------------------------------------


def test_multitask_claims_hold_on_a_run_and_fail_against_bent_predictions():
    given = parse_config({
        "task": {"kind": "multi_task", "coordinates": [[0, 1, 2], [3, 4, 5, 6]], "context": 50,
                 "signal": 1.0, "noise": 0.2},
        "model": {"kind": "multi_spectral", "heads": 3, "scheme": "distinct", "spread": 0.3},
        "risk": {"kind": "large_context"}, "flow": {"end": 3000.0},
    })  # fmt: skip
    run = train(prepare(given))
    names = ("spectral-flow", "three-phases", "heads-ahead", "limit-loss", "shared-heads")
    outcomes = check_run(given, run)
    assert {o.claim.id: o.verdict for o in outcomes} == {f"multitask/{n}": "holds" for n in names}
    assert {o.verdict for o in check_run(given, run, falsify=True)} == {"fails"}
    begun = check_run(given, run.between(0, 2.0))
    assert {o.verdict for o in begun} == {"holds", "inconclusive"}
    assert [o.claim.id for o in begun if o.verdict == "holds"] == ["multitask/spectral-flow"]


# In sweeps and on the command line ------------------------------------------------------------


def sweep_data(names, **axes):
    base = {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.4], "context": 20},
        "model": {"kind": "separate", "heads": 2, "scale": 0.01},
    }
    return {"name": "claims", "base": base, "axes": axes, "measure": {"names": names}}


def test_claims_are_columns_of_a_sweep(grid):
    names = ["linear/plateau-losses", "linear/ordered-drops", "linear/fewer-heads"]
    assert columns_of(names[:1]) == {
        "claim_linear_plateau_losses": "VARCHAR",
        "claim_linear_plateau_losses_error": "DOUBLE",
    }
    given, run = next(pair for pair in grid if "linear/cascade" in holding(*pair))
    row = measure(names, Measured(given, run, build_task(given), lambda: None))
    assert row["claim_linear_plateau_losses"] == "holds"
    assert 0 <= row["claim_linear_plateau_losses_error"] <= 1
    assert row["claim_linear_ordered_drops"] == "holds"
    assert row["claim_linear_fewer_heads"] is row["claim_linear_fewer_heads_error"] is None
    assert "linear/fewer-heads: The claim `linear/fewer-heads` speaks of" in row["not_measured"]
    part = dataclasses.replace(run[:3], result=Result.cancelled)
    row = measure(names[1:2], Measured(given, part, build_task(given), lambda: None))
    assert row["claim_linear_ordered_drops"] == "inconclusive"
    assert row["claim_linear_ordered_drops_error"] is None
    assert row["not_measured"].startswith("linear/ordered-drops: the first drop is predicted at")


@pytest.mark.parametrize(
    "names, sentence",
    [
        (["linear/cascades"], "is not a claim: did you mean linear/cascade?"),
        (["linear/rank-scaling"], "speaks of no single run: `iclflow verify --claim linear/rank-"),
        (["linear/lazy-limit"], "is about no run of this sweep: it speaks of merged attention"),
        (["linear/cascade", "linear/cascade"], "twice: names must differ."),
    ],
)
def test_claims_that_a_sweep_cannot_measure_are_refused_in_one_sentence(names, sentence):
    with pytest.raises(InputError) as refused:
        parse_sweep(sweep_data(names))
    told = str(refused.value)
    assert told.startswith("`measure.names` holds") and sentence in told
    assert "\n" not in told and told.endswith((".", "?"))


def test_a_sweep_may_ask_for_a_claim_that_speaks_of_some_of_its_runs():
    axes = {"model.scale": [0.01, 2.0]}
    assert parse_sweep(sweep_data(["linear/cascade"], **axes)).names == ("linear/cascade",)


@pytest.fixture
def away_from_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.compile_cache.enable_compile_cache", lambda: None)
    (tmp_path / "run.toml").write_text(to_toml(config().model_dump(mode="json", exclude_none=True)))


def test_the_command_line_says_which_claims_a_config_tests(away_from_home, capsys):
    assert main(["claims", "--on", "run.toml"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "A run of run.toml tests" in told and "linear/cascade" in told
    assert "– linear/single-drop speaks of merged attention" in told
    assert main(["claims", "--on", "run.toml", "--json", "--paper", "linear"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["linear/cascade"]["tests"] and rows["linear/cascade"]["reason"] is None
    assert not rows["linear/single-drop"]["tests"]


@pytest.mark.slow
def test_the_command_line_shows_the_verdicts_on_a_stored_run(away_from_home, capsys):
    assert main(["run", "run.toml", "--out", "stored"]) == 0
    capsys.readouterr()
    assert main(["show", "stored", "--claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("✓ holds") and "linear/plateau-losses" in line for line in lines)
    assert main(["show", "stored", "--claims", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert {claim["verdict"] for claim in claims} <= {"holds", "inconclusive"}
    assert {"predicted", "measured", "tolerance"} <= set(claims[0])

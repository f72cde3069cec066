"""Claims on runs: they hold where they speak, fail where they are bent, and say why they do not."""

import dataclasses
import json
import re
import tomllib
from collections import Counter
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate

from iclflow import theory
from iclflow.cli import main
from iclflow.config import InputError, parse_config, to_toml
from iclflow.errors import Refusal
from iclflow.experiment import build_model, build_task, keys_of, prepare, train
from iclflow.flows import gradient_flow_ensemble, init_many
from iclflow.models import Attention, BalancedSpectral, Diagonal, Merged, Separate
from iclflow.papers import (
    Given,
    all_claims,
    check_run,
    claims_on,
    claims_on_runs,
    find_claim_on_runs,
    select_claims,
    strain,
)
from iclflow.papers.linear.checks_limits import least_curvature, most_left
from iclflow.papers.linear.checks_steps import relaxation_rate
from iclflow.risks import risk
from iclflow.sweeps import parse_sweep
from iclflow.sweeps._measurements import FinishedRun, columns_of, measure
from iclflow.tasks import LinearRegression, MultiTaskRegression, isotropic
from iclflow.theory import multitask
from iclflow.trajectory import Result, Trajectory

LINEAR = [
    "linear/merged-conservation", "linear/single-drop", "linear/merged-drop-time",
    "linear/merged-reduced-flow", "linear/white-sigmoid", "linear/lazy-limit",
    "linear/plateau-losses", "linear/ordered-drops", "linear/cascade", "linear/pcr",
    "linear/fewer-heads", "linear/separate-conservation", "linear/scalar-ode",
    "linear/noise-and-prior",
]  # fmt: skip

# The least share of the runs of the grid on which a claim about them must decide. The two
# are for steps that are far apart; of 20 and 12 runs 15 and 7 are such. All others always decide.
LEAST_DECIDED = {"linear/ordered-drops": 0.7, "linear/cascade": 0.5}


# For runs of three heads on three components, the size of most of the grid: what is compiled for
# one serves the others.
THREE = {"eigenvalues": [0.8, 0.5, 0.3]}, {"heads": 3}


@eqx.filter_jit
def losses_along(exact, models):
    """The losses of models with a leading axis over them."""
    return jax.vmap(exact)(models)


def config(task=None, model=None, **sections):
    """A config of linear attention, with some settings changed."""
    task = {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20} | (task or {})
    model = {"kind": "separate", "heads": 2, "scale": 0.01} | (model or {})
    return parse_config({"task": task, "model": model, **sections})


def trained(task: dict, model: dict, seeds: int, key: int):
    """Runs of one config from several random starts, with that config."""
    given = config(task, model)
    settings = {k: v for k, v in given.model if k not in ("kind", "form")}
    init = Attention.merged if given.model.kind == "merged" else Attention.separate
    heads, dim = settings.pop("heads"), given.task.dim
    models = init_many(
        partial(init, dim=dim, heads=heads, **settings), jr.split(jr.key(key), seeds)
    )
    runs = gradient_flow_ensemble(models, risk(build_task(given), models)).runs
    return [(given, run) for run in runs]


def along(kind, *weights: np.ndarray):
    """A model of every entry of arrays of weights, which have a leading axis."""
    return jax.vmap(lambda *each: Attention(kind.of(*each)))(*map(jnp.asarray, weights))


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


@pytest.fixture(scope="module")
def staircase():
    """One run on which the claims about separate key and query hold, and its config."""
    task = {"eigenvalues": [1.1, 0.6, 0.35], "context": 17, "noise": 0.1}
    # Two, as in the grid: the same program.
    given, run = trained(task, {"heads": 3, "scale": 0.001}, 2, 3)[0]
    assert "linear/cascade" in holding(given, run)
    return given, run


# On linear attention --------------------------------------------------------------------------


@pytest.mark.slow
def test_linear_claims_hold_on_settings_nobody_tried_and_fail_where_they_are_bent(grid):
    decided, spoken = Counter(), Counter()
    for given, run in grid:
        straight, bent = (check_run(given, run, falsify=falsify) for falsify in (False, True))
        for outcome, wrong in zip(straight, bent, strict=True):
            told = (outcome.claim.id, outcome.reason, wrong.reason, given.task, given.model)
            assert (outcome.verdict, wrong.verdict) in (
                ("holds", "fails"),
                ("inconclusive", "inconclusive"),
            ), told
            spoken[outcome.claim.id] += 1
            decided[outcome.claim.id] += outcome.verdict == "holds"
    assert set(spoken) == set(LINEAR)
    shares = {id: decided[id] / count for id, count in spoken.items()}
    assert {id: share for id, share in shares.items() if share < LEAST_DECIDED.get(id, 1.0)} == {}


@pytest.mark.slow
def test_claims_fail_on_the_run_of_another_task(staircase):
    given, run = staircase
    eigenvalues = [1.1 * value for value in given.task.eigenvalues]
    other = config({**dict(given.task), "eigenvalues": eigenvalues}, dict(given.model))
    failing = {o.claim.id for o in check_run(other, run) if o.verdict == "fails"}
    assert {"linear/plateau-losses", "linear/cascade", "linear/pcr"} <= failing


def holding(given, run) -> set[str]:
    return {outcome.claim.id for outcome in check_run(given, run) if outcome.verdict == "holds"}


def test_a_run_under_way_never_fails_and_tells_more_and_more(staircase):
    given, run = staircase
    decided = []
    for share in (0.02, 0.5, 0.8, 1.0):
        part = dataclasses.replace(run[: max(2, int(share * len(run)))], result=Result.cancelled)
        outcomes = check_run(given, part)
        assert all(o.verdict in ("holds", "inconclusive") for o in outcomes)
        decided.append(sum(o.verdict == "holds" for o in outcomes))
    assert decided[0] < decided[-1]


def test_a_run_that_keeps_too_few_points_never_fails(staircase):
    given, run = staircase
    for kept in (2, 3, 5):
        places = np.linspace(0, len(run) - 1, kept).astype(int)
        models = jax.tree.map(lambda leaf: leaf[places], run.models)
        sparse = dataclasses.replace(
            run, times=run.times[places], losses=run.losses[places], models=models
        )
        verdicts = {o.claim.id: o.verdict for o in check_run(given, sparse)}
        assert "fails" not in verdicts.values(), (kept, verdicts)
        assert verdicts["linear/ordered-drops"] == "inconclusive"


def test_weights_that_have_not_moved_conserve_nothing_that_counts(staircase):
    given, run = staircase
    verdicts = {o.claim.id: o.verdict for o in check_run(given, run[:2])}
    assert verdicts["linear/separate-conservation"] == "inconclusive"


def test_the_level_of_the_start_alone_says_nothing_about_plateaus(staircase):
    given, run = staircase
    first = run[: int(np.argmax(run.losses < 0.9 * run.losses[0]))]
    stopped = dataclasses.replace(first, result=Result.cancelled)
    verdicts = {o.claim.id: o.verdict for o in check_run(given, stopped)}
    assert verdicts["linear/plateau-losses"] == "inconclusive"


def test_a_run_that_diverged_decides_nothing(staircase):
    given, run = staircase
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


def test_a_start_far_above_predicting_zero_widens_no_tolerance(staircase):
    given, run = staircase
    losses = np.concatenate([[1e9], run.losses[1:]])
    far = dataclasses.replace(run, losses=losses)
    check = find_claim_on_runs("linear/noise-and-prior")
    assert check.check(far, None, given).verdict == "holds"
    assert check.check(far, None, given, falsify=True).verdict == "fails"


def test_an_end_that_says_nothing_about_the_limit_decides_nothing(staircase):
    given, run = staircase
    loose = config(dict(given.task), dict(given.model), flow={"tolerance": 0.1})
    outcome = find_claim_on_runs("linear/noise-and-prior").check(run, None, loose)
    assert outcome.verdict == "inconclusive" and "`flow.tolerance` = 0.1" in outcome.reason


def learned(given, sizes) -> Trajectory:
    """A run that was stopped where its heads have these shares of each component."""
    task = build_task(given)
    assert isinstance(task, LinearRegression)
    found = theory.modes(task)
    roots = np.cbrt(found.strengths * np.asarray(sizes))
    columns = (roots * np.asarray(found.left)).T[:, :, None]
    models = along(Separate, *(np.stack([0.01 * w, w]) for w in (roots, columns, columns)))
    losses = np.asarray(losses_along(risk(task, models), models))
    return Trajectory(np.array([0.0, 50.0]), losses, models)


def test_a_run_that_was_stopped_at_its_limit_decides_and_no_other():
    given, check = config(*THREE, flow={"end": 50.0}), find_claim_on_runs("linear/noise-and-prior")
    done = learned(given, [1.0, 1.0, 1.0])
    assert done.result is Result.finished
    assert check.check(done, None, given).verdict == "holds"
    assert check.check(done, None, given, falsify=True).verdict == "fails"
    # The slope vanishes on a plateau too, where a head has not begun.
    for share in (0.0, 1e-9, 0.99):
        outcome = check.check(learned(given, [1.0, 1.0, share]), None, given)
        assert outcome.verdict == "inconclusive", share
        assert outcome.reason == "the run is not converged: finished at 50"


def test_a_curve_that_has_not_left_its_start_decides_nothing():
    task, model = THREE
    given = config(task, model | {"scheme": "identity", "scale": 1e-4}, flow={"end": 1.0})
    directions = np.eye(3)[:, :, None]
    weights = (1e-4 * np.stack([w, w]) for w in (np.ones(3), directions, directions))
    still = along(Separate, *weights)
    losses = np.asarray(losses_along(risk(build_task(given), still), still))
    run = Trajectory(np.array([0.0, 1.0]), losses, still)
    for falsify in (False, True):
        outcome = find_claim_on_runs("linear/scalar-ode").check(run, None, given, falsify)
        assert outcome.verdict == "inconclusive" and "too little to tell" in outcome.reason


def test_the_end_of_a_run_that_stops_early_is_not_compared(staircase):
    """Its A is off by the root of `flow.tolerance`."""
    given, run = staircase
    loose = config(dict(given.task), dict(given.model), flow={"tolerance": 1e-3})
    outcomes = [find_claim_on_runs("linear/pcr").check(run, None, each) for each in (given, loose)]
    counts = [int(re.findall(r"on (\d) rests", o.checks[0].name)[0]) for o in outcomes]
    assert counts[0] == counts[1] + 1


@pytest.mark.parametrize("kind", [Merged, Separate])
def test_the_gradient_bounds_how_far_weights_are_above_their_limit(kind):
    """Against the loss, of weights anywhere."""
    settings, model = THREE
    given = config(settings, model | {"kind": "merged" if kind is Merged else "separate"})
    task = build_task(given)
    assert isinstance(task, LinearRegression)
    best = theory.optimal_loss(task)
    for i, scale in enumerate((0.1, 0.5, 1.0, 2.0) * 3):
        rng = np.random.default_rng(i)
        shapes = [(3,), (3, 3, 3)] if kind is Merged else [(3,), (3, 3, 1), (3, 3, 1)]
        models = along(kind, *(scale * rng.normal(size=(1, *shape)) for shape in shapes))
        at = Given(given, task, Trajectory(np.zeros(1), np.zeros(1), models))
        above = float(losses_along(risk(task, models), models)[0]) - best
        assert above <= most_left(at, least_curvature(at))


@pytest.mark.parametrize("normaliser", ["none", "tokens"])
def test_aligned_heads_follow_their_closed_form_with_every_normaliser(normaliser):
    """Against the gradient of the risk, integrated by SciPy."""
    model = {"scale": 0.3, "scheme": "identity", "normaliser": normaliser}
    given = config({"context": 3}, model, flow={"end": 20.0})
    first = Attention.separate(jr.key(0), 2, 2, scale=0.3, scheme="identity", normaliser=normaliser)
    vector, model_of = jax.flatten_util.ravel_pytree(first)
    exact = risk(build_task(given), first)
    slope = jax.jit(jax.value_and_grad(lambda state: exact(model_of(state))))
    times = np.linspace(0, 20, 15)
    path = scipy.integrate.solve_ivp(
        lambda _, state: -np.asarray(slope(state)[1]) / 2,
        (0, 20), vector, t_eval=times, rtol=1e-10, atol=1e-13,
    ).y.T  # fmt: skip
    losses = np.array([float(slope(state)[0]) for state in path])
    run = Trajectory(times, losses, jax.vmap(model_of)(jnp.asarray(path)))
    check = find_claim_on_runs("linear/scalar-ode")
    assert losses[-1] < 0.9 * losses[0]
    assert check.check(run, None, given).verdict == "holds"
    assert check.check(run, None, given, falsify=True).verdict == "fails"


@pytest.mark.parametrize(
    "line, refusal",
    [
        ("raise Refusal('There is no such step.')", True),
        ("np.zeros(2) + np.zeros(3)", False),
        ("one, two = [1]", False),
        ("np.split(np.zeros(3), 2)", False),
        ("raise ValueError('`heads` = 0.')", False),
    ],
)
def test_a_bug_is_not_taken_for_a_refusal(line, refusal, staircase):
    space = {"Refusal": Refusal, "np": np}
    exec(f"def test(given, lab):\n    {line}", space)
    given, run = staircase
    claim = find_claim_on_runs("linear/pcr")
    assert claim.on_run is not None
    on_run = dataclasses.replace(claim.on_run, test=space["test"])
    broken = dataclasses.replace(claim, on_run=on_run)
    if refusal:
        outcome = broken.check(run, None, given)
        assert (outcome.verdict, outcome.reason) == ("inconclusive", "There is no such step")
        return
    with pytest.raises(ValueError):
        broken.check(run, None, given)


@pytest.mark.parametrize(
    "id, task, model, sections, reason",
    [
        (
            "linear/plateau-losses", {}, {"scale": 1.0}, {},
            "small initial weights: `model.scale` = 1",
        ),
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
        ("linear/lazy-limit", {}, {"kind": "merged"}, {}, "very large initial weights"),
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
        (
            "softmax/zero-sum-ov", {"eigenvalues": [1.0, 1.0]}, {"kind": "structured"},
            {"flow": {"end": 1.0}}, "(give `task.prior_variance` = 1/2)",
        ),
    ],
)  # fmt: skip
def test_a_claim_says_why_it_does_not_speak_of_a_config(id, task, model, sections, reason):
    given = config(task, model, **sections)
    told = find_claim_on_runs(id).refuses(given)
    assert told is not None and reason in told and not told.endswith(".")
    assert id not in {check.id for check in claims_on(given)}


def test_every_claim_on_runs_is_in_the_registry_and_none_is_misstated():
    known = {claim.id: claim for claim in all_claims()}
    for check in claims_on_runs():
        assert known[check.id] is check and not check.misstated
        assert check.on_run and check.on_run.tolerance_reason and check.on_run.needs
    assert {check.paper for check in claims_on_runs()} == {"linear", "softmax", "multitask"}


def test_claims_that_speak_of_no_run_are_refused_in_a_sentence():
    with pytest.raises(InputError, match=r"is not about single runs: `iclflow verify --claim"):
        find_claim_on_runs("linear/hessian-index")
    with pytest.raises(InputError, match="did you mean linear/cascade"):
        find_claim_on_runs("linear/cascades")
    (claim,) = select_claims(["linear/cascade"])
    assert find_claim_on_runs("linear/cascade") is claim


# On softmax attention -------------------------------------------------------------------------

DIM, CONTEXT, NOISE = 3, 20, 0.1


def softmax_config(**model):
    task = {"eigenvalues": [1.0] * DIM, "prior_variance": 1 / DIM, "context": CONTEXT}
    model = {"kind": "structured", "heads": 2, "scale": 0.1} | model
    return config(task | {"noise": NOISE}, model, flow={"end": 10.0})


def softmax_run(omega, mu) -> Trajectory:
    """A run that ends at these heads and at their loss, which it approaches exponentially."""
    left = np.exp(-np.linspace(0.1, 14, 60))
    end = float(theory.softmax_exact_loss(isotropic(DIM, CONTEXT, NOISE), omega, mu))
    models = stacked((1 - left)[:, None] * omega, (1 - left)[:, None] * mu)
    return Trajectory(np.linspace(0, 10, 60), end + (1 + NOISE - end) * left, models)


def stacked(omega: np.ndarray, mu: np.ndarray) -> Attention:
    """Heads along a run."""
    init = lambda omega, mu: Attention(Diagonal(omega, mu, DIM))
    return jax.vmap(init)(jnp.asarray(omega), jnp.asarray(mu))


def softmax_verdicts(given, run, **options) -> dict[str, str]:
    # Which estimator a model is takes seconds: it has a test of its own.
    checks = [c for c in claims_on(given) if c.id != "softmax/debiased-gradient-descent"]
    return {check.id: check.check(run, None, given, **options).verdict for check in checks}


@pytest.mark.slow
def test_softmax_claims_hold_at_the_best_pair_and_fail_against_bent_predictions():
    best = theory.pair_optimum(isotropic(DIM, CONTEXT, NOISE))
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
    best = theory.pair_optimum(isotropic(DIM, CONTEXT, NOISE))
    signs = np.array([1.0, -1.0])
    good = softmax_run(best.w * signs, best.mu * signs)
    # Weights of another run, under losses that say that it is trained.
    other = softmax_run(np.array([best.w, -3 * best.w]), best.mu * np.array([1.0, -0.6]))
    found = softmax_verdicts(softmax_config(), dataclasses.replace(good, models=other.models))
    assert found["softmax/zero-sum-ov"] == found["softmax/equal-magnitude"] == "fails"


def test_heads_of_one_sign_decide_nothing_but_that_they_are_caught():
    best = theory.one_head_optimum(isotropic(DIM, CONTEXT, NOISE))
    run, given = softmax_run(np.full(2, best.omega), np.full(2, best.mu / 2)), softmax_config()
    found = softmax_verdicts(given, run)
    assert found.pop("softmax/pair-or-trap") == "holds"
    assert set(found.values()) == {"inconclusive"}
    assert (
        "caught at one sign"
        in find_claim_on_runs("softmax/trained-loss").check(run, None, given).reason
    )


def test_an_opposite_pair_follows_the_flow_by_theory():
    """Against the gradient of the large-context risk, integrated by SciPy."""
    given = softmax_config(scheme="opposite")
    given = parse_config(given.model_dump() | {"risk": {"kind": "large_context"}})
    signs = np.array([1.0, -1.0])
    start = jnp.asarray(0.1 * signs)
    first = Attention(Diagonal(start, start, DIM))
    exact = risk(build_task(given), first, "large_context")

    @jax.jit
    def velocity(state):
        model = Attention(Diagonal(state[0] * signs, state[1] * signs, DIM))
        slopes = jax.tree.leaves(exact.gradient(model))
        return exact(model), -jnp.array([slope.ravel()[0] for slope in slopes]) / 2

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


@pytest.mark.slow
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


def two_tasks(heads: int, seed: int = 0, **settings):
    """A config of two tasks, and a run of it as theory's own flow has it."""
    given = parse_config({
        "seed": seed,
        "task": {"kind": "multi_task", "coordinates": [[0, 1], [2, 3]], "context": 30,
                 "noise": 0.05},
        "model": {"kind": "multi_spectral", "heads": heads, **settings},
        "risk": {"kind": "large_context"}, "flow": {"end": 3000.0},
    })  # fmt: skip
    task, times = build_task(given), np.concatenate([[0.0], np.geomspace(1, 3000, 60)])
    assert isinstance(task, MultiTaskRegression)
    first = build_model(given, keys_of(seed).weights)[0].circuits
    assert isinstance(first, BalancedSpectral)
    omega, mu = np.asarray(first.omega()), np.asarray(first.mu())
    flow = multitask.spectral_flow(task, times, omega, mu, first.width)
    each = [
        Attention(BalancedSpectral.of(omega, mu, first.coordinates, first.dim, first.width))
        for omega, mu in zip(flow.omega, flow.mu)
    ]
    models = jax.tree.map(lambda *w: jnp.asarray(np.stack(w)), *each)
    noise = float(np.sum(np.asarray(task.noise)))
    return given, Trajectory(times, flow.loss + noise, models)


@pytest.mark.slow
def test_a_limit_holds_where_heads_share_a_task():
    given, run = two_tasks(heads=3, seed=1)
    shares = run.final.circuits.mu() / np.sum(run.final.circuits.mu(), 0)
    assert np.max(np.sort(shares, 0)[-2]) > 0.2
    check = find_claim_on_runs("multitask/limit-loss")
    outcome = check.check(run, None, given)
    # What the last weights have of other tasks is all that is left, and half of it is spare.
    assert outcome.verdict == "holds" and strain(outcome) == pytest.approx(1 / 1.5, rel=0.02)
    assert check.check(run, None, given, falsify=True).verdict == "fails"


@pytest.mark.slow
def test_a_head_that_is_ahead_on_all_tasks_says_nothing_about_who_gets_them():
    given, run = two_tasks(heads=3, spread=0.9)
    outcome = find_claim_on_runs("multitask/heads-ahead").check(run, None, given)
    assert outcome.verdict == "inconclusive" and "ahead on several tasks" in outcome.reason
    alone = parse_config(given.model_dump() | {"model": {"kind": "multi_spectral", "heads": 1}})
    told = find_claim_on_runs("multitask/heads-ahead").refuses(alone)
    assert told == "is about heads of which one is ahead: `model.heads` = 1"


# In sweeps and on the command line ------------------------------------------------------------


def sweep_data(names, **axes):
    base = {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.4], "context": 20},
        "model": {"kind": "separate", "heads": 2, "scale": 0.01},
    }
    return {"name": "claims", "base": base, "axes": axes, "measure": {"names": names}}


def test_claims_are_columns_of_a_sweep(staircase):
    names = ["linear/plateau-losses", "linear/ordered-drops", "linear/fewer-heads"]
    assert columns_of(names[:1]) == {
        "claim_linear_plateau_losses": "VARCHAR",
        "claim_linear_plateau_losses_error": "DOUBLE",
    }
    given, run = staircase
    row = measure(
        names, FinishedRun(given, run.final, build_task(given), lambda: run, lambda: None)
    )
    assert row["claim_linear_plateau_losses"] == "holds"
    assert 0 <= row["claim_linear_plateau_losses_error"] <= 1
    assert row["claim_linear_ordered_drops"] == "holds"
    assert row["claim_linear_fewer_heads"] is row["claim_linear_fewer_heads_error"] is None
    assert "linear/fewer-heads: The claim `linear/fewer-heads` is about" in row["not_measured"]
    part = dataclasses.replace(run[:3], result=Result.cancelled)
    row = measure(
        names[1:2], FinishedRun(given, part.final, build_task(given), lambda: part, lambda: None)
    )
    assert row["claim_linear_ordered_drops"] == "inconclusive"
    assert row["claim_linear_ordered_drops_error"] is None
    assert row["not_measured"].startswith("linear/ordered-drops: the first drop is predicted at")


@pytest.mark.parametrize(
    "names, sentence",
    [
        (["linear/cascades"], "is not a claim: did you mean linear/cascade?"),
        (["linear/rank-scaling"], "is not about single runs: `iclflow verify --claim linear/rank-"),
        (["linear/lazy-limit"], "applies to no run of this sweep: it is about merged attention"),
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


def test_a_sweep_that_a_claim_is_not_about_is_told_what_its_nearest_run_lacks():
    axes = {"model.kind": ["merged", "separate"], "model.scale": [0.2, 2.0]}
    with pytest.raises(InputError, match=r"`model.scale` = 0\.2 is above"):
        parse_sweep(sweep_data(["linear/cascade"], **axes))


def test_the_example_of_the_docs_asks_for_columns_that_its_sweep_has():
    text = (Path(__file__).parent.parent / "docs" / "sweeps.md").read_text()
    section = text.split("### Claims")[1].split("\n## ")[0]
    (example,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    sweep = parse_sweep(tomllib.loads(example))
    (query,) = re.findall(r'iclflow query \S+ "(.*?)"', section)
    asked = set(re.findall(r"claim_\w+|model\.\w+", query))
    assert asked and asked <= {*columns_of(sweep.names), *sweep.axes}
    speaks = [find_claim_on_runs("linear/cascade").refuses(p.config) is None for p in sweep.points]
    assert set(speaks) == {True, False}


@pytest.fixture
def away_from_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)
    given = config(*THREE).model_dump(mode="json", exclude_none=True)
    (tmp_path / "run.toml").write_text(to_toml(given))


def test_the_command_line_says_which_claims_a_config_tests(away_from_home, capsys):
    assert main(["claims", "--on", "run.toml"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "A run of run.toml tests" in told and "linear/cascade" in told
    assert "– linear/single-drop is about merged attention" in told
    assert main(["claims", "--on", "run.toml", "--json", "--paper", "linear"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["linear/cascade"]["tests"] and rows["linear/cascade"]["reason"] is None
    assert not rows["linear/single-drop"]["tests"]


def test_the_command_line_says_how_many_runs_of_a_sweep_test_each_claim(away_from_home, capsys):
    # One of the names is refused by `iclflow sweep`: who asks wants to learn which are not.
    data = sweep_data(["linear/lazy-limit"], **{"model.scale": [0.01, 2.0]}) | {"seeds": 3}
    Path("sweep.toml").write_text(to_toml(data))
    assert main(["claims", "--on", "sweep.toml"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("The 6 runs of sweep.toml test")
    assert f"{len(claims_on_runs())} on single runs ({len(all_claims())} claims in all)" in told
    assert "linear/cascade 3 runs" in told and "linear/separate-conservation 6 runs" in told
    assert "– linear/single-drop is about merged attention" in told
    assert main(["claims", "--on", "sweep.toml", "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["linear/cascade"]["runs"], rows["linear/cascade"]["reason"]) == (3, None)
    assert rows["linear/lazy-limit"]["runs"] == 0 and rows["linear/lazy-limit"]["reason"]


@pytest.mark.slow
def test_the_command_line_shows_the_verdicts_on_a_stored_run(away_from_home, capsys, sketched):
    assert main(["run", "run.toml", "--out", "stored"]) == 0
    capsys.readouterr()
    assert main(["show", "stored", "--claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("✓ holds") and "linear/plateau-losses" in line for line in lines)
    assert main(["show", "stored", "--claims", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert {claim["verdict"] for claim in claims} <= {"holds", "inconclusive"}
    assert {"predicted", "measured", "tolerance"} <= set(claims[0])

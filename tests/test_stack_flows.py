"""Gradient flows of stacks and loops of linear attention, against reference values and laws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow
from iclflow.flows import SaveAtTimes, adam, gradient_flow, gradient_flow_ensemble
from iclflow.models import DiagonalStack, FullStack, MergedStack, ScalarStack, SeparateStack
from iclflow.tasks import LinearRegression
from iclflow.trajectory import Result


def white(dim: int = 5, context: int = 20, noise: float = 0.0) -> LinearRegression:
    """λ m d = 1: the loss of predicting zero is 1."""
    prior = np.eye(dim) / dim
    return LinearRegression(
        np.ones(dim), context, noise=noise, prior_covariance=prior, noisy_query=False
    )


def flow_at(model, times, task, **options):
    """The weights at these times."""
    risk = iclflow.risk(task, model, "exact")
    run = gradient_flow(model, risk, end=times[-1], save=SaveAtTimes(tuple(times)), **options)
    return run.models.gamma[1:]  # the first point is the start


def test_a_stack_leaves_the_loop_as_the_reference_flow_does():
    found = flow_at(ScalarStack(jnp.array([0.01, -0.01]), 5, 2), (1.0, 5.0, 20.0, 60.0), white())
    wanted = [
        (0.4081124, 0.3732520),
        (0.7402516, 0.6717916),
        (1.1313113, 0.5190864),
        (1.2493326, 0.5153707),
    ]
    # Half a unit of the last digit.
    np.testing.assert_allclose(found, wanted, atol=6e-8)


def test_a_loop_flows_l_times_as_fast():
    found = flow_at(ScalarStack(jnp.array([0.0]), 5, 2), (0.5, 1.0, 2.0, 5.0), white())
    np.testing.assert_allclose(found[:, 0], (0.390811, 0.530815, 0.672833, 0.741407), atol=6e-7)
    stack = flow_at(ScalarStack(jnp.zeros(2), 5, 2), (1.0, 2.0, 4.0, 10.0), white())
    np.testing.assert_allclose(stack, np.stack([found[:, 0]] * 2, 1), atol=1e-8)


@pytest.mark.slow
def test_matrices_flow_d_times_slower_than_numbers():
    numbers = flow_at(ScalarStack(jnp.array([0.02, 0.01]), 3, 2), (2.0,), white(3, 7))
    start = jnp.array([0.02, 0.01])[:, None, None] * jnp.eye(3)
    matrices = flow_at(FullStack(start, 2), (6.0,), white(3, 7))
    # The tolerance of the solver, 1e-9 a step.
    np.testing.assert_allclose(matrices[0], numbers[0][:, None, None] * np.eye(3), atol=1e-7)


def test_the_differences_of_a_stack_grow_at_the_known_rate():
    # From the loop on, differences grow as e^{κt}: κ at γ° is a reference value.
    kappa, gamma = 0.23922991, 0.74251814
    start = gamma + 1e-7 * jnp.array([1.0, -1.0])
    # Steps as exact as they can be: the gap is 2e-7 of the weights.
    options = {"rtol": 1e-13, "atol": 1e-16}
    found = flow_at(ScalarStack(start, 5, 2), (10.0, 20.0), white(), **options)
    gaps = found[:, 0] - found[:, 1]
    # γ° and κ are known to 5e-9, which the gap of 2e-7 does not see.
    assert np.log(gaps[1] / gaps[0]) / 10 == pytest.approx(kappa, rel=1e-6)


@pytest.mark.slow
def test_heads_keep_what_each_layer_conserves():
    task = LinearRegression([0.6, 0.4], 9, noise=0.1)
    merged = MergedStack.init(jr.key(0), 2, 2, heads=2, scale=0.4)
    separate = SeparateStack.init(jr.key(1), 2, 2, heads=2, scale=0.4)
    for model, conserved in ((merged, merged_law), (separate, separate_law)):
        run = gradient_flow(model, iclflow.risk(task, model), end=30.0)
        assert run.losses[-1] < run.losses[0]
        # A thousand steps with errors of 1e-9 of weights of order one.
        np.testing.assert_allclose(conserved(run.final), conserved(model), atol=1e-6)


def merged_law(model):
    """v_i v_j − ⟨U_i, U_j⟩ within each layer."""
    inner = jnp.einsum("lhab,lkab->lhk", model.key_query, model.key_query)
    return model.value[:, :, None] * model.value[:, None] - inner


def separate_law(model):
    """v² − ‖K‖² and ‖K‖² − ‖Q‖² of each head."""
    keys, queries = (jnp.sum(part**2, (2, 3)) for part in (model.K, model.Q))
    return jnp.stack([model.value**2 - keys, keys - queries])


def test_an_ensemble_is_many_single_flows():
    task = white(noise=0.1)
    models = jax.vmap(lambda key: ScalarStack.init(key, 5, 3, 0.3))(jr.split(jr.key(0), 6))
    one = ScalarStack.init(jr.key(0), 5, 3, 0.3)
    risk = iclflow.risk(task, one)
    together = gradient_flow_ensemble(models, risk, end=50.0)
    for i in (0, 5):
        alone = gradient_flow(jax.tree.map(lambda leaf: leaf[i], models), risk, end=50.0)
        assert together[i].losses[-1] == pytest.approx(alone.losses[-1], rel=1e-9)


@pytest.mark.slow
def test_diagonal_ensembles_run_in_lanes():
    task = LinearRegression([0.6, 0.4], 9)
    models = jax.vmap(lambda key: DiagonalStack.init(key, 2, 2, 0.3))(jr.split(jr.key(0), 4))
    risk = iclflow.risk(task, jax.tree.map(lambda leaf: leaf[0], models))
    together = gradient_flow_ensemble(models, risk, end=20.0)
    alone = gradient_flow(jax.tree.map(lambda leaf: leaf[3], models), risk, end=20.0)
    assert together[3].losses[-1] == pytest.approx(alone.losses[-1], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start, levels",
    [
        (((0.010, 0.012), (0.014, 0.009)), (1.0, 0.463014, 0.380698, 0.176965, 0.110199)),
        (((0.012, 0.004), (0.010, 0.011)), (1.0, 0.380698, 0.155901, 0.110199)),
    ],
)
def test_aligned_heads_learn_one_pair_of_layer_and_direction_at_a_time(start, levels):
    task = LinearRegression([0.7, 0.3], 8, noisy_query=False)
    value = jnp.asarray(start)
    heads = value[:, :, None, None] * jnp.eye(2)[None, :, :, None]
    model = SeparateStack(value, heads, heads, depth=2)
    run = gradient_flow(model, iclflow.risk(task, model), end=20_000.0)
    assert run.losses[-1] == pytest.approx(levels[-1], abs=1e-6)
    for level in levels:
        # A run that visits a level slows down there: the loss is flat on some stretch of time.
        near = np.abs(run.losses - level) < 0.02 * level
        assert np.ptp(run.times[near]) > 20, level


def test_adam_trains_a_stack_on_tokens():
    task = LinearRegression(np.ones(2), 8, noisy_query=False)
    model = FullStack.init(jr.key(0), 2, 2, 1e-2)
    sampled = iclflow.risk(task, model, "sampled", integrate="none", batch=64)
    run = adam(model, sampled, steps=400, learning_rate=0.02, key=jr.key(1))
    assert float(iclflow.risk(task, model)(run.final)) < 0.4 < 2.0  # predicting zero costs 2


@pytest.mark.slow
def test_a_config_trains_a_stack_whose_risk_is_sampled(tmp_path):
    found = iclflow.run(
        {
            "task": {"kind": "linear_regression", "eigenvalues": [0.7, 0.3], "context": [4, 8]},
            "model": {"kind": "linear_stack", "moving": True, "depth": 3, "normaliser": "tokens"},
            "risk": {"kind": "sampled", "batch": 32},
            "flow": {"kind": "adam", "steps": 150, "learning_rate": 0.02},
        },
        out=tmp_path / "run",
    )
    losses = found.trajectory.losses
    assert losses[-1] < 0.6 and losses[0] > 0.95  # predicting zero costs 1


@pytest.mark.parametrize("sets", [1, 2])
def test_a_flow_without_noise_ends_by_itself(sets):
    task = white()
    model = ScalarStack(jnp.array([0.1, 0.05])[:sets], 5, 2)
    risk = iclflow.risk(task, model)
    run = gradient_flow(model, risk)
    wanted = 0.0998014776 if sets == 1 else 359 / 4969  # docs/theory/depth.md
    assert run.result is Result.converged
    # It stops at a millionth of the way down.
    assert 0 < float(run.losses[-1]) - wanted < 1.1e-6

"""Losses of many models at once, against the exact risk one by one and independent numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow
from iclflow.models import Attention, Diagonal
from iclflow.risks import ExactSoftmaxRisk, SampledRisk, exact_softmax_risk, first_order_risk
from iclflow.risks._softmax_table import tabulate
from iclflow.tasks import LinearRegression, isotropic

TASK = isotropic(5, 40, 0.1)


def structured(omega, mu, dim: int = 5) -> Attention:
    return Attention(Diagonal(jnp.asarray(omega, float), jnp.asarray(mu, float), dim))


def stacked(omega: np.ndarray, mu: np.ndarray):
    return iclflow.init_many(
        lambda key, o, m: structured(o, m), jr.split(jr.key(0), len(omega)), omega, mu
    )


def random_heads(count: int, reach: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Half of them opposite pairs, half with two ω and two μ of their own."""
    random = np.random.default_rng(seed)
    omega, mu = random.uniform(-reach, reach, (count, 2)), random.normal(0, 3, (count, 2))
    omega[::2, 1], mu[::2, 1] = -omega[::2, 0], -mu[::2, 0]
    return omega, mu


# Compiled as a whole: operation by operation, each would be compiled by itself.
value = eqx.filter_jit(lambda risk, model: risk(model))
value_and_gradient = eqx.filter_jit(lambda risk, model: risk.value_and_gradient(model))


@pytest.fixture(scope="module")
def table():
    return exact_softmax_risk(TASK, digits=9).tabulate(0.7)


@pytest.mark.slow
def test_the_table_gives_the_exact_risk_of_opposite_and_of_any_heads(table):
    risk = exact_softmax_risk(TASK)
    for omega, mu in zip(*random_heads(6, 0.7)):
        model = structured(omega, mu)
        # Nine digits of (Σ|μ|)² are nominal; integrals are averaged, which leaves less.
        assert float(value(table, model)) == pytest.approx(float(value(risk, model)), rel=1e-9)


# ω, μ, the loss and its slopes: from an independent quadrature.
_REFERENCE = [
    ((0.13, -0.13), (3.45, -3.45), 0.24324363848, 1e-10, (0.11868424, -0.11868424, 0.00436579)),
    ((0.1, -0.1), (4, -4), 0.25005463199, 1e-10, (-0.70995941, 0.70995941, -0.01784080)),
    ((5**-0.5,), (1.627695,), 0.4080761952, 1e-9, (-0.1837121, -0.0270190)),
    ((0.6, -0.3), (1, -2), 0.36389311, 1e-8, (0.497009, -1.044110, 0.288859, -0.212768)),
    ((0.5, 0.1, -0.4), (0.7, 0.4, -0.9), 0.2859819021, 1e-9, (-0.1512501, -0.1476774, 0.2489053)),
]


@pytest.mark.parametrize("omega, mu, loss, tolerance, slopes", _REFERENCE)
def test_tabulated_losses_and_slopes_equal_reference_values(
    table, omega, mu, loss, tolerance, slopes
):
    found, gradient = value_and_gradient(table, structured(omega, mu))
    assert float(found) == pytest.approx(loss, abs=tolerance)
    both = np.concatenate([gradient.circuits.omega, gradient.circuits.mu[:, 0]])[: len(slopes)]
    assert np.max(np.abs(both - slopes)) < 2e-6  # the last decimal given


def test_a_map_is_that_of_its_models_in_their_order_whatever_is_held_at_once(table):
    omega, mu = random_heads(300, 0.7, seed=1)
    found = iclflow.landscape(stacked(omega, mu), table, gradients=True, at_once=77)
    some = [0, 76, 77, 299]
    each = [value_and_gradient(table, structured(omega[i], mu[i])) for i in some]
    assert found.losses.shape == (300,) and found.gradients is not None
    np.testing.assert_allclose(found.losses[some], [float(loss) for loss, _ in each], rtol=1e-12)
    slopes = np.stack([gradient.circuits.omega for _, gradient in each])
    np.testing.assert_allclose(found.gradients.circuits.omega[some], slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_many_models_on_the_exact_risk_share_their_integrals():
    omega, mu = random_heads(256, 0.1, seed=2)
    risk = exact_softmax_risk(TASK, digits=6)
    found = iclflow.landscape(stacked(omega, mu), risk, progress=False)
    assert found.losses.shape == (256,) and found.gradients is None
    for i in (0, 255):
        expected = float(value_and_gradient(risk, structured(omega[i], mu[i]))[0])
        assert found.losses[i] == pytest.approx(expected, abs=1e-6 * np.sum(np.abs(mu[i])) ** 2)


@pytest.fixture
def reaches(monkeypatch) -> list[float]:
    """How far the tables reach that are made."""
    found = []

    def note_and_tabulate(risk, reach, report=None):
        found.append(reach)
        return tabulate(risk.task, reach, risk.digits, report)

    monkeypatch.setattr(ExactSoftmaxRisk, "tabulate", note_and_tabulate)
    return found


@pytest.mark.slow
def test_a_few_far_models_are_computed_without_the_table_in_their_place(reaches):
    omega, mu = random_heads(256, 0.1, seed=3)
    omega[[7, 200], 0] = 3.0, -2.0
    risk = exact_softmax_risk(TASK, digits=6)
    found = iclflow.landscape(stacked(omega, mu), risk, gradients=True, progress=False)
    assert len(reaches) == 1 and reaches[0] <= 0.1
    for i in (6, 7, 8, 200, 255):
        loss, gradient = value_and_gradient(risk, structured(omega[i], mu[i]))
        tolerance = 1e-6 * np.sum(np.abs(mu[i])) ** 2
        # The far ones are the exact risk itself; their gradients too.
        far = i in (7, 200)
        assert found.losses[i] == pytest.approx(float(loss), abs=1e-12 if far else tolerance)
        slopes = found.gradients.circuits.mu[i]
        np.testing.assert_allclose(slopes, gradient.circuits.mu, atol=1e-12 if far else tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("count, far, reach", [(256, 1, 0.19), (1400, 64, 0.3)])
def test_models_hardly_farther_and_many_far_ones_share_the_table(reaches, count, far, reach):
    omega, mu = random_heads(count, 0.05, seed=4)
    omega[:far, 0] = reach
    risk = exact_softmax_risk(TASK, digits=6)
    found = iclflow.landscape(stacked(omega, mu), risk, progress=False).losses
    assert reaches == [pytest.approx(reach)] and np.all(np.isfinite(found))
    expected = float(value_and_gradient(risk, structured(omega[0], mu[0]))[0])
    assert found[0] == pytest.approx(expected, abs=1e-6 * np.sum(np.abs(mu[0])) ** 2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("reach", [0.1, 0.7])
@pytest.mark.slow
def test_losses_of_a_table_miss_by_its_error_at_most_whatever_the_size_of_mu(reach):
    table = exact_softmax_risk(TASK, digits=6).tabulate(reach)
    fine, error = exact_softmax_risk(TASK, digits=12), float(table.error)
    for omega in ([reach, -0.9 * reach], [0.5 * reach, 0.02 * reach]):
        constant, linear, square = map(np.asarray, fine.quadratic_form(jnp.asarray(omega)))
        for size in (1e-4, 1e-2, 1.0, 100.0):
            for signs in ([1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0]):
                mu = size * np.asarray(signs)
                expected = constant - 2 * linear @ mu + mu @ square @ mu
                total = np.sum(np.abs(mu))
                miss = abs(float(value(table, structured(omega, mu))) - expected)
                assert miss <= error * (total + total**2)
    assert error <= 1e-6  # what its digits promise


def test_the_share_of_a_table_that_is_made_never_falls(monkeypatch):
    # So few polynomials at first that more have to be tried.
    monkeypatch.setattr("iclflow.risks._softmax_table._MOST", (4, 96))
    shares = []
    exact_softmax_risk(TASK, digits=6).tabulate(0.1, shares.append)
    assert len([share for share in shares if share <= 0.1]) > 1
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_few_models_and_other_risks_are_computed_as_they_are():
    omega, mu = random_heads(3, 0.3)
    risk = first_order_risk(TASK)
    models = [structured(o, m) for o, m in zip(omega, mu)]
    found = iclflow.landscape(models, risk).losses
    np.testing.assert_allclose(found, [value(risk, model) for model in models], rtol=1e-12)


@pytest.mark.slow
def test_tables_know_units_and_random_lengths():
    eye = np.eye(3)
    task = LinearRegression(covariance=2 * eye, prior_covariance=eye / 6, context=(4, 9), noise=0.2)
    risk = exact_softmax_risk(task, digits=6)
    table, model = risk.tabulate(0.15), structured((0.15, -0.06), (1.3, -0.4), 3)
    # Six digits of (Σ|μ|)², for both.
    assert float(table(model)) == pytest.approx(float(risk(model)), abs=6e-6)


@pytest.mark.slow
def test_the_exact_flow_of_a_pair_lands_and_drifts(table):
    flow = lambda omega, mu: iclflow.gradient_flow(
        structured((omega, -omega), (mu, -mu)),
        table,
        end=200.0,
        save=iclflow.SaveAtTimes((20.0, 200.0)),
        progress=False,
    )
    run = flow(0.1, 0.1)
    assert run.statistics["solver"] == "implicit"
    # A pair moves half as fast as its two numbers would; to the digits of the reference.
    np.testing.assert_allclose(run.models.circuits.omega[-2:, 0], [0.48594, 0.26684], atol=2e-5)
    # A run that leaves the table does not go on as if nothing were.
    assert not flow(0.695, 0.2).result.ok


@pytest.mark.slow
def test_a_flow_of_the_exact_risk_runs_on_a_table_of_its_own(table, monkeypatch):
    made = []

    def give_table(risk, reach, report=None):
        made.append(reach)
        return table

    def integrate(*_):
        raise AssertionError("The flow integrates at every step.")

    monkeypatch.setattr(ExactSoftmaxRisk, "tabulate", give_table)
    monkeypatch.setattr(ExactSoftmaxRisk, "__call__", integrate)
    pair = structured((0.1, -0.1), (0.1, -0.1))
    options = {"end": 20.0, "save": iclflow.SaveEvenly(41), "progress": False}
    run = iclflow.gradient_flow(pair, exact_softmax_risk(TASK, digits=9), **options)
    # Heads that learn from small weights go to 1.3/√D (here 0.62), and stay inside.
    assert made == [pytest.approx(1.6 / 5**0.5)] and np.max(np.abs(run.models.circuits.omega)) > 0.6
    # Another program, so other rounding: it moves steps, each of which is right to 1e-9.
    other = iclflow.gradient_flow(pair, table, **options)
    np.testing.assert_allclose(run.losses, other.losses, atol=1e-8)


def test_tables_of_flows_grow_with_the_heads_until_they_take_too_long_to_make():
    risk = exact_softmax_risk(LinearRegression([2.0] * 4, context=9))
    reach = lambda omega: risk.table_reach(structured((omega, -0.01), (1, 1), 4))
    # In units of 1/√D, for inputs of variance 2; a table is full at nine tenths.
    assert [reach(omega / 4) for omega in (0.1, 1.43, 1.45, 2.89)] == [0.4, 0.4, 0.8, 1.6]
    assert reach(11.5 / 4) == 3.2 and reach(11.6 / 4) is None
    # A table has eleven digits at best.
    fine = exact_softmax_risk(TASK, digits=12)
    assert fine.table_reach(structured((0.1,), (1,))) is None


def test_there_is_nothing_beyond_the_reach_of_a_table(table):
    assert np.isnan(value(table, structured((0.71, -0.1), (1, -1))))
    assert np.isfinite(value(table, structured((0.7, -0.7), (1, -1))))


def test_what_has_no_landscape_is_refused_in_a_sentence(table, unchecked):
    models = stacked(*random_heads(3, 0.3))
    with pytest.raises(ValueError, match="`reach` = -1: must be a finite number above 0"):
        exact_softmax_risk(TASK).tabulate(-1)
    with pytest.raises(ValueError, match="`at_once` = 0"):
        iclflow.landscape(models, table, at_once=0)
    with pytest.raises(ValueError, match="`at_once` = 2.5: must be a whole number from 1 up"):
        iclflow.landscape(models, table, at_once=2.5)
    with pytest.raises(ValueError, match=r"`omega` of shape \(2,\): must be a sequence of"):
        iclflow.landscape(structured((0.1, -0.1), (1, -1)), table)
    with pytest.raises(TypeError, match="`models` is of type int: must be a sequence of models"):
        iclflow.landscape(3, table)
    with pytest.raises(ValueError, match="draws sequences"):
        iclflow.landscape(models, SampledRisk(TASK, 4))
    for other in (TASK, [table, table]):
        with pytest.raises(TypeError, match=f"`risk` is a {type(other).__name__}: must be one"):
            iclflow.landscape(models, other)
    with pytest.raises(TypeError, match="swapped"):
        iclflow.landscape(table, models)
    with pytest.raises(ValueError, match="NaN or infinity"):
        iclflow.landscape(jax.tree.map(lambda x: x * np.nan, models), table)

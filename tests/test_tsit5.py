"""Tsitouras' method written out is the one of diffrax, on a vector and on a model's arrays."""

from dataclasses import fields

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.flows import SaveEvenly, _stepper, gradient_flow
from iclflow.flows._layout import Layout
from iclflow.flows._solvers import Tsit5
from iclflow.models import Attention
from iclflow.risks import risk
from iclflow.tasks import LinearRegression

TERMS = diffrax.ODETerm(
    lambda t, y, _: {"a": jnp.cos(t) - y["a"] ** 2, "b": y["a"][0] * jnp.sin(y["b"])}
)
START = {"a": jnp.asarray([0.3, -0.2]), "b": jnp.asarray([[0.5, 1.0], [2.0, -1.0]])}


def test_one_step_equals_that_of_diffrax():
    theirs = diffrax.Tsit5(scan_kind="lax")
    interval = (0.4, 0.9)
    expected, error, *_ = theirs.step(
        TERMS, *interval, START, None, theirs.init(TERMS, *interval, START, None), False
    )
    solver = Tsit5()
    found, own_error, _, slope, _ = solver.step(
        TERMS, *interval, START, None, solver.init(TERMS, *interval, START, None), False
    )
    for name in START:
        # The same sums in another order: a few ε.
        assert np.allclose(found[name], expected[name], rtol=0, atol=1e-15)
        assert np.allclose(own_error[name], error[name], rtol=0, atol=1e-15)
    end = TERMS.vf(interval[1], found, None)
    assert all(np.array_equal(slope[name], end[name]) for name in START)


def test_the_error_falls_with_the_fifth_power_of_the_step():
    solver, errors = Tsit5(), []
    exact = lambda t: np.exp(np.sin(t))
    terms = diffrax.ODETerm(lambda t, y, _: y * jnp.cos(t))
    for count in (8, 16, 32):
        marks, y = np.linspace(0.0, 3.0, count + 1), jnp.ones(1)
        state = solver.init(terms, marks[0], marks[1], y, None)
        for t0, t1 in zip(marks, marks[1:]):
            y, _, _, state, _ = solver.step(terms, t0, t1, y, None, state, False)
        errors.append(abs(float(y[0]) - exact(3.0)))
    slopes = np.log2(np.asarray(errors[:-1]) / errors[1:])
    # Five, up to what the next order still contributes at these steps.
    assert np.all(slopes > 4.6)


class ManyWeights(Attention):
    """The limit is compiled in: what belongs to another class is compiled anew."""


@pytest.mark.slow
def test_many_weights_flow_as_few_do(monkeypatch):
    task = LinearRegression([0.5, 0.3, 0.2], 7)
    model = Attention.merged(jr.key(0), 3, 2, 0.1)
    exact = risk(task, model)
    as_vector = gradient_flow(model, exact, end=40.0, save=SaveEvenly(9))
    stepper = _stepper.Stepper(Tsit5(), diffrax.PIDController(1e-9, 1e-9), Layout.of(model), 1000)
    settings = exact, jnp.asarray(1e-9), jnp.asarray([40.0])
    state = lambda: stepper.start(*settings, jnp.zeros(()), stepper.layout.vector(model))
    assert isinstance(state().weights, jax.Array)
    monkeypatch.setattr(_stepper, "_LARGEST_VECTOR", 4)
    assert isinstance(state().weights, Attention)
    many = ManyWeights(**{field.name: getattr(model, field.name) for field in fields(model)})
    as_arrays = gradient_flow(many, exact, end=40.0, save=SaveEvenly(9))
    assert as_vector.losses[-1] < 0.7 * as_vector.losses[0]
    # Norms are summed in another order, so that steps differ at the level of the tolerance, 1e-9.
    assert 0 < np.max(np.abs(as_arrays.losses - as_vector.losses)) < 1e-9
    assert np.max(np.abs(as_arrays.models.circuits.U - as_vector.models.circuits.U)) < 1e-8

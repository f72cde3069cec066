"""Initialisations of linear attention that are trained together go the way of each alone."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow
from benchmarks._linear_ensemble import linear_ensemble_rows
from iclflow.models import Attention
from iclflow.risks import dataset_risk
from iclflow.tasks import LinearRegression


@pytest.fixture(scope="module")
def ensemble():
    task = LinearRegression([0.4, 0.3], context=7)
    models = iclflow.init_many(
        partial(Attention.merged, blind=False), jr.split(jr.key(0), 5), dim=2, heads=3, scale=0.3
    )
    members = [jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[i]), models) for i in range(5)]
    return models, members, jax.jit(lambda key: task.sample(key, 12))(jr.key(1))


@pytest.mark.slow
def test_descents_by_sufficient_statistics_equal_those_on_the_sequences_one_by_one(ensemble):
    models, members, sequences = ensemble
    risk = dataset_risk(sequences, members[0])
    rule, save = iclflow.sgd_rule(0.02), iclflow.SaveEvenly(4)
    together = iclflow.descend_ensemble(models, risk, rule, 30, save=save, progress=False)

    # By hand, without any of the code that trains or that makes the statistics.
    @jax.jit
    def error(model):
        return jnp.mean((model.predict(sequences) - sequences.y_query) ** 2)

    @jax.jit
    def step(model):
        return jax.tree.map(lambda w, slope: w - 0.02 * slope, model, jax.grad(error)(model))

    for i in (0, 4):
        model = members[i]
        for _ in range(30):
            model = step(model)
        assert float(together[i].losses[-1]) == pytest.approx(float(error(model)), rel=1e-12)
        final = together[i].models
        # Thirty steps of rounding, on weights of order one.
        np.testing.assert_allclose(final.circuits.value[-1], model.circuits.value, atol=1e-13)
        np.testing.assert_allclose(
            final.circuits.key_query[-1], model.circuits.key_query, atol=1e-13
        )
        before, after = (np.asarray(each.circuits.value) for each in (members[i], model))
        assert np.max(np.abs(after - before)) > 1e-3  # it moves


@pytest.mark.slow
def test_the_benchmark_of_ensembles_measures_every_row():
    rows = linear_ensemble_rows(quick=True)
    values = {row.name: row.value for row in rows}
    assert all(value is None or value >= 0 for value in values.values())
    agreement = values["losses together and alone: largest relative difference"]
    assert agreement is not None and agreement < 1e-12
    assert any("an init-step" in name for name in values)

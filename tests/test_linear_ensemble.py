"""Initialisations of linear attention that are trained together go the way of each alone."""

import jax
import jax.random as jr
import numpy as np
import pytest

import iclflow
from iclflow.bench._linear_ensemble import linear_ensemble_rows
from iclflow.models import FullMergedKQ
from iclflow.risks import dataset_risk
from iclflow.tasks import LinearRegression


@pytest.fixture(scope="module")
def ensemble():
    task = LinearRegression([0.4, 0.3], context=7)
    models = iclflow.init_many(FullMergedKQ.init, jr.split(jr.key(0), 5), dim=2, heads=3, scale=0.3)
    members = [jax.tree.map(lambda x: x[i], models) for i in range(5)]
    return models, members, dataset_risk(task.sample(jr.key(1), 12), members[0])


def test_descents_by_sufficient_statistics_equal_those_on_the_sequences_one_by_one(ensemble):
    models, members, risk = ensemble
    rule, save = iclflow.sgd_rule(0.02), iclflow.Linear(4)
    together = iclflow.descend_ensemble(models, risk, rule, 30, save=save, progress=False)
    for i in (4,):
        # By hand, without any of the code that trains.
        weights = [np.asarray(members[i].value), np.asarray(members[i].key_query)]
        for _ in range(30):
            value, key_query = map(jax.numpy.asarray, weights)
            model = FullMergedKQ(value=value, key_query=key_query)
            slope = jax.grad(lambda m: risk(m))(model)
            weights = [
                w - 0.02 * np.asarray(s) for w, s in zip(weights, (slope.value, slope.key_query))
            ]
        final = together[i].models
        # Thirty steps of rounding, on weights of order one.
        np.testing.assert_allclose(final.value[-1], weights[0], atol=1e-13)
        np.testing.assert_allclose(final.key_query[-1], weights[1], atol=1e-13)


def test_the_benchmark_of_ensembles_measures_every_row():
    rows = linear_ensemble_rows(quick=True)
    values = {row.name: row.value for row in rows}
    assert all(value is None or value >= 0 for value in values.values())
    agreement = values["losses together and alone: largest relative difference"]
    assert agreement is not None and agreement < 1e-12
    assert any("an init-step" in name for name in values)

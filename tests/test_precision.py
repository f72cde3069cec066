"""Float64: what was made before it was switched on, and what would be rounded without it."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from helpers import four_components
from iclflow import estimators, theory
from iclflow.analysis import which_algorithm
from iclflow.checkpoints import from_state_dict, load_model, save_model
from iclflow.flows import adam_rule, descend, gradient_flow, gradient_flow_ensemble
from iclflow.models import Attention, Diagonal, Separate
from iclflow.risks import (
    IntegratedRisk,
    SampledRisk,
    exact_bilinear_risk,
    exact_softmax_risk,
    large_context_risk,
    risk,
    sampled_risk,
)
from iclflow.tasks import MultiTaskRegression, isotropic
from iclflow.trajectory import Trajectory
from state_dicts import stacked


def made_before(part):
    """The same task or model, as it is without float64."""
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float32)), part)


TASK, WHITE = four_components(), isotropic(3, 9, 0.1)
TASKS = MultiTaskRegression([[0], [1, 2]], context=9)
MODEL = Attention(Separate.of(jnp.ones(2), jnp.ones((2, 4, 1)), jnp.ones((2, 4, 1))))
PAIR = Attention(Diagonal(jnp.asarray([0.1, -0.1]), jnp.asarray([1.0, -1.0]), 3))
PAIRS = Attention(Diagonal(jnp.asarray([0.1, -0.1]), jnp.ones((2, 2)), 3))
EARLY, EARLY_WHITE, EARLY_TASKS = map(made_before, (TASK, WHITE, TASKS))
EARLY_MODEL, EARLY_PAIR = map(made_before, (MODEL, PAIR))


@pytest.mark.parametrize(
    "meet",
    [
        lambda: risk(EARLY, MODEL),
        lambda: risk(EARLY, MODEL, "sampled"),
        lambda: risk(EARLY_WHITE, PAIR),
        lambda: risk(EARLY_TASKS, PAIRS),
        lambda: sampled_risk(EARLY_WHITE, PAIR),
        lambda: SampledRisk(EARLY_WHITE),
        lambda: IntegratedRisk(EARLY_WHITE),
        lambda: exact_bilinear_risk(EARLY, MODEL),
        lambda: exact_softmax_risk(EARLY_WHITE),
        lambda: large_context_risk(EARLY_WHITE),
        lambda: theory.optimal_loss(EARLY),
        lambda: theory.staircase(EARLY, MODEL),
        lambda: theory.token_moments(EARLY),
        lambda: theory.Setting.of(EARLY_WHITE),
        lambda: theory.task_floors(EARLY_TASKS),
        lambda: estimators.PopulationPCR(EARLY, 2),
        lambda: estimators.LeastSquares().exact_risk(EARLY),
        lambda: estimators.LeastSquares().risk(EARLY, jr.key(0), 10),
        lambda: EARLY.bayes_risk(jr.key(0), 10),
        lambda: which_algorithm(MODEL, EARLY, count=10),
    ],
)
def test_a_task_made_before_float64_is_refused_wherever_it_is_used(meet):
    with pytest.raises(RuntimeError, match="`task` holds numbers in float32, as it was made bef"):
        meet()


@pytest.mark.parametrize(
    "meet",
    [
        lambda: risk(TASK, EARLY_MODEL),
        lambda: sampled_risk(WHITE, EARLY_PAIR),
        lambda: gradient_flow(EARLY_MODEL, risk(TASK, MODEL), end=1.0),
        lambda: gradient_flow_ensemble([EARLY_MODEL] * 2, risk(TASK, MODEL), end=1.0),
        lambda: descend(EARLY_PAIR, SampledRisk(WHITE), adam_rule(0.1), 2, key=jr.key(0)),
        lambda: theory.staircase(TASK, EARLY_MODEL),
        lambda: which_algorithm(EARLY_MODEL, TASK, count=10),
    ],
)
def test_a_model_made_before_float64_is_refused_wherever_it_is_used(meet):
    with pytest.raises(RuntimeError, match=r"`models?` holds numbers in float32, as it was made"):
        meet()


def test_weights_in_float64_are_not_rounded_without_a_word(tmp_path):
    save_model(MODEL, tmp_path / "model.safetensors")
    models = jax.tree.map(lambda leaf: np.asarray(leaf)[None].repeat(2, 0), MODEL)
    run = Trajectory(np.arange(2.0), np.ones(2), models)
    run.save(tmp_path / "run")
    with jax.enable_x64(False):
        for read in (
            lambda: load_model(tmp_path / "model.safetensors"),
            lambda: load_model(tmp_path / "run"),
            lambda: from_state_dict(stacked(), heads=3),
            lambda: Trajectory.load(tmp_path / "run").final,
            lambda: run.model_at(0.5),
            lambda: run.coefficients(),
        ):
            with pytest.raises(RuntimeError, match="needs float64. Call `iclflow.enable_float64"):
                read()


@pytest.mark.slow
def test_training_without_float64_and_its_files_stay_as_they_are(tmp_path):
    with jax.enable_x64(False):
        task, model = isotropic(3, 9, 0.1), Attention.factored(jr.key(0), 3, 2)
        run = descend(model, sampled_risk(task, model, 8), adam_rule(1e-2), 3, key=jr.key(1))
        run.save(tmp_path)
        assert run.final.circuits.K.dtype == load_model(tmp_path).circuits.K.dtype == jnp.float32
        narrow = {name: matrix.astype(np.float32) for name, matrix in stacked().items()}
        assert from_state_dict(narrow, heads=3).circuits.K.dtype == jnp.float32
    # A file of such a model is no model made too early: it is read in float64.
    save_model(model, tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").circuits.K.dtype == jnp.float64


@pytest.mark.slow
def test_sampling_in_float32_stays_a_setting_of_a_risk():
    narrow = risk(WHITE, PAIR, "sampled", batch=8, precision="float32")
    assert np.isfinite(float(narrow(PAIR, jr.key(0)))) and icl.runtime.precision.float64_enabled()


def test_a_program_keeps_what_it_compiled_and_a_folder_of_its_own_stays(tmp_path):
    program = """
import jax, iclflow as icl
{first}
icl.enable_float64({options})
print(jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir)
"""
    places = {
        ("", ""): tmp_path / "iclflow" / "compiled",
        ("jax.config.update('jax_compilation_cache_dir', 'mine')", ""): "mine",
        ("", "cache=False"): None,
    }
    clean = {name: value for name, value in os.environ.items() if "COMPILATION" not in name}
    for (first, options), place in places.items():
        code = program.format(first=first, options=options)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=clean | {"XDG_CACHE_HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["True", str(place)]

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import deterministic_separate
from iclflow.trajectory import Result, Trajectory


@pytest.fixture
def run():
    scales = (1e-2, 0.505, 1.0)
    models = [dataclasses.replace(deterministic_separate(s), normaliser="tokens") for s in scales]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    times, losses = np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.7, 0.2])
    return Trajectory(times, losses, stacked, "time", Result.converged, {"steps": 7})


def test_a_saved_run_comes_back_the_same(run, tmp_path):
    run.save(tmp_path / "run")
    back = Trajectory.load(tmp_path / "run")
    assert np.array_equal(back.times, run.times) and np.array_equal(back.losses, run.losses)
    assert np.array_equal(back.models.K, run.models.K)
    assert back.models.normaliser == "tokens"
    assert (back.result, back.clock, back.statistics) == (Result.converged, "time", {"steps": 7})
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "manifest.json",
        "trajectory.safetensors",
    ]


def test_a_damaged_run_is_refused(run, tmp_path):
    run.save(tmp_path)
    path = tmp_path / "trajectory.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="does not match its hash"):
        Trajectory.load(tmp_path)


def test_an_incomplete_run_is_refused(run, tmp_path):
    run.save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="not a complete run"):
        Trajectory.load(tmp_path)


def test_a_run_of_another_format_is_refused(run, tmp_path):
    run.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        Trajectory.load(tmp_path)


def test_saving_again_replaces_the_run(run, tmp_path):
    run.save(tmp_path)
    run[:2].save(tmp_path)
    assert len(Trajectory.load(tmp_path)) == 2


def test_models_between_saved_points_are_interpolated(run):
    middle = run.model_at(2.0)
    assert jnp.allclose(middle.v, (run.models.v[1] + run.models.v[2]) / 2)
    assert jnp.array_equal(run.model_at(3.0).v, run.models.v[2])
    assert run.loss_at(2.0) == pytest.approx(0.45)
    with pytest.raises(ValueError, match="`time` = 4.0"):
        run.model_at(4.0)


def test_slices_keep_times_losses_and_weights_together(run):
    part = run.between(1.0, 3.0)
    assert part.times.tolist() == [1.0, 3.0] and part.models.v.shape == (2, 4)
    with pytest.raises(TypeError, match="run.at"):
        run[0]


def test_coefficients_along_the_run_are_those_of_each_model(run):
    assert np.allclose(run.coefficients()[1], run.at(1).coefficients())


def test_xarray_labels_everything(run):
    data = run.to_xarray()
    assert data.loss.dims == ("time",) and data.K.shape == (3, 4, 4, 1)
    assert data.attrs["result"] == "converged"


def test_plot_draws_simulation_and_theory(run):
    import matplotlib

    matplotlib.use("agg")

    class Prediction:
        levels = (1.0, 0.2)
        drop_times = (1.5, np.inf)

        def loss(self, times):
            return 1 - 0.3 * np.asarray(times)

    axes = run.plot(theory=Prediction(), log_time=True)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["simulation", "theory", "predicted levels", "predicted drops"]
    assert axes.get_xlabel() == "time (τ)"
    matplotlib.pyplot.close(axes.figure)

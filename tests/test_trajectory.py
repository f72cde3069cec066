import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import deterministic_separate
from iclflow.models import _each as each
from iclflow.tasks import isotropic
from iclflow.theory import debiased_optimum, pair_flow
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
    assert np.array_equal(back.models.circuits.K, run.models.circuits.K)
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


def test_a_file_in_the_place_of_the_folder_is_refused(run, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ValueError, match="taken is a file: must be a folder, or free."):
        run.save(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_run_is_shown_in_one_line(run):
    shown = "Trajectory(Separate attention, 3 points, time 0 … 3, loss 1 → 0.2, converged)"
    assert repr(run) == shown
    assert repr(run[:0]) == "Trajectory(Separate attention, 0 points, converged)"


def test_models_between_saved_points_are_interpolated(run):
    middle = run.model_at(2.0)
    assert jnp.allclose(
        middle.circuits.v, (run.models.circuits.v[1] + run.models.circuits.v[2]) / 2
    )
    assert jnp.array_equal(run.model_at(3.0).circuits.v, run.models.circuits.v[2])
    assert run.loss_at(2.0) == pytest.approx(0.45)
    # Nobody has computed what comes before and after the saved points.
    assert np.isnan(run.loss_at([-1.0, 1e9])).all()
    with pytest.raises(ValueError, match="`time` = 4.0"):
        run.model_at(4.0)


def test_slices_keep_times_losses_and_weights_together(run):
    part = run.between(1.0, 3.0)
    assert part.times.tolist() == [1.0, 3.0] and part.models.circuits.v.shape == (2, 4)
    with pytest.raises(TypeError, match="run.at"):
        run[0]


def test_coefficients_along_the_run_are_those_of_each_model(run):
    assert np.allclose(run.coefficients()[1], run.at(1).coefficients())


def test_a_function_of_one_model_is_applied_at_every_point(run):
    both = run.map(lambda model: {"kq": model.kq(), "size": jnp.sum(model.circuits.v**2)})
    assert both["kq"].shape == (3, 4, 5, 4)
    assert np.allclose(both["kq"][1], run.at(1).kq(), atol=1e-15)
    assert np.allclose(both["size"], np.sum(run.models.circuits.v**2, 1))


@pytest.mark.parametrize("limit", [("_SIZES", (2, 2)), ("_BYTES", 1)])
def test_points_are_computed_in_pieces_where_there_are_many_or_they_are_large(
    run, monkeypatch, limit
):
    calls = []
    monkeypatch.setattr(each, *limit)
    monkeypatch.setattr(
        each,
        "_compile",
        lambda function: lambda some: calls.append(len(some.circuits.v)) or some.circuits.v,
    )
    assert np.array_equal(run.map(lambda model: model.circuits.v), run.models.circuits.v)
    assert calls == ([2, 2] if limit[0] == "_SIZES" else [1, 1, 1])


def test_a_function_that_leaves_jax_is_called_point_by_point(run):
    sign = run.map(lambda model: "up" if float(model.circuits.v[0]) > 0 else "down")
    assert sign.tolist() == ["up"] * 3
    sizes, count = run.map(lambda model: (np.linalg.norm(np.asarray(model.circuits.v)), 4))
    assert (
        np.allclose(sizes, np.linalg.norm(run.models.circuits.v, axis=1))
        and count.tolist() == [4] * 3
    )


def test_what_cannot_be_put_side_by_side_is_refused(run):
    with pytest.raises(TypeError, match="`function` returned SimpleNamespace for model 0"):
        run.map(lambda model: SimpleNamespace(size=float(model.circuits.v[0])))
    with pytest.raises(ValueError, match=r"returned \(1,\) .shapes. for model 1 and \(2,\)"):
        run.map(lambda model: np.zeros(1 if float(model.circuits.v[0]) > 0.1 else 2))
    with pytest.raises(AttributeError, match="no attribute 'kp'"):
        run.map(lambda model: model.kp())
    with pytest.raises(ValueError, match="no model in this stack"):
        run[:0].map(lambda model: float(model.circuits.v[0]))
    assert run[:0].map(lambda model: model.kq()).shape == (0, 4, 5, 4)


def test_xarray_labels_everything(run):
    data = run.to_xarray()
    assert data.loss.dims == ("time",) and data.K.shape == (3, 4, 4, 1)
    assert data.attrs["result"] == "converged"


@pytest.fixture
def axes():
    """An empty panel, closed again afterwards."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    yield panel
    plt.close(figure)


class Prediction:
    """A sharp drop at 1.5, and one that is predicted soon after the run, at 3.3."""

    levels = (1.0, 0.2, 0.1)
    drop_times = (1.5, 3.3, 50.0, np.inf)

    def loss(self, times):
        drops = np.asarray(times)[..., None] > self.drop_times[:2]
        return 1 - drops @ np.array([0.8, 0.1])


def drawn(axes, label: str) -> np.ndarray:
    (line,) = [line for line in axes.get_lines() if line.get_label() == label]
    return np.asarray(line.get_xydata())


def test_plot_draws_simulation_and_theory(run, axes):
    run.plot(axes, theory=Prediction(), log_time=True)
    legend = axes.get_legend()
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["simulation", "theory", "predicted levels", "predicted drops"]
    assert legend.get_frame_on() and legend.get_frame().get_alpha() == 1.0
    assert axes.get_xlabel() == "time (τ)"


def test_theory_is_drawn_at_moments_of_its_own_and_past_the_run(run, axes):
    run.plot(axes, theory=Prediction())
    times, losses = drawn(axes, "theory").T
    # Three saved points, and yet the drop is as sharp as it was predicted.
    assert times[losses == 1.0].max() < 1.5 <= times[losses < 1.0].min() < 1.5 + 1e-5
    # The drop soon after the end is there, the one long after it is not.
    assert losses[-1] == pytest.approx(0.1) and 3.3 < times[-1] < 4
    assert sum(len(set(line.get_xdata())) == 1 for line in axes.get_lines()) == 2


def test_a_logarithmic_axis_starts_where_something_is_to_be_seen(run, axes):
    times = np.concatenate([[0.0], np.geomspace(1e-6, 1e3, 3)])
    models = jax.tree.map(lambda leaf: leaf[[0, 0, 0, 0]], run.models)
    slow = Trajectory(times, np.array([1.0, 1.0, 1.0, 0.5]), models)
    slow.plot(axes, log_time=True)
    assert axes.get_xlim()[0] == pytest.approx(100.0)


def test_no_curve_is_drawn_before_its_first_point_on_a_logarithmic_axis(run, axes):
    # The loss has moved by far at the first point after the start, as in a run of few points.
    early = dataclasses.replace(run, times=np.array([0.0, 50.0, 100.0]))
    early.plot(axes, theory=Prediction(), log_time=True)
    assert axes.get_xlim()[0] == pytest.approx(50.0)
    for label in ("simulation", "theory"):
        points = drawn(axes, label)
        on_screen = axes.transData.transform(points)
        # Where t = 0 has a place on the screen, a line from there to the next point is drawn.
        assert np.array_equal(np.isfinite(on_screen[:, 0]), points[:, 0] > 0)
        assert points[0, 0] == 0 and not np.isfinite(on_screen[0, 0])
    assert drawn(axes, "theory")[1, 0] <= 50.0


def test_a_run_that_never_moves_is_drawn_as_a_level(run, axes):
    resting = dataclasses.replace(run[:1], result=Result.stationary)
    resting.plot(axes, theory=Prediction())
    assert drawn(axes, "simulation")[:, 1].tolist() == [1.0, 1.0]


def test_a_single_point_of_a_run_that_may_move_is_a_point(run, axes):
    run[:1].plot(axes, theory=Prediction())
    assert drawn(axes, "simulation").tolist() == [[0.0, 1.0]]
    assert axes.get_lines()[0].get_marker() == "o"


def test_a_prediction_at_moments_of_its_own_is_drawn_as_it_is(run, axes):
    predicted = pair_flow(
        isotropic(5, 40, 0.1), np.array([0.0, 0.5, 2.0]), 0.1, 0.1, "large_context"
    )
    run.plot(axes, theory=predicted)
    assert np.array_equal(drawn(axes, "theory").T, [predicted.times, predicted.loss])


def test_losses_that_are_known_beside_a_run_are_lines_with_their_names(run, axes):
    run.plot(axes, theory=SimpleNamespace(references=(("one head", 0.4), ("pair", 0.3))))
    assert drawn(axes, "one head")[:, 1].tolist() == [0.4, 0.4]
    assert drawn(axes, "pair")[:, 1].tolist() == [0.3, 0.3]


def test_what_is_no_prediction_is_not_drawn(run):
    with pytest.raises(TypeError, match="`theory` = 3: must be a prediction with `levels`"):
        run.plot(theory=3)
    for one in (
        debiased_optimum(isotropic(5, 40, 0.1)),
        SimpleNamespace(loss=0.2, times=(0.0, 1.0)),
    ):
        with pytest.raises(TypeError, match="^`theory` = .*: .*must be .*[.]$"):
            run.plot(theory=one)

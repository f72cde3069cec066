import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from helpers import BLOCKS, KINDS, stack_of
from iclflow.estimators import PopulationPCR
from iclflow.tasks import LinearRegression, MultiTaskRegression, TwoLayerReLU
from iclflow.trajectory import Result, Trajectory

matplotlib.use("agg")
TIMES = np.array([0.0, 1.0, 3.0])
TASK = LinearRegression([0.5, 0.3, 0.2], 10)
TASKS = MultiTaskRegression(BLOCKS, context=10)


@pytest.fixture(autouse=True)
def closed():
    """Closes what a test has drawn."""
    yield
    plt.close("all")


def run_of(kind: str, points: int = 3, result: Result = Result.finished) -> Trajectory:
    losses = np.array([1.0, 0.7, 0.2])[:points]
    return Trajectory(TIMES[:points], losses, stack_of(kind, points), "time", result)


def curves(ax) -> dict[str, np.ndarray]:
    return {
        str(line.get_label()): np.asarray(line.get_ydata(), float)
        for line in ax.lines
        if not str(line.get_label()).startswith("_")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_drawn_with_names_and_units(kind):
    run = run_of(kind)
    several = run.models.labels > 1
    spectrum, heads = run.plot_spectrum(), run.plot_heads(TASKS if several else TASK)
    assert spectrum.get_xlabel() == "time (τ)" and "singular values" in spectrum.get_ylabel()
    assert len(heads) == (4 if several else 2) and heads[-1].get_xlabel() == "time (τ)"
    assert "omega" in heads[0].get_ylabel() and "mu" in heads[len(heads) // 2].get_ylabel()
    legend = heads[0].get_legend()
    layered = kind in ("stack", "merged stack")  # two heads in each of two layers
    assert legend is not None and len(legend.get_texts()) == (4 if layered else 2)
    if kind.endswith("stack"):
        with pytest.raises(TypeError, match="`plot_components` needs one layer"):
            run.plot_components(TASK)
        return
    ax = run.plot_components(TASKS if several else TASK)
    assert len(curves(ax)) == (2 if several else 3) and ax.get_ylabel()


def test_the_spectrum_of_linear_attention_is_that_of_all_heads_together():
    run = run_of("blind merged")
    together = np.einsum("th,thde->tde", run.models.circuits.v, run.models.circuits.U)
    drawn = np.stack(list(curves(run.plot_spectrum()).values()), 1)
    assert np.allclose(drawn, np.linalg.svd(together, compute_uv=False))


def test_the_spectrum_of_softmax_attention_is_that_of_each_head():
    run = run_of("factored")
    ax = run.plot_spectrum()
    blocks = (
        np.einsum("thea,theb->thab", run.models.circuits.K[..., :3], run.models.circuits.Q[..., :3])
        / 2
    )
    expected = np.linalg.svd(blocks, compute_uv=False)
    drawn = np.stack([np.asarray(line.get_ydata()) for line in ax.lines], 1)
    assert np.allclose(drawn, expected.reshape(3, -1))
    assert set(curves(ax)) == {"head 1", "head 2"}


def test_heads_are_drawn_by_their_strengths_with_their_roles():
    run, role = run_of("diagonal"), ("negative", "positive")
    weights = run.models.circuits
    weights.omega[-1], weights.mu[-1, :, 0] = (-0.5, 0.4), (-1.0, 2.0)
    upper, lower = run.plot_heads()
    for ax, values in ((upper, weights.omega), (lower, weights.mu[..., 0])):
        drawn = curves(ax)
        assert set(drawn) == {f"head {h + 1} ({role[h]})" for h in range(2)}
        for h in range(2):
            assert np.allclose(drawn[f"head {h + 1} ({role[h]})"], values[:, h])


def test_components_of_linear_attention_are_shares_of_the_best_strength():
    run = run_of("blind merged")
    strengths = np.einsum("th,thdd->td", run.models.circuits.v, run.models.circuits.U)
    drawn = curves(run.plot_components(TASK))
    assert list(drawn) == [
        f"component {d + 1} (variance {v})" for d, v in enumerate((0.5, 0.3, 0.2))
    ]
    best = np.asarray(PopulationPCR(TASK, 3).gains)
    assert np.allclose(np.stack(list(drawn.values()), 1), strengths / best)


def test_components_of_several_tasks_are_the_steps_on_them():
    run = run_of("diagonal, two labels")
    each = run.models.circuits.omega
    omega = np.stack([each[..., :2].mean(-1), each[..., 2]], -1)
    drawn = np.stack(list(curves(run.plot_components(TASKS)).values()), 1)
    assert np.allclose(drawn, np.sum(run.models.circuits.mu * omega, 1))


def test_plots_that_make_no_sense_are_refused_before_a_figure_is_opened():
    run = run_of("diagonal, two labels")
    with pytest.raises(ValueError, match="`label` = 2: must lie between 0 and 1"):
        run.plot_heads(label=2)
    with pytest.raises(ValueError, match="Diagonal attention predicts 2 labels"):
        run.plot_components(TASK)
    with pytest.raises(TypeError, match="TwoLayerReLU has no input covariance"):
        run_of("blind merged").plot_components(TwoLayerReLU(3, context=10))
    with pytest.raises(ValueError, match="no points"):
        run_of("blind merged", 0).plot_spectrum()
    assert plt.get_fignums() == []


def test_one_label_is_drawn_on_the_axes_given():
    _, axes = plt.subplots(2)
    assert run_of("diagonal, two labels").plot_heads(TASKS, label=1, axes=axes) == list(axes)
    assert axes[0].get_title() == "label 2"
    with pytest.raises(ValueError, match="`axes` holds 2: must hold 4"):
        run_of("diagonal, two labels").plot_heads(TASKS, axes=axes)


def test_a_run_that_diverged_says_so_and_has_gaps():
    run = run_of("factored", result=Result.diverged)
    run.models.circuits.K[-1] = np.inf
    for ax in (run.plot_spectrum(), run.plot_heads()[0]):
        assert ax.get_title() == Result.diverged.value
        assert all(
            np.isnan(line.get_ydata()[-1]) for line in ax.lines if len(line.get_ydata()) == 3
        )


def test_a_single_point_is_drawn_as_a_point():
    ax = run_of("blind merged", 1).plot_spectrum()
    assert all(len(line.get_xdata()) == 1 and line.get_marker() == "o" for line in ax.lines)

"""Figures: the list is complete and cheap, drawings hold what they show, files are plain."""

import dataclasses
import json
import tomllib

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import binomtest

import iclflow as icl
import iclflow.drawing
from iclflow.drawing import Drawing, save_drawing
from iclflow.files import MARKER
from iclflow.flows import Ensemble
from iclflow.models import Attention, Diagonal, Merged
from iclflow.papers import FIGURES, Lab, all_claims
from iclflow.papers.multitask import runs as multitask_runs
from iclflow.papers.softmax import runs as softmax_runs
from iclflow.papers.softmax import runs_descent, runs_heads
from iclflow.tasks import Estimate, isotropic
from iclflow.trajectory import Result, Trajectory

PAPERS = {
    "linear": "arXiv 2501.16265",
    "softmax": "arXiv 2503.12734",
    "multitask": "arXiv 2402.19442",
    "diversity": "arXiv 2405.11751",
    "depth": "arXiv 2510.01098",
}
CHEAP = ("linear/white", "linear/scalar-ode", "linear/staircase")


# Drawn from weights at random in the place of trained ones: what is tested is the drawing.
UNTRAINED = tuple(
    f"softmax/{name}" for name in ("heads", "evolution", "seeds", "tasks", "dynamics")
)
# Those of several tasks that need no training, or training as theory has it.
MULTITASK = tuple(
    f"multitask/{name}"
    for name in (
        *("phases", "architecture", "approximate-dynamics", "bound-and-bayes", "losses"),
        *("regimes", "regularisation"),
    )
)


@pytest.fixture(scope="module")
def claims():
    return {claim.id: claim for claim in all_claims()}


def test_the_claims_on_approximate_losses_show_the_map_of_their_errors(claims):
    for name in ("softmax/first-order", "softmax/approximate-loss-map"):
        assert claims[name].figures == ("softmax/approximation",)


def test_every_figure_that_a_claim_names_exists(claims):
    named = {name for claim in claims.values() for name in claim.figures}
    assert named
    assert named <= set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_is_and_can_be_drawn(name):
    figure = FIGURES[name]
    assert figure.name == name
    assert (
        figure.title and figure.caption.endswith(".") and PAPERS[name.split("/")[0]] in figure.paper
    )
    assert callable(figure.draw)


@pytest.fixture(scope="module")
def drawings() -> dict[str, Drawing]:
    """Draws a figure when it is first asked for."""
    lab = untrained_lab()

    class Drawn(dict[str, Drawing]):
        def __missing__(self, name: str) -> Drawing:
            self[name] = FIGURES[name].draw(lab)
            return self[name]

    return Drawn()


def untrained_lab() -> Lab:
    """A lab that takes models at random for those that were trained at length."""
    lab, rng = Lab("smoke"), np.random.default_rng(0)

    def run(init) -> Trajectory:
        # The shapes alone of a model: to draw its weights with JAX would take seconds to compile.
        shapes = jax.eval_shape(init, jr.key(0))
        models = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(4, *x.shape))), shapes)
        return Trajectory(np.linspace(0.0, 1500, 4), np.ones(4), models, clock="step")

    for heads in (1, 2, 4):
        init = lambda key, heads=heads: Attention.factored(key, 5, heads)
        lab.assume(run(init), runs_heads.trained_run, heads)
    for heads in (2, 3, 5):
        init = lambda key: Attention(Diagonal(jnp.zeros((5, 6)), jnp.zeros((5, 2)), 6))
        lab.assume(run(init), runs_descent.two_task_run, heads)
        excess = Estimate(jnp.array(0.1), jnp.array(1e-3))
        lab.assume(excess, runs_descent.two_task_excess, heads)

    def merged(signs: np.ndarray) -> Trajectory:
        random = run(lambda key: Attention(Merged.of(jnp.zeros(2), jnp.zeros((2, 5, 5)))))
        U = signs[:, None, None] * (0.4 * np.eye(5) + 0.05 * np.asarray(random.models.circuits.U))
        weights = jnp.asarray(np.tile(signs[:, None, None], (4, 1, 1, 1))), jnp.asarray(U)
        models = eqx.tree_at(
            lambda model: (model.circuits.value, model.circuits.key_query),
            random.models,
            weights,
        )
        return dataclasses.replace(random, models=models)

    pairs, traps = merged(np.array([1.0, -1.0])), merged(np.ones(2))
    lab.assume(pairs, runs_descent.dynamics_run)
    for heads in (2, 3):
        ensemble = Ensemble.of((pairs, traps) * 8)
        lab.assume(ensemble, softmax_runs.blind_ensemble, heads)
    lab.assume(flow_by_theory(), multitask_runs.full_flow)
    return lab


def flow_by_theory() -> Trajectory:
    """The paper's three phases as a run whose weights are those that theory predicts."""
    blocks = icl.theory.multitask.Blocks.of(multitask_runs.paper_task())
    times, start = np.linspace(0.0, 60.0, 241), multitask_runs.paper_values()
    flow = icl.theory.multitask.spectral_flow(blocks, times, *start, 30)
    key, value = jnp.asarray(np.sqrt(30**0.5 * 10 * flow.omega)), jnp.asarray(np.sqrt(flow.mu))
    models = eqx.tree_at(
        lambda model: (model.circuits.K, model.circuits.Q, model.circuits.V, model.circuits.O),
        multitask_runs.paper_start(),
        (key, key, value, value),
    )
    return Trajectory(times, flow.loss, models)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CHEAP)
def test_data_are_finite_and_the_config_names_the_figure(drawings, name):
    drawing = drawings[name]
    assert all(np.all(np.isfinite(values)) for values in drawing.data.values())
    assert drawing.config["figure"] == name
    assert drawing.config["tier"] == "smoke"
    # Numbers, not names of tasks: whoever reads the file must be able to do it again.
    assert len(drawing.config["eigenvalues"]) == 4 and drawing.config["context"] == 31


def test_white_closed_form_lies_on_the_simulation(drawings):
    # The claim's own bound: a solver at 1e-9 a step.
    data = drawings["linear/white"].data
    np.testing.assert_allclose(data["theory_strength"], data["strength"], atol=1e-7)
    np.testing.assert_allclose(data["theory_loss"], data["loss"], atol=1e-7)
    assert np.ptp(data["strength"]) > 0.8  # and it is not a flat line


@pytest.mark.slow
def test_aligned_heads_lie_on_their_closed_form_and_on_one_universal_curve(drawings):
    data = drawings["linear/scalar-ode"].data
    np.testing.assert_allclose(data["theory_value"], data["value"], atol=1e-6)
    np.testing.assert_allclose(data["theory_loss"], data["loss"], atol=1e-6)
    # The universal curve is a table of 200 points; between them a line is good to 2e-4.
    x, y = data["theory_rescaled_time"], data["theory_rescaled_value"]
    for time, value in zip(data["rescaled_time"].T, data["rescaled_value"].T):
        inside = (time > x[0]) & (time < x[-1])
        assert inside.sum() > 20
        np.testing.assert_allclose(np.interp(time, x, y)[inside], value[inside], atol=3e-4)


def test_staircase_prediction_drops_where_the_simulation_does(drawings):
    data = drawings["linear/staircase"].data
    levels = data["theory_levels"]
    middles = (levels[:-1] + levels[1:]) / 2
    simulated = np.interp(-middles, -data["loss"], data["time"])
    predicted = np.interp(-middles, -data["theory_loss"], data["theory_time"])
    # The cascade's error at weights of 0.003; it falls with their square.
    np.testing.assert_allclose(predicted, simulated, rtol=1e-2)
    np.testing.assert_allclose(data["theory_drop_times"], simulated, rtol=1e-2)
    # Networks and attention are one function of one set of weights, under two solvers' steps.
    network = np.interp(data["network_time"], data["time"], data["loss"])
    resting = np.min(np.abs(network[:, None] - levels), axis=1) < 1e-3
    assert resting.sum() > 25
    np.testing.assert_allclose(data["network_loss"][resting], network[resting], atol=1e-4)
    assert data["loss"][-1] == pytest.approx(levels[-1], abs=1e-5)


@pytest.mark.slow
def test_phases_are_shaded_where_theory_has_them(drawings):
    data = drawings["multitask/phases"].data
    # Read between points 0.25 apart.
    np.testing.assert_allclose(data["phase_times"], data["theory_phase_times"], rtol=2e-3)
    np.testing.assert_allclose(data["omega"], data["theory_omega"][::2], rtol=1e-6)
    np.testing.assert_allclose(np.diag(data["final_omega"]), data["limit_omega"], rtol=1e-2)


@pytest.mark.slow
def test_heads_and_bayes_lie_on_the_lines_of_losses(drawings):
    data = drawings["multitask/bound-and-bayes"].data
    at = np.log(data["size"] / 100)
    for key in [key for key in data if key.startswith("bound")]:
        line = np.interp(at, np.log(data["ratio"]), data[key])
        # Small heads are 1e-4 above, and the line has 60 points.
        np.testing.assert_allclose(data[key.replace("bound", "attained")], line, rtol=1e-3)
    data = drawings["multitask/losses"].data
    for name in ("ridge_0.05", "ridge_5", "Bayes"):
        line = np.interp(at, np.log(data["ratio"]), data[f"{name}_a_task"])
        # Of order 1/L.
        np.testing.assert_allclose(data[f"{name}_finite_a_task"], line, rtol=0.02)
    # Double descent is the property of the weak penalty alone.
    peaks = {name: data[f"{name}_a_task"].max() for name in ("ridge_0.05", "one_head_a_task")}
    assert peaks["ridge_0.05"] > 1.8 and peaks["one_head_a_task"] < 1


@pytest.mark.slow
def test_what_is_sampled_lies_on_the_lines(drawings):
    data = drawings["multitask/regimes"].data
    for length in (100, 10_000):
        spots, lines = data[f"sampled_deviation_L{length}"], data[f"deviation_L{length}"]
        exact = np.exp(np.interp(spots, lines, np.log(data[f"concentration_L{length}"])))
        mean, error, signal, signal_error = data[f"sampled_L{length}"].T
        assert np.max(np.abs(mean - exact) / error) < 5
        assert np.max(np.abs(signal - spots * (1 - exact)) / signal_error) < 5
    data = drawings["multitask/regularisation"].data
    for key in ("ridge_0.05", "ridge_5", "Bayes"):
        at = np.log(data["marked_ratio"])
        line = np.interp(at, np.log(data["ratio"]), data[f"returned_{key}"])
        # Two contexts of 100 tokens, with d rounded to a whole number.
        np.testing.assert_allclose(data[f"sampled_{key}"], line, atol=0.02)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", UNTRAINED)
@pytest.mark.slow
def test_the_settings_of_a_softmax_figure_are_enough_to_do_it_again(drawings, name):
    settings = drawings[name].config
    for key in ("dim", "context", "noise", "heads", "steps", "batch", "optimiser", "weights"):
        assert key in settings, key
    assert any(key.startswith("seed") for key in settings)


@pytest.mark.parametrize("name", ("softmax/heads", "softmax/tasks"))
@pytest.mark.slow
def test_heat_maps_have_scales_and_cells_of_one_size(drawings, name):
    figure = drawings[name].figure
    figure.draw_without_rendering()
    maps = [axes for axes in figure.axes if axes.images]
    scales = [axes for axes in figure.axes if hasattr(axes, "_colorbar")]
    assert len(scales) == 2
    sizes = [m.get_window_extent().width / m.images[0].get_size()[1] for m in maps]
    ratio = 6 / 5 if name == "softmax/heads" else 1  # rows are one cell longer there
    assert max(sizes) / min(sizes) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.slow
def test_predicted_curves_are_smooth_and_apart_from_what_was_recorded(drawings):
    data = drawings["softmax/dynamics"].data
    assert len(data["step"]) == 4 and len(data["theory_step"]) == len(data["theory_omega"]) == 200


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CHEAP + UNTRAINED + MULTITASK)
def test_all_text_is_readable_inside_the_page_and_overlaps_no_other(drawings, name):
    from matplotlib.text import Text

    figure = drawings[name].figure
    figure.draw_without_rendering()
    texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    # Ticks beyond the ends of an axis are kept, and not drawn.
    unseen = {
        label
        for axes in figure.axes
        for axis, ends in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
        for label in (tick.label1, tick.label2)
        if not min(ends) <= tick.get_loc() <= max(ends)
    }
    boxes = [(t, t.get_window_extent().padded(-1)) for t in texts if t not in unseen]
    for i, (text, box) in enumerate(boxes):
        for other, beside in boxes[:i]:
            assert not box.overlaps(beside), (text, other)

    assert len(texts) > 10
    assert min(text.get_fontsize() for text in texts) >= 8
    page = figure.bbox.padded(1)  # a pixel for rounding
    for axes in figure.axes:
        shown = [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.texts]
        for text in [t for t in shown if t.get_text()]:
            box = text.get_window_extent()
            assert page.x0 <= box.x0 and box.x1 <= page.x1, text
            assert page.y0 <= box.y0 and box.y1 <= page.y1, text


@pytest.fixture(scope="module")
def saved(drawings, tmp_path_factory):
    """The files of a drawing, in folders that were not there."""
    folder = tmp_path_factory.mktemp("saved") / "deep" / "down"
    return save_drawing(drawings["linear/white"], folder, "white")


def test_a_drawing_is_saved_in_four_plain_formats(drawings, saved):
    drawing, paths = drawings["linear/white"], saved
    assert [path.name for path in paths] == ["white.pdf", "white.png", "white.npz", "white.toml"]
    assert sorted([*paths, paths[0].parent / MARKER]) == sorted(paths[0].parent.iterdir())
    pdf, png, npz, toml = paths
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and b"/FontFile2" in content and b"/Type3" not in content
    assert png.read_bytes().startswith(b"\x89PNG")
    assert int.from_bytes(png.read_bytes()[16:20], "big") == 1400  # 7 inches at 200 dots
    with np.load(npz, allow_pickle=False) as data:
        assert set(data) == set(drawing.data)
        for key, values in drawing.data.items():
            np.testing.assert_array_equal(data[key], values)
    assert drawing.caption == FIGURES["linear/white"].caption
    assert tomllib.loads(toml.read_text()) == {"caption": drawing.caption} | drawing.config


def test_reproduce_says_what_is_to_be_seen(drawings, tmp_path, capsys, monkeypatch):
    from iclflow.cli._reproduce import _draw

    monkeypatch.setattr(iclflow.drawing, "save_drawing", lambda *_: [])
    figure = dataclasses.replace(FIGURES["linear/white"], draw=lambda _: drawings["linear/white"])
    assert _draw(figure, tmp_path, "smoke", as_json=False) == 0
    assert figure.caption in " ".join(capsys.readouterr().out.split())
    assert _draw(figure, tmp_path, "smoke", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["caption"] == figure.caption


@pytest.mark.slow
def test_the_same_drawing_gives_the_same_bytes(drawings, saved, tmp_path):
    again = save_drawing(drawings["linear/white"], tmp_path, "white")
    for one, other in zip(saved, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.suffix


@pytest.mark.parametrize(
    "broken", [{"data": {"x": np.array([{}])}}, {"config": {"x": object()}}], ids=["data", "config"]
)
def test_a_drawing_that_cannot_be_saved_leaves_nothing_behind(drawings, tmp_path, broken):
    from matplotlib.figure import Figure

    # A page without anything on it, which is made in no time.
    drawing = dataclasses.replace(drawings["linear/white"], figure=Figure(figsize=(1, 1)), **broken)
    with pytest.raises(TypeError):
        save_drawing(drawing, tmp_path, "white")
    assert list(tmp_path.iterdir()) == []


def test_a_number_in_the_place_of_an_array_is_named(unchecked, tmp_path):
    from matplotlib.figure import Figure

    data: dict = {"loss": np.ones(2), "level": 0.5}
    with pytest.raises(TypeError, match=r"not plain arrays: level. Write a number as `np.array"):
        save_drawing(Drawing(Figure(figsize=(1, 1)), data, {}), tmp_path, "level")
    assert list(tmp_path.iterdir()) == []


def test_one_loss_and_its_slope_give_the_whole_column_of_a_landscape(monkeypatch):
    from iclflow.papers.softmax import runs_exact
    from iclflow.papers.softmax.runs_exact import Point

    def loss(omega, mu):
        return icl.theory.pair_loss(isotropic(5, 40, 0.1), float(omega[0]), float(mu[0]))

    def point(omega, mu):
        signs, step = np.array([1.0, -1.0]), 1e-4
        slope = (loss(omega, mu + step * signs) - loss(omega, mu - step * signs)) / (2 * step)
        return Point(loss(omega, mu), omega, slope * signs / 2)

    monkeypatch.setattr(runs_exact, "exact_point", point)
    omega, mu = np.array([0.05, 0.4]), np.array([0.1, 1.0, 7.0])
    found = runs_exact.exact_map(omega, mu)
    direct = [[loss([w], [m]) for w in omega] for m in mu]
    # A loss of up to 100, and slopes by differences of 1e-4.
    np.testing.assert_allclose(found, direct, rtol=1e-6)


def test_curves_between_computed_points_are_smooth():
    from iclflow.drawing.style import smooth_curve

    x, fine = np.geomspace(8, 1000, 11), np.geomspace(8, 1000, 60)
    law = lambda n: 3 / (n + 20)
    # A spline of third order with steps of half a unit in log L.
    np.testing.assert_allclose(smooth_curve(x, law(x), fine), law(fine), rtol=1e-3)


def test_settings_of_the_user_neither_matter_nor_change():
    import matplotlib

    from iclflow.drawing.style import RC, canvas, style

    with matplotlib.rc_context({"font.size": 30, "axes.labelsize": 31, "text.usetex": True}):
        with style():
            _, (panel,) = canvas("single", 2.0)
            assert panel.xaxis.label.get_fontsize() == RC["axes.labelsize"]
            assert not matplotlib.rcParams["text.usetex"]
        assert matplotlib.rcParams["font.size"] == 30
        assert matplotlib.rcParams["text.usetex"]


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (3, 10), (32, 40), (40, 40)])
def test_error_bars_of_shares_are_wilson_intervals(hits, count):
    from iclflow.papers.linear.figures_landscape import _binomial_interval

    one_deviation = 0.6826894921370859
    expected = binomtest(hits, count).proportion_ci(one_deviation, method="wilson")
    low, high = _binomial_interval(np.array([hits / count]), count)
    np.testing.assert_allclose([low[0], high[0]], [expected.low, expected.high], atol=1e-12)


@pytest.mark.parametrize(
    ("result", "end"), [(Result.converged, 5.0), (Result.finished, 2.0), (Result.diverged, 2.0)]
)
def test_only_a_converged_run_is_drawn_beyond_its_end(result, end):
    from iclflow.drawing.style import curve_until

    model = Attention(Merged.of(jnp.asarray(np.zeros(1)), jnp.asarray(np.zeros((1, 2, 2)))))
    models = jax.tree.map(lambda leaf: np.stack([leaf] * 3), model)
    run = Trajectory(np.arange(3.0), np.array([1.0, 0.5, 0.25]), models, result=result)
    times, losses = curve_until(run, 5.0)
    assert (times[-1], losses[-1]) == (end, 0.25)
    assert curve_until(run, 1.0)[0].tolist() == [0.0, 1.0]


def test_numbers_in_legends_are_short():
    from iclflow.drawing.style import power_of_ten

    assert [power_of_ten(x) for x in (0.0724, 7.3)] == ["0.072", "7.3"]
    assert power_of_ten(2.16e-5) == r"$2.2\times10^{-5}$"

"""Ready sweeps: their files, what their figures say at the smoke tier, and their command."""

import contextlib
import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from iclflow import cli, theory
from iclflow.analysis import wilson
from iclflow.drawing import Drawing
from iclflow.drawing.panels import log_edges
from iclflow.papers import DIAGRAMS, FIGURES, Diagram
from iclflow.sweeps import (
    Job,
    LocalEngine,
    Sweep,
    SweepFolder,
    SweepResults,
    batches_of,
    check_ends,
    parse_sweep,
)
from iclflow.tasks import isotropic

NAMES = tuple(DIAGRAMS)


def sweep_of(diagram: Diagram, tier: str = "default") -> Sweep:
    return parse_sweep(diagram.data(tier))


def computed(name: str, path: Path) -> Drawing:
    """The figure of a diagram at the smoke tier, its sweep computed in `path`."""
    diagram = DIAGRAMS[name]
    sweep = sweep_of(diagram, "smoke")
    with SweepFolder.lock(path, sweep) as folder:
        found = LocalEngine().compute(Job(sweep, batches_of(sweep), folder.parts, 100.0))
        parts = [folder.keep(each) for each in found]
        folder.complete(parts, {})
    return diagram.draw(SweepResults(sweep, path), "smoke")


def reproducing(folder: Path) -> list[str]:
    return ["reproduce", "sweeps/superposition", "--tier", "smoke", "--out", str(folder), "--json"]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> tuple[Path, dict]:
    """The folder of a figure that the command drew, and what it said."""
    folder, said = tmp_path_factory.mktemp("reproduced"), io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main(reproducing(folder)) == 0
    return folder, json.loads(said.getvalue())


@pytest.fixture(scope="module")
def drawings(tmp_path_factory, request):
    """Draws a diagram when it is first asked for."""
    made: dict[str, Drawing] = {}

    def get(topic: str) -> Drawing:
        name = f"sweeps/{topic}"
        if name == "sweeps/superposition" and name not in made:
            path = Path(request.getfixturevalue("reproduced")[1]["files"][4])
            made[name] = DIAGRAMS[name].draw(
                SweepResults(sweep_of(DIAGRAMS[name], "smoke"), path), "smoke"
            )
        if name not in made:
            made[name] = computed(name, tmp_path_factory.mktemp(topic) / "sweep")
        return made[name]

    return get


# Files ----------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_every_tier_is_a_sweep_that_can_be_run(name):
    diagram = DIAGRAMS[name]
    sizes = []
    for tier in ("smoke", "default", "paper"):
        sizes.append(len(sweep_of(diagram, tier)))
    sweep = sweep_of(diagram, "smoke")
    check_ends(sweep, batches_of(sweep))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    assert sweep_of(diagram).hash == parse_sweep(tomllib.loads(diagram.text())).hash
    assert diagram.title and diagram.caption.endswith(".") and diagram.paper.startswith("arXiv ")
    assert sweep_of(diagram).name == name.replace("/", "-") and name not in FIGURES


def test_an_unknown_tier_is_refused():
    with pytest.raises(ValueError, match='`tier` = .*: must be "smoke", "default" or "paper"'):
        DIAGRAMS["sweeps/scale"].data("large")


@pytest.mark.slow
def test_the_lists_of_figures_and_diagrams_load_no_plotting_library():
    code = (
        "import sys; from iclflow.papers import DIAGRAMS, FIGURES; assert DIAGRAMS and FIGURES; "
        "sys.exit(any(name.startswith('matplotlib') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Numbers --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_small_weights_have_the_plateaus_and_drop_times_of_the_cascade(drawings):
    data = drawings("scale").data
    assert data["theory_plateaus"] == 5
    np.testing.assert_array_equal(data["plateaus"][0], 5)
    # Corrections are of second order in the weights, 0.005, times some hundreds.
    assert np.all(data["drop_time_error"][0] < 0.02)
    assert np.all(data["plateaus"][-1] < 5)
    # Errors grow from scale to scale, as they must where small weights are the limit.
    assert np.nanmedian(data["drop_time_error"][1]) > np.nanmedian(data["drop_time_error"][0])
    # On the map, the way down is done in steps of theory's heights: half of the first one is done
    # at its drop time.
    rests = data["theory_levels"]
    half = (rests[0] - rests[1]) / (rests[0] - rests[-1]) / 2
    first = np.interp(half, data["share_done"][0], data["time"])
    assert abs(first / data["theory_drop_times"][0, 0] - 1) < 0.02


@pytest.mark.slow
def test_plateaus_by_rank_and_heads_are_as_many_as_theory_has(drawings):
    data = drawings("rank").data
    np.testing.assert_array_equal(data["plateaus"], [[3, 5]])
    np.testing.assert_array_equal(data["theory_plateaus"], [[3, 5]])
    np.testing.assert_array_equal(data["long"], [[2, 2]])
    np.testing.assert_array_equal(data["theory_long"], [[2, 2]])
    assert data["agree"].min() == 1
    # The law of logarithms is asymptotic; from weights of 0.01 to 0.001 it is off by some percent.
    assert len(data["lengthening"]) == 2
    np.testing.assert_allclose(data["lengthening"], data["theory_lengthening"], rtol=0.05)


@pytest.mark.slow
def test_patterns_emerge_from_as_many_seeds_as_theory_allows(drawings):
    drawing = drawings("seeds")
    data = drawing.data
    np.testing.assert_allclose(data["theory_share"], [0.5, 0.75])
    # A lower bound at this length: the upper end of the interval must reach it.
    assert np.all(data["share"][0, :, 2] > data["theory_share"])
    assert np.all(data["share"][0, :, 0] < 1), "some starts are lost"
    pair, alone = data["theory_loss"]
    # The best debiased step, by its own formula with d for A: L̃ neglects the 1 in it.
    odds = 1.1 * 5 / 40
    assert pair == pytest.approx(0.1 + odds / (1 + odds), rel=1e-12)
    assert alone == pytest.approx(
        theory.large_context_one_head(isotropic(5, 40, 0.1)).loss, rel=1e-12
    )
    for end, level in (("pattern", pair), ("one sign", alone)):
        # A pair that shrinks for ever is above its limit by the square of its width.
        np.testing.assert_allclose(data["final_loss"][data["end"] == end], level, rtol=5e-3)
    assert "0 of 64 runs are at neither end" in drawing.caption


@pytest.mark.slow
def test_a_trained_pair_is_as_far_above_bayes_as_the_debiased_step(drawings):
    data = drawings("ratio").data
    for i, noise in enumerate(data["noise"].tolist()):
        for j, length in enumerate(data["length"].tolist()):
            pair, plain, debiased, bayes = data["excess"][i, j]
            # The steps are exact; theory has formulas of its own.
            expected = theory.gradient_step_optimum(isotropic(5, length, noise)).risk - noise
            assert plain == pytest.approx(expected, rel=1e-9)
            expected = theory.debiased_optimum(isotropic(5, length, noise)).risk - noise
            assert debiased == pytest.approx(expected, rel=1e-9)
            # 20 000 sequences leave less than one percent of noise in each of the others.
            expected = theory.bayes_risk_isotropic(isotropic(5, length, noise)) - noise
            assert bayes == pytest.approx(expected, rel=0.03)
            # A pair of finite width is above the step: by less than 2 % at the end of training.
            error = data["fresh_error"][i, j]
            assert debiased - 4 * error < pair < 1.02 * debiased + 4 * error
    assert np.all(data["over_bayes"] > 1)


@pytest.mark.slow
def test_losses_of_divided_tasks_are_those_of_theory(drawings):
    data = drawings("superposition").data
    ratio = data["loss"] / data["theory_loss"]
    # The algebraic tail at the end; single starts that are nearly tied come late.
    assert np.mean(np.abs(ratio - 1) < 0.01) > 0.9
    assert np.all(data["share"][..., 0] <= data["theory_share"] + 1e-12)
    assert np.all(data["tasks_of_a_working_head"] >= 1)


def test_shares_have_wilson_intervals():
    low, high = wilson(3, 10)
    # By hand: the two p at which 3 of 10 is 1.96 standard errors of p away.
    for p in (low, high):
        assert abs(0.3 - p) == pytest.approx(1.959964 * np.sqrt(p * (1 - p) / 10), rel=1e-5)
    assert (low, high) == tuple(binomtest(3, 10).proportion_ci(method="wilson"))


def test_cells_of_a_map_meet_half_way_in_logarithms():
    np.testing.assert_allclose(log_edges(np.asarray([1.0, 4.0, 16.0])), [0.5, 2, 8, 32])


# Pictures -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_text_of_a_diagram_is_on_the_page_and_overlaps_no_other(drawings, name):
    from matplotlib.text import Text

    figure = drawings(name.removeprefix("sweeps/")).figure
    figure.draw_without_rendering()
    texts = [
        text
        for axes in figure.axes
        for text in [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *axes.texts]
        if text.get_text().strip()
    ]
    assert len(texts) > 5 and all(isinstance(text, Text) for text in texts)
    page = figure.bbox.padded(1)
    boxes = [(text, text.get_window_extent().padded(-1)) for text in texts]
    for i, (text, box) in enumerate(boxes):
        assert page.x0 <= box.x0 and box.x1 <= page.x1, text
        assert page.y0 <= box.y0 and box.y1 <= page.y1, text
        for other, beside in boxes[:i]:
            assert not box.overlaps(beside), (text, other)


# The command ----------------------------------------------------------------------------------


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.slow
def test_reproduce_goes_on_with_a_sweep_and_finds_a_finished_one(reproduced, capsys, monkeypatch):
    place, found = reproduced
    assert [Path(file).suffix for file in found["files"][:4]] == [".pdf", ".png", ".npz", ".toml"]
    folder = Path(found["files"][4])
    assert folder.parent == place and (folder / "manifest.json").is_file()
    settings = tomllib.loads((place / "sweeps-superposition.toml").read_text())
    assert (
        parse_sweep(settings["sweep"]).hash
        == sweep_of(DIAGRAMS["sweeps/superposition"], "smoke").hash
    )
    assert settings["caption"] == found["caption"] and "Measured, of 24 starts" in found["caption"]

    def refused(*_):
        raise AssertionError("a finished sweep was computed again")

    monkeypatch.setattr(LocalEngine, "compute", refused)
    picture = (place / "sweeps-superposition.png").read_bytes()
    assert run(capsys, *reproducing(place))[0] == 0
    assert (place / "sweeps-superposition.png").read_bytes() == picture


def test_reproduce_lists_diagrams_and_refuses_other_names(capsys, tmp_path):
    code, out, _ = run(capsys, "reproduce", "--list")
    assert code == 0 and all(f"{name} " in out for name in (*NAMES, "linear/staircase"))
    code, _, err = run(capsys, "reproduce", "sweeps/scales", "--out", tmp_path / "x")
    assert code == 2 and "did you mean sweeps/scale?" in err
    assert not (tmp_path / "x").exists()

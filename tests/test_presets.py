"""The presets of the explorer: each is a config that works, with controls and a picture."""

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from iclflow.analysis import drop_count
from iclflow.config import InputError, load_config
from iclflow.experiment import overlay, prepare, train
from iclflow.explorer import _reporter
from iclflow.explorer._presets import CONTROLS, check_controls, picture_of, presets
from iclflow.papers import PAPERS, claims_on, find_study, listed_claims
from iclflow.studies import read_study
from iclflow.trajectory import Trajectory

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "src" / "iclflow" / "explorer" / "static" / "presets"


def test_there_are_presets_of_all_papers_in_order():
    found = presets()
    assert len(found) >= 24 and {preset.paper for preset in found} == set(PAPERS)
    assert len({preset.id for preset in found}) == len(found)
    places = [(list(PAPERS).index(preset.paper), preset.order) for preset in found]
    assert places == sorted(set(places))
    assert found[0].id == "linear/staircase"


def test_the_staircase_is_that_of_the_examples_with_a_seed_on_which_all_claims_are_decided():
    example = load_config(ROOT / "examples" / "staircase.toml")
    assert presets()[0].config.hash == example.model_copy(update={"seed": 1}).hash


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.id)
def test_every_preset_says_what_it_shows_and_has_controls_within_their_range(preset):
    assert preset.words.endswith(".") and "  " not in preset.words and "\n" not in preset.words
    assert 5 <= len(preset.controls) <= 9 and len(set(preset.controls)) == len(preset.controls)
    for name in preset.controls:
        control = CONTROLS[name]
        section, _, key = name.rpartition(".")
        value = getattr(getattr(preset.config, section) if section else preset.config, key)
        if control.shape == "choice":
            assert value in {choice["value"] for choice in control.choices or ()}
        elif control.shape != "flag":
            numbers = value if isinstance(value, tuple) else (value,)
            assert control.shape == "bars" or len(numbers) == 1
            assert all(control.low <= number <= control.high for number in numbers)
    if getattr(preset.config.task, "eigenvalues", None):
        assert "task.eigenvalues" in preset.controls
    # Of several layers the depth is what matters, not the heads in each.
    several = preset.config.model.kind == "linear_stack"
    assert {"seed", "model.depth" if several else "model.heads"} <= set(preset.controls)


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.id)
def test_every_preset_has_a_small_picture(preset):
    path = PICTURES / picture_of(preset)
    assert path.stat().st_size <= 4096
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    assert root.tag.endswith("svg") and root.get("viewBox") == "0 0 160 90"
    assert root.findtext("{http://www.w3.org/2000/svg}title") == preset.title
    points = root.findall(".//{http://www.w3.org/2000/svg}polyline")[0].attrib["points"].split()
    assert len(points) >= 10
    for point in points:
        x, y = map(float, point.split(","))
        assert 0 <= x <= 160 and 0 <= y <= 90


def test_there_is_no_picture_without_a_preset():
    assert {path.name for path in PICTURES.iterdir()} == {
        picture_of(preset) for preset in presets()
    }


def _reported_theory(experiment, predicted, run, end, monkeypatch) -> list[dict]:
    """The curves that a page gets: before a run, after its first points, and at its end."""
    events: list[tuple[str, dict]] = []
    keep = lambda _, type, **content: events.append((type, content))
    monkeypatch.setattr(_reporter.WorkerChannel, "send_event", keep)
    monkeypatch.setattr(_reporter.WorkerChannel, "send_points", lambda *_: None)
    measured = SimpleNamespace(roles=None, lines={}, matrices={})
    panels = SimpleNamespace(clock=run.clock, lines=(), heads=(), matrices=())
    panels.measure = lambda _: measured
    stubs = {"build_panels": panels, "Narrator": None, "claims_on": (), "overlay": predicted}
    for name, stub in stubs.items():
        monkeypatch.setattr(_reporter, name, lambda *_, stub=stub: stub)
    channel = object.__new__(_reporter.WorkerChannel)  # there is no pipe behind it
    reporter = _reporter.Reporter(channel, experiment)
    reporter.begin(end)
    for part in (run[:3], run):
        reporter.report_points(part)
    reporter.report_theory(float(run.times[-1]), run.times)
    return [content["curve"] for type, content in events if type == "theory"]


# One preset for each kind of theory that has a curve, on both kinds of clock.
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name", ["linear/sgd", "linear/white", "linear/merged", "softmax/pair", "multitask/unequal"]
)
def test_theory_is_drawn_where_the_run_is_on_axes_of_both_kinds(name, monkeypatch):
    experiment = prepare(next(preset.config for preset in presets() if preset.id == name))
    predicted = overlay(experiment)
    flow = experiment.config.flow
    end = getattr(flow, "end", None) or getattr(flow, "steps", None) or 2 * predicted.drop_times[-1]
    # As adaptive steps, and those saved in equal ratios, do: from long before a thousandth on.
    clock = np.append(0.0, np.geomspace(1e-5 * end, end, 200))
    models = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (201, *leaf.shape)), experiment.model)
    run = Trajectory(clock, np.ones(201), models)
    curves = _reported_theory(experiment, predicted, run, end, monkeypatch)
    losses = predicted.curve(clock)
    shown = np.isfinite(losses)
    allowed = np.ptp(losses[shown])
    for share, curve in zip((0.05, 1e-6), curves[1:], strict=True):
        moments, drawn = np.asarray(curve["times"]), np.asarray(curve["losses"])
        on, later = moments > 0, shown & (clock > 0)
        straight = np.interp(clock[shown], moments, drawn, np.nan, np.nan)
        ratios = np.interp(np.log(clock[later]), np.log(moments[on]), drawn[on], np.nan, np.nan)
        # Between its points a curve is a chord; at the end it has all moments of the run, where it
        # is what was predicted to the tolerance of a solver.
        np.testing.assert_allclose(straight, losses[shown], rtol=0, atol=share * allowed)
        np.testing.assert_allclose(ratios, losses[later], rtol=0, atol=share * allowed)
    figure = predicted.for_plot(clock)
    assert np.isin(clock[shown], figure.times).all() and figure.times[-1] >= clock[-1]


def test_the_tool_draws_the_picture_that_is_there():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools/preset_pictures.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    preset = next(preset for preset in presets() if preset.id == "linear/white")
    drawn, there = tool.picture(preset), (PICTURES / picture_of(preset)).read_text(encoding="utf-8")
    # Another machine may round a last digit the other way.
    assert _numbers(drawn) == pytest.approx(_numbers(there), abs=0.11)
    assert len(drawn.splitlines()) == len(there.splitlines())


def _numbers(svg: str) -> list[float]:
    points = svg.split('points="')[1].split('"')[0].replace(",", " ")
    return [float(number) for number in points.split()]


def test_presets_load_without_jax():
    code = (
        "import sys; from iclflow.explorer._presets import presets; presets(); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_presets_name_claims_that_exist_and_that_no_single_run_tests():
    claims = {claim.id for claim in listed_claims()}
    named = {preset.id: preset.claims for preset in presets() if preset.claims}
    assert len(named) >= 12 and all(set(found) <= claims for found in named.values())
    # A few, since each takes a moment: the others were chosen in the same way.
    for id in ("linear/in-weight", "softmax/one-head", "softmax/nonlinear"):
        assert claims_on(find_study(id).config) == ()


@pytest.mark.parametrize(
    "name, drops", [("linear/staircase", 4), ("linear/merged", 1), ("linear/few-heads", 2)]
)
def test_presets_show_what_they_promise(name, drops):
    preset = next(preset for preset in presets() if preset.id == name)
    assert drop_count(train(prepare(preset.config))) == drops


def test_a_study_with_a_wrong_control_or_table_is_refused(tmp_path):
    text = (ROOT / "src/iclflow/papers/linear/studies/merged.toml").read_text()
    wrong = tmp_path / "merged.toml"
    wrong.write_text(text.replace('"model.scale"', '"model.rank"'))
    with pytest.raises(InputError, match="`study.controls` names `model.rank`"):
        check_controls(read_study(wrong, "linear"))
    for change in (("order = ", "place = "), ("title = ", "name = "), ("[study]", "[preset]")):
        wrong.write_text(text.replace(*change))
        with pytest.raises(InputError, match="must have title and words, and may have controls"):
            read_study(wrong, "linear")

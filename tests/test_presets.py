"""The presets of the explorer: each is a config that works, with controls and a picture."""

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from iclflow.analysis import drop_count
from iclflow.config import InputError, load_config
from iclflow.experiment import prepare, train
from iclflow.explorer._presets import CONTROLS, PAPERS, _read, presets

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
            assert value in dict(control.choices or ())
        elif control.shape != "flag":
            numbers = value if isinstance(value, tuple) else (value,)
            assert control.shape == "bars" or len(numbers) == 1
            assert all(control.low <= number <= control.high for number in numbers)
    if getattr(preset.config.task, "eigenvalues", None):
        assert "task.eigenvalues" in preset.controls
    assert {"seed", "model.heads"} <= set(preset.controls)


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.id)
def test_every_preset_has_a_small_picture(preset):
    path = PICTURES / preset.picture
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
    assert {path.name for path in PICTURES.iterdir()} == {preset.picture for preset in presets()}


def test_the_tool_draws_the_picture_that_is_there():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools/preset_pictures.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    preset = next(preset for preset in presets() if preset.id == "linear/white")
    drawn, there = tool.picture(preset), (PICTURES / preset.picture).read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    "name, drops", [("linear/staircase", 4), ("linear/merged", 1), ("linear/few-heads", 2)]
)
def test_presets_show_what_they_promise(name, drops):
    preset = next(preset for preset in presets() if preset.id == name)
    assert drop_count(train(prepare(preset.config))) == drops


def test_a_preset_with_a_wrong_control_is_refused(tmp_path):
    text = (ROOT / "src/iclflow/explorer/presets/linear-merged.toml").read_text()
    wrong = tmp_path / "linear-merged.toml"
    wrong.write_text(text.replace('"model.scale"', '"model.rank"'))
    with pytest.raises(InputError, match="`preset.controls` names `model.rank`"):
        _read(wrong)
    wrong.write_text(text.replace('paper = "linear"', 'paper = "softmax"'))
    with pytest.raises(InputError, match="`preset.paper`"):
        _read(wrong)
    wrong.write_text(text.replace("order = ", "place = "))
    with pytest.raises(InputError, match="must have controls, order, paper, title, words"):
        _read(wrong)

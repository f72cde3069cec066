"""The tutorials run, and become notebooks; a loop of somebody else is watched in five lines."""

import difflib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iclflow.watching import read_looks

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
LOOP = ROOT / "examples" / "torch_loop"
NEEDS = {
    "transformer_in_pytorch": ["torch"],
    "attention_in_jax": [],
    "random_gpt2": ["torch", "transformers"],
}
# Those that run whole, with what each has to print for its text to be true.
WHOLE = {
    "several_tasks": [
        r"owners of the tasks: \(0, 1, 2\)",
        r"loss at the end 6\.4\d+",
        r"one head a task 6\.412",
        r"[1-9]\d? of 12 starts end with one task a head",
        r"largest error of the predicted curve: \de-0[7-9]",
    ],
    "theory_on_your_run": [
        r"drop time: predicted 39\.1, measured 3[89]\.\d",
        r"theory is off by \de-0[5-9]",
        r"the loop is off by \de-0[3-9]",
    ],
    "staircase": [
        r"drop times   \[  580\.   850\.  3980\. 36170\.\]",
        r"scale 1e-04: largest error \de-0[67]",
        *(rf"PCR with {count} component" for count in (1, 2, 3)),
    ],
    "softmax_heads": [
        r"negative: ω = -0\.[12]",
        r"positive: ω = 0\.[12]",
        r"\none debiased gradient step: relative distance",
        r"these heads, on fresh sequences: 0\.2[456]",
    ],
    "your_own": [
        r"linear attention, growing noise: 1\.5374",
        r"trained: 1\.5[34]",
        r"falsify = False: holds\nfalsify = True: fails",
    ],
    "thousand_seeds": [r"0\.01  holds  \d", r"\n4  0\.01  5 ", r"\n4  1  1 "],
    "trained_model": [
        r"positive: .*\n(?:.*\n)?negative: |negative: .*\n(?:.*\n)?positive: ",
        r"one debiased gradient step, relative distance (?:\d|1\d)%",
        r"step 6000: ",
    ],
}
# Steps of the tests; the tutorials themselves make thousands.
SHORT = 12


def run(script: Path, folder: Path, *arguments: str) -> str:
    """Runs a script in a folder of its own, on one thread."""
    environment = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", WHOLE)
def test_a_tutorial_prints_what_its_text_says_and_draws(name, tmp_path):
    assert not is_there(name)
    said = run(TUTORIALS / f"{name}.py", tmp_path)
    assert [line for line in WHOLE[name] if not re.search(line, said)] == [], said
    (picture,) = tmp_path.glob("*.png")
    assert picture.name == f"{name}.png" and picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_a_tutorial_that_watches_runs_to_its_picture(name, tmp_path):
    for module in NEEDS[name]:
        if not is_there(module):
            pytest.skip(f"{module} is not installed")
    # As when it is run where it is: a tutorial must not have the name of a module.
    assert not is_there(name)
    source = (TUTORIALS / f"{name}.py").read_text()
    short, changed = re.subn(r"(?m)^STEPS, BATCH(.*) = \d+,", rf"STEPS, BATCH\1 = {SHORT},", source)
    assert changed == 1
    (tmp_path / "short.py").write_text(short)
    said = run(tmp_path / "short.py", tmp_path)
    assert "step 0: loss" in said or "before:" in said
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    for folder in (tmp_path / "runs").iterdir():
        looks = read_looks(folder)
        assert looks[-1].step == SHORT and all(look.distances for look in looks)


def test_every_tutorial_is_tested_and_becomes_a_notebook(tmp_path):
    assert {path.stem for path in TUTORIALS.glob("*.py")} == {*NEEDS, *WHOLE}
    run(ROOT / "tools" / "notebooks.py", tmp_path, str(tmp_path / "made"))
    for name in (*NEEDS, *WHOLE):
        source = (TUTORIALS / f"{name}.py").read_text()
        made = json.loads((tmp_path / "made" / f"{name}.ipynb").read_text())
        kinds = [cell["cell_type"] for cell in made["cells"]]
        assert made["nbformat"] == 4 and kinds[0] == "markdown" and kinds.count("code") >= 4
        first, last = ("".join(made["cells"][at]["source"]) for at in (0, -1))
        assert first.startswith("# ") and first.splitlines()[0].endswith("?")
        assert last.startswith("## What to try next")
        # No line of code is lost, and the cells are a program.
        code = "\n".join("".join(c["source"]) for c in made["cells"] if c["cell_type"] == "code")
        compile(code, name, "exec")
        lines = [line for line in source.splitlines() if line and not line.startswith("#")]
        assert [line for line in code.splitlines() if line and not line.startswith("#")] == lines


@pytest.fixture
def tool(monkeypatch):
    """The tool that runs tutorials and writes their pages."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("tutorials")


def test_outputs_become_part_of_the_notebook_and_of_the_page(tool, tmp_path, monkeypatch):
    script = tmp_path / "short.py"
    question = "# %% [markdown]\n# # Is it?\n\n# %%\nprint('yes')\n\n"
    words = "# %% [markdown]\n# ## The picture\n#\n# A *red* [dot](x.md).\n\n"
    draw = "# %%\nimport pathlib\npathlib.Path('dot.png').write_bytes(b'PNG')\n"
    script.write_text(question + words + draw)
    monkeypatch.chdir(tmp_path)
    made = tool.executed(script)
    stream, picture = (cell["outputs"][0] for cell in made["cells"] if cell["cell_type"] == "code")
    assert stream["text"] == ["yes\n"] and list(picture["data"]) == ["image/png"]
    text = tool.page(script, made, tmp_path)
    assert "```text\nyes\n```" in text and "![A red dot.](images/short-1.png)" in text
    assert (tmp_path / "short-1.png").read_bytes() == b"PNG"
    made["cells"][2]["source"] = ["## The picture"]
    assert "![A picture that answers: Is it?]" in tool.page(script, made, tmp_path)
    made["cells"][2]["source"] = words.splitlines(keepends=True)
    # Outputs of another version of the script are not shown.
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    (tmp_path / "short.ipynb").write_text(json.dumps(made))
    assert tool.outputs_of(script) is not None
    script.write_text(script.read_text() + "print('more')\n")
    assert tool.outputs_of(script) is None


def added_lines() -> list[str]:
    """What the watched loop has besides the loop, empty lines left out."""
    before, after = ((LOOP / name).read_text().splitlines()
                     for name in ("train.py", "train_watched.py"))  # fmt: skip
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    assert all(line.startswith("+") for line in changes), "a line of the loop was changed"
    return [line for line in changes if line[2:].strip()]


def test_a_training_loop_is_watched_in_five_lines():
    lines = added_lines()
    assert len(lines) <= 5 and sum("icl.watch(" in line for line in lines) == 1


@pytest.mark.slow
def test_the_loop_that_is_watched_runs_and_is_recorded(tmp_path):
    pytest.importorskip("torch")
    said = run(LOOP / "train_watched.py", tmp_path, "--steps", "30")
    looks = read_looks(tmp_path / "runs" / "icl")
    assert looks[0].step == 0 and len(looks[0].lengths) == 16 and looks[0].distances
    logged = [json.loads(line) for line in said.splitlines()]
    assert any("icl/loss" in line for line in logged) and any("loss" in line for line in logged)

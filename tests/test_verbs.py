"""`icl.run`, `icl.sweep`, `icl.verify`: what the commands do, for programs."""

from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import main
from iclflow.config import InputError, parse_config, to_toml
from iclflow.files import leftovers

pytestmark = pytest.mark.usefixtures("sketched")

CONFIG = {
    "name": "small",
    "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
    "model": {"kind": "separate", "heads": 2, "scale": 0.1},
    "flow": {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 40},
}


# run ------------------------------------------------------------------------------------------


def test_a_run_in_memory_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = icl.run(CONFIG)
    assert run.folder is None and not run.written and run.trajectory.result.ok
    assert run.summary().as_json()["name"] == "small" and set(run.figures())
    assert list(tmp_path.iterdir()) == []


def test_a_config_may_be_plain_data_an_object_or_a_file(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(to_toml(CONFIG))
    found = [icl.run(given).trajectory for given in (CONFIG, parse_config(CONFIG), file, str(file))]
    for each in found[1:]:
        np.testing.assert_array_equal(each.losses, found[0].losses)


def test_a_study_is_run_by_its_name_and_from_its_file(tmp_path):
    file = Path(icl.papers.__file__).parent / "linear" / "studies" / "white.toml"
    assert "[study]" in file.read_text()
    named, read = icl.run("linear/white"), icl.run(file)
    np.testing.assert_array_equal(named.trajectory.losses, read.trajectory.losses)
    assert (named.config.name, read.config.name) == ("linear-white", "white")
    copy = tmp_path / "own.toml"
    copy.write_text(file.read_text())
    assert main(["run", str(copy), "--out", str(tmp_path / "a")]) == 0


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (3, "^`config` = 3: must be a config, .* or the name of a study.$"),
        (None, "^`config` = None: must be"),
        ("linear/whit", r"neither a file nor a study: did you mean linear/white"),
    ],
)
def test_what_is_no_config_is_refused(wrong, sentence, unchecked):
    with pytest.raises(InputError, match=sentence):
        icl.run(wrong)


def test_a_run_in_a_folder_is_found_again(tmp_path):
    first = icl.run(CONFIG, tmp_path / "a")
    assert first.computed and first.written and not first.resumed
    second = icl.run(CONFIG, tmp_path / "a")
    assert not second.computed and second.folder == tmp_path / "a"
    np.testing.assert_array_equal(first.trajectory.losses, second.trajectory.losses)
    assert icl.run(CONFIG, tmp_path / "a", fresh=True).computed


def test_a_run_tells_how_far_it_is_and_resumes(tmp_path):
    settings, told = CONFIG | {"flow": CONFIG["flow"] | {"steps": 3000}}, []

    def interrupt(title, fraction, state):
        told.append(title)
        if fraction is not None and fraction > 0.5:
            raise KeyboardInterrupt

    stopped = icl.run(settings, tmp_path / "a", checkpoint_every=0.0, progress=interrupt)
    assert stopped.trajectory.result.name == "cancelled"
    assert told[0] == "small: compiling" and "small" in told and told[-1] == "small: drawing"
    resumed = icl.run(settings, tmp_path / "a", progress=False)
    assert resumed.resumed and resumed.trajectory.result.name == "finished"
    whole = icl.run(settings)
    np.testing.assert_array_equal(resumed.trajectory.losses, whole.trajectory.losses)


def test_a_run_that_cannot_work_leaves_nothing_behind(tmp_path):
    with pytest.raises(InputError, match="`model.heads`"):
        icl.run(CONFIG | {"model": CONFIG["model"] | {"heads": 0}}, tmp_path / "a")
    assert not Path(tmp_path / "a").exists() and leftovers(tmp_path) == []


# sweep ----------------------------------------------------------------------------------------

SPEC = {
    "name": "small",
    "seeds": 2,
    "base": {key: value for key, value in CONFIG.items() if key != "name"},
    "axes": {"model.scale": [0.1, 0.2]},
}
ROWS = "SELECT model.scale, seed, final_loss FROM results ORDER BY run"


def test_a_sweep_in_memory_gives_the_rows_of_one_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = icl.sweep(SPEC).ask(ROWS)[1]
    assert [row[:2] for row in rows] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    assert list(tmp_path.iterdir()) == []
    Path("small.toml").write_text(to_toml(SPEC))
    told: list[tuple] = []
    kept = icl.sweep("small.toml", out="a", progress=lambda *words: told.append(words))
    assert kept.ask(ROWS)[1] == rows and ("small", 1.0) in [words[:2] for words in told]
    with monkeypatch.context() as patch:  # now it is there
        patch.setattr("iclflow.sweeps._engine.compute_batch", None)
        assert icl.sweep(SPEC, icl.sweeps.LocalEngine(), out=Path("a")).ask(ROWS)[1] == rows


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_says_what_is_kept_and_resumes(tmp_path):
    spec = SPEC | {"batch": 1}

    def interrupt(title, fraction, state):
        if fraction is not None and fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt, match=r"\d of 4 runs are in .*a; `iclflow sweep .*a` resumes"
    ):
        icl.sweep(spec, out=tmp_path / "a", progress=interrupt)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        icl.sweep(spec, progress=interrupt)
    assert icl.sweep(spec, out=tmp_path / "a").ask(ROWS)[1] == icl.sweep(spec).ask(ROWS)[1]


@pytest.mark.parametrize(
    "change, engine, sentence",
    [
        ({}, "cloud", "`engine` = 'cloud': must be one of local, ray"),
        ({"measure": {"trajectories": True}}, "local", "`measure.trajectories` = true needs `out`"),
        ({"seeds": 0}, "local", "`seeds` = 0"),
    ],
)
def test_a_sweep_that_cannot_work_is_refused(change, engine, sentence):
    with pytest.raises(InputError, match=sentence):
        icl.sweep(SPEC | change, engine)


# verify ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_verification_in_memory_has_outcomes_figures_and_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    each: list = []
    report = icl.verify(["linear/scalar-ode"], jobs=1, progress=False, each=each.append)
    assert report.ok and report.verdicts == {"holds": 1} and report.left_out == ()
    assert [*report.outcomes, *report.figures] == each
    assert report.outcomes[0].claim.id == "linear/scalar-ode" in report.html()
    assert report.as_json()["claims"][0]["verdict"] == "holds"
    assert list(tmp_path.iterdir()) == []
    page = report.write(tmp_path)
    assert page.read_text() == report.html() and set(report.files)
    assert all((tmp_path / name).read_bytes() == data for name, data in report.files.items())


@pytest.mark.parametrize(
    "words, options, sentence",
    [
        (["linear/nothing"], {}, "is not a claim"),
        ([], {"tier": "all"}, "`tier` = 'all': must be one of smoke, default, paper"),
        ([], {"jobs": 0}, "`jobs` = 0: must be at least 1"),
        (["linear/scalar-ode"], {"paper": "softmax"}, "No claim was selected"),
    ],
)
def test_a_verification_that_cannot_work_is_refused(words, options, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        icl.verify(words, out=tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()

"""The command line: what it prints, what it writes, and with which code it ends."""

import contextlib
import dataclasses
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import iclflow.cli._run
import iclflow.papers
from iclflow.cli import COMMANDS, main
from iclflow.drawing import Drawing
from iclflow.flows import SaveEvenly
from iclflow.papers import CLAIMS as REGISTRY
from iclflow.papers import DIAGRAMS, FIGURES, Check, Claim, Figure, Inconclusive
from iclflow.trajectory import Result, Trajectory

pytestmark = pytest.mark.usefixtures("sketched")


@pytest.fixture(autouse=True)
def away_from_home(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves the user's compile cache alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)
    monkeypatch.setattr("matplotlib.rcParams", matplotlib.rcParams.copy())


@pytest.fixture
def small(tmp_path) -> Path:
    """A config that runs in no time."""
    path = tmp_path / "small.toml"
    path.write_text(
        """
        [task]
        kind = "linear_regression"
        eigenvalues = [0.8, 0.5]
        context = 20
        [model]
        kind = "separate"
        heads = 2
        [flow]
        kind = "gradient_descent"
        learning_rate = 0.05
        steps = 40
        """
    )
    return path


def result_of(*words: str, capsys) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# The front door -------------------------------------------------------------------------------


def python(program: str, *words: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from iclflow.cli import main; code = main(['--help']); "
        "heavy = {'jax', 'numpy', 'scipy', 'matplotlib', 'pydantic', 'tyro', 'rich'}; "
        "print(sorted(heavy & set(sys.modules))); sys.exit(code)"
    )
    done = python(program)
    assert done.returncode == 0, done.stderr
    *text, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert all(any(line.split()[:1] == [name] for line in text) for name in COMMANDS)


@pytest.mark.timed
def test_help_and_version_answer_at_once():
    def seconds(word: str) -> float:
        begin = time.perf_counter()
        python(f"from iclflow.cli import main; main(['{word}'])")
        return time.perf_counter() - begin

    def bare() -> float:
        begin = time.perf_counter()
        python("pass")
        return time.perf_counter() - begin

    # Half a second on a free machine; a busy one slows the bare interpreter just as much.
    for word in ("--help", "--version"):
        assert any(seconds(word) - bare() < 0.45 for _ in range(3))


def test_version_is_that_of_the_package(capsys):
    assert result_of("--version", capsys=capsys)[:2] == (0, f"iclflow {_version()}\n")


def _version() -> str:
    from importlib.metadata import version

    return version("iclflow")


def test_an_unknown_command_is_refused(capsys):
    code, out, err = result_of("explode", capsys=capsys)
    assert (code, out) == (2, "")
    names = ", ".join(COMMANDS)
    assert err == f"iclflow: 'explode' is not a command: must be one of {names}.\n"


@pytest.mark.parametrize("command", ["claims", "verify", "reproduce", "run"])
def test_every_command_explains_itself(command, capsys):
    try:
        code = main([command, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code == 0 and f"iclflow {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, part",
    [
        (("verify", "--tier", "huge"), "invalid choice: 'huge'"),
        (("verify", "--speed", "3"), "unrecognized arguments: --speed 3"),
        (("claims", "--paper", "none"), "invalid choice: 'none'"),
        (("reproduce",), "`NAME` is missing"),
        (("run", "--out", "x"), "`FILE` comes first, before --out"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(words, part, capsys):
    code, out, err = result_of(*words, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("iclflow: ") and part in err


# run ------------------------------------------------------------------------------------------


def test_run_writes_a_folder_and_prints_a_summary(rendered, small, tmp_path, capsys):
    code, out, err = result_of("run", small, "--out", tmp_path / "here", capsys=capsys)
    assert (code, err) == (0, "")
    assert "finished: The run reached its end." in out and "written to" in out
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        *("config.toml", "loss.pdf", "loss.png", "manifest.json", "trajectory.safetensors")
    ]
    assert Trajectory.load(tmp_path / "here").times[-1] == 40


def test_run_chooses_a_folder_by_name_and_hash_and_takes_flags(small, tmp_path, capsys):
    words = ("run", small, "--seed", "3", "--flow.steps", "30", "--json")
    code, out, _ = result_of(*words, capsys=capsys)
    summary = json.loads(out)
    assert code == 0 and summary["result"] == "finished"
    folder = Path("runs") / f"small-{summary['hash'][:8]}"
    assert summary["folder"] == str(folder)
    assert Trajectory.load(folder).times[-1] == 30
    assert {"final_loss", "floor", "plateaus", "drops", "theory", "clock"} <= set(summary)


def test_the_same_run_may_be_run_again_but_no_other_in_its_place(small, tmp_path, capsys):
    words = ("run", small, "--out", tmp_path / "here", "--json")
    first = json.loads(result_of(*words, capsys=capsys)[1])
    assert json.loads(result_of(*words, capsys=capsys)[1])["final_loss"] == first["final_loss"]
    code, out, err = result_of(*words, "--seed", "9", capsys=capsys)
    assert (code, out) == (2, "") and "holds another run" in err
    assert result_of(*words, "--seed", "9", "--force", capsys=capsys)[0] == 0


@pytest.fixture
def impatient(monkeypatch):
    """From when it is called on, somebody presses Ctrl-C while a run is under way."""

    class Impatient(iclflow.cli._run.Activity):
        def update(self, title, fraction=None, state=""):
            if fraction is not None:
                raise KeyboardInterrupt

    return lambda: monkeypatch.setattr(iclflow.cli._run, "Activity", Impatient)


def test_a_run_that_is_interrupted_keeps_what_it_has(small, tmp_path, capsys, impatient):
    impatient()
    words = ("run", small, "--flow.steps", "2000", "--out", tmp_path / "here")
    code, out, _ = result_of(*words, capsys=capsys)
    assert code == 130 and "cancelled" in out
    kept = Trajectory.load(tmp_path / "here")
    assert kept.result is Result.cancelled and 0 < kept.times[-1] < 2000


@pytest.mark.parametrize("flags", [("--fresh",), ("--seed", "9", "--force")])
def test_a_run_that_is_interrupted_does_not_replace_one_that_reached_its_end(
    flags, small, tmp_path, capsys, impatient
):
    words = ("run", small, "--flow.steps", "2000", "--out", tmp_path / "here")
    assert result_of(*words, capsys=capsys)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    impatient()
    code, out, _ = result_of(*words, *flags, capsys=capsys)
    assert code == 130 and "not written: the complete run stays in" in out
    after = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    # How far it came is kept beside the other, so that it can be taken up.
    assert after.pop("checkpoint.safetensors") and after == before
    code, out, _ = result_of(*words, *flags, "--json", capsys=capsys)
    assert code == 130 and json.loads(out)["written"] is False


def test_a_run_interrupted_before_it_has_anything_leaves_nothing(
    small, tmp_path, capsys, monkeypatch
):
    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setattr("iclflow.experiment._run.prepare", interrupted)
    code, out, err = result_of("run", small, "--out", tmp_path / "a" / "b", capsys=capsys)
    assert (code, out, err) == (130, "", "iclflow: interrupted; nothing was kept.\n")
    assert not (tmp_path / "a").exists()


def test_a_program_that_is_interrupted_ends_at_once():
    """Threads that still compile would crash in a process that is being taken down."""
    program = """
import atexit, sys
import iclflow.cli, iclflow.cli._claims
atexit.register(print, "taken down")
iclflow.cli._claims.main = lambda words: (print("kept", flush=True), 130)[1]
sys.argv = ["iclflow", "claims"]
sys.exit(iclflow.cli.main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "kept\n", "")


def test_an_interrupted_run_says_what_is_kept_and_how_to_go_on(
    small, tmp_path, capsys, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    words = ("run", small, "--checkpoint-every", "0", "--out", tmp_path / "a")
    with monkeypatch.context() as changed:
        changed.setattr("iclflow.experiment._run.loss_figure", interrupted)
        code, out, err = result_of(*words, capsys=capsys)
    again = ("run", tmp_path / "a" / "config.toml", "--out", tmp_path / "a")
    kept = f"what was computed is in {tmp_path / 'a'}; `{' '.join(map(str, ('iclflow', *again)))}`"
    assert (code, out, err) == (130, "", f"iclflow: interrupted; {kept} resumes.\n")
    assert json.loads(result_of(*again, "--json", capsys=capsys)[1])["resumed"]
    # A folder with a complete run has the config of that one: the command that was given resumes.
    other = (*words, "--model.scale", "0.3")
    with monkeypatch.context() as changed:
        changed.setattr("iclflow.experiment._run.loss_figure", interrupted)
        err = result_of(*other, "--fresh", "--force", capsys=capsys)[2]
    assert "the same command resumes" in err


def test_a_command_that_keeps_nothing_says_nothing_of_it(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("iclflow.cli._claims.main", interrupted)
    assert result_of("claims", capsys=capsys) == (130, "", "iclflow: interrupted.\n")


def test_files_and_folders_of_other_commands_are_refused_by_name(small, tmp_path, capsys):
    sweep = tmp_path / "many.toml"
    sweep.write_text("seeds = 2\n[base.task]\nkind = 'linear_regression'\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.toml").write_text(small.read_text())
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "sweep.toml").write_text(sweep.read_text())
    computes = "computes it, or shows it if it is complete"
    remedies = {
        "many.toml": f"is the file of a sweep: `iclflow sweep many.toml` {computes}",
        "small.toml": f"is the file of a run: `iclflow run small.toml` {computes}",
        "one": "is the folder of a run: `iclflow show one` shows it",
        "swept": "is the folder of a sweep: `iclflow query swept` shows its table",
    }
    own = {
        ("run",): "small.toml",
        ("sweep",): "many.toml",
        ("show",): "one",
        ("inspect",): "one",
        ("query",): "swept",
        ("plot", "--x", "seed", "--y", "final_loss"): "swept",
    }
    for (name, *flags), fits in own.items():
        for path, remedy in remedies.items():
            if path != fits:
                assert result_of(name, path, *flags, capsys=capsys) == (
                    *(2, "", f"iclflow: `{path}` {remedy}.\n"),
                )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["many.toml", "one", "small.toml", "swept"]


def test_a_run_that_diverges_is_kept_and_not_called_done(small, tmp_path, capsys):
    words = ("--flow.learning_rate", "1e4", "--model.scale", "1")
    code, out, _ = result_of("run", small, *words, "--out", tmp_path / "d", capsys=capsys)
    assert code == 1 and "diverged" in out
    assert Trajectory.load(tmp_path / "d").result is Result.diverged


def test_help_of_a_file_shows_its_settings(small, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", str(small), "--help"])
    assert stop.value.code == 0 and "(here: 40)" in capsys.readouterr().out


# claims, verify, reproduce --------------------------------------------------------------------


def make_claim(name: str, test, **fields) -> Claim:
    return Claim(f"linear/{name}", "linear", f"Statement {name}.", "Section 1", "smoke", "Reason.",
                 test, **fields)  # fmt: skip


def honest(lab):
    lab.note(heads=2, save=SaveEvenly(7))
    return [Check("value", lab.predict(2.0), 2.0, 1e-3)]


def wrong(lab):
    return [Check("value", 1.0, 2.0, 1e-3)]


def broken(lab):
    raise ZeroDivisionError("oh\nno")


def undecided(lab):
    raise Inconclusive("too few seeds")


def vain(lab):
    return [Check("value", 2.0, 2.0, 1e-3)]


def miscounted(lab):
    return [Check("count", [8, 4], [8, 5], comparison="equal")]


CLAIMS = {
    "honest": make_claim("honest", honest),
    # The same with a figure, which takes most of a second to write.
    "drawn": make_claim("honest", honest, figures=("linear/line",)),
    "wrong": make_claim("wrong", wrong),
    "misstated": make_claim("misstated", wrong, corrected_by="linear/honest"),
    "broken": make_claim("broken", broken),
    "undecided": make_claim("undecided", undecided),
    "vain": make_claim("vain", vain),
    "miscounted": make_claim("miscounted", miscounted),
}


def draw_line(lab) -> Drawing:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    ax.plot([0, 1], [1, 0])
    return Drawing(figure, {"x": np.asarray([0.0, 1.0])}, {"figure": "linear/line", "seed": 0})


@pytest.fixture
def registry(monkeypatch):
    """Puts a few small claims, and one figure, in the place of the real ones."""

    def install(*names: str) -> None:
        chosen = {CLAIMS[name].id: CLAIMS[name] for name in names}
        monkeypatch.setattr(REGISTRY, "_items", chosen)
        monkeypatch.setattr(REGISTRY, "_loaded", True)
        line = Figure("linear/line", "A line", "It falls.", "Figure 1", draw_line)
        monkeypatch.setattr(FIGURES, "_items", {"linear/line": line})
        monkeypatch.setattr(FIGURES, "_loaded", True)
        # Lists are read from the source, which has none of these.
        monkeypatch.setattr(iclflow.papers, "listed_claims", lambda: tuple(chosen.values()))
        monkeypatch.setattr(iclflow.papers, "listed_figures", lambda: (line,))

    return install


def test_claims_are_listed_for_people_and_for_programs(registry, capsys):
    registry("honest", "wrong")
    assert "Statement honest." in result_of("claims", capsys=capsys)[1]
    listed = json.loads(result_of("claims", "--json", capsys=capsys)[1])
    assert listed[0] == {
        "id": "linear/honest",
        "paper": "linear",
        "statement": "Statement honest.",
        "source": "Section 1",
        "tier": "smoke",
        "misstated": False,
        "overread": False,
        "corrected_by": None,
    }


def test_claims_that_are_misstated_are_listed_as_such(registry, capsys):
    registry("honest", "misstated")
    lines = result_of("claims", capsys=capsys)[1].splitlines()
    (line,) = [line for line in lines if line.startswith("linear/misstated")]
    assert line.endswith("misstated: corrected in linear/honest")
    assert sum("misstated" in line for line in lines) == 2  # there, and in its statement


def test_a_paper_without_claims_says_so(registry, capsys):
    registry("honest")
    words = ("claims", "--paper", "softmax")
    assert result_of(*words, capsys=capsys)[:2] == (
        *(0, "There is no claim of the paper `softmax` yet.\n"),
    )
    assert json.loads(result_of(*words, "--json", capsys=capsys)[1]) == []


# Each command is run by a copy of a process that has loaded what both need.
LISTS = """
import os, sys
import iclflow.papers
assert iclflow.papers.FIGURES and not any(name.startswith("matplotlib") for name in sys.modules)
import iclflow.papers, iclflow.cli._claims, iclflow.cli._tables
iclflow.papers.all_claims()
for words in ("claims", "claims --json", "--help", "--version", "claims --help", "bogus"):
    if (child := os.fork()) == 0:
        sys.exit(iclflow.cli.main(words.split()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 2 * (words == "bogus"), (words, status)
"""


@pytest.mark.slow
def test_the_list_of_figures_loads_no_matplotlib_and_a_reader_who_leaves_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    # JAX warns that threads are not copied.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", LISTS]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=120)
    os.close(write)
    assert done.returncode == 0
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("iclflow: 'bogus' is not a command")


@pytest.mark.skipif(sys.platform == "win32", reason="file descriptors are of Unix")
@pytest.mark.parametrize(
    "code, said, words, streams",
    [
        (2, "iclflow: No space left on device.\n", ["--help"], {"stdout": "/dev/full"}),
        (2, "", ["bogus"], {"stderr": None}),
        (0, "", ["--help"], {"stdout": None}),
        (0, "", ["--help"], {}),
    ],
)
def test_output_that_goes_nowhere_never_ends_in_a_traceback(code, said, words, streams, tmp_path):
    program = (
        "import os, sys\n"
        "for name, place in STREAMS.items():\n"
        "    number = {'stdout': 1, 'stderr': 2}[name]\n"
        "    getattr(sys, name).flush(); os.close(number); setattr(sys, name, None)\n"
        "    if place: os.open(place, os.O_WRONLY); setattr(sys, name, open(number, 'w'))\n"
        "from iclflow.cli import main\n"
        f"sys.exit(main({words}))\n"
    ).replace("STREAMS", repr(streams))
    if "/dev/full" in streams.values() and not Path("/dev/full").exists():
        pytest.skip("there is no device that is full")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_verify_writes_report_json_and_figures(registry, tmp_path, capsys):
    registry("drawn", "misstated", "undecided")
    out = tmp_path / "out"
    code, text, _ = result_of("verify", "--out", out, "--json", tmp_path / "r.json", capsys=capsys)
    assert code == 0
    assert "✓ holds" in text and "≠ misstated" in text and "too few seeds" in text
    names = [".iclflow.json", "claims.json", "figures", "report.html"]
    assert sorted(p.name for p in out.iterdir()) == names
    assert sorted(p.name for p in (out / "figures").iterdir()) == [
        f"linear-line.{kind}" for kind in ("npz", "pdf", "png", "toml")
    ]
    page = (out / "report.html").read_text()
    assert "Statement honest." in page and "data:image/svg+xml;base64," in page
    written = json.loads((tmp_path / "r.json").read_text())
    assert written == json.loads((out / "claims.json").read_text())
    assert written["verdicts"] == {"holds": 1, "misstated": 1, "inconclusive": 1}
    first = written["claims"][0]
    wanted = "id paper statement predicted measured error tolerance tolerance_reason verdict"
    assert set(wanted.split()) | {"seconds", "config"} <= set(first)
    assert first["config"] == {"heads": 2, "save": "SaveEvenly(count=7)"}
    assert first["verdict"] == "holds"


@pytest.mark.parametrize(
    "flags, folder",
    [
        ((), "out/verify"),
        (("--claim", "linear/honest"), "out/verify-part"),
        (("--paper", "linear"), "out/verify-part"),
        (("--falsify",), "out/falsify"),
        (("--falsify", "--tier", "smoke"), "out/falsify-part"),
    ],
)
def test_a_report_never_takes_the_place_of_one_of_another_kind(registry, flags, folder, capsys):
    registry("honest", "misstated")
    _, text, _ = result_of("verify", *flags, capsys=capsys)
    assert text.endswith(f"report: {folder}/report.html\n")
    assert [str(path) for path in Path("out").iterdir()] == [folder]


def test_results_are_recorded_repeated_and_compared(registry, tmp_path, monkeypatch, capsys):
    registry("honest", "misstated")
    monkeypatch.setattr("iclflow.verification._record._home", lambda: tmp_path / "results")
    words = ("verify", "--out", tmp_path / "o")
    code, _, problem = result_of(*words, "--record", tmp_path / "results", capsys=capsys)
    assert code == 2 and "--tier paper" in problem
    assert not (tmp_path / "results").exists() and not (tmp_path / "o").exists()
    code, _, problem = result_of(*words, "--recorded", capsys=capsys)
    assert code == 2 and "recorded result" in problem
    keep = ("--tier", "paper", "--claim", "linear/honest", "--record", tmp_path / "results")
    assert result_of(*words, *keep, capsys=capsys)[0] == 0
    code, text, _ = result_of(*words, "--recorded", capsys=capsys)
    assert code == 0 and "1 claim in" in text and "linear/honest  agrees with the record" in text
    path = tmp_path / "results" / "linear-honest.json"
    path.write_text(path.read_text().replace('"holds"', '"misstated"'))
    code, text, _ = result_of(*words, "--recorded", capsys=capsys)
    assert code == 1 and "differs from the record" in text


def test_figures_of_an_earlier_report_are_removed_and_nothing_else(registry, tmp_path, capsys):
    registry("drawn", "wrong")
    words, figures = ("verify", "--out", tmp_path / "o"), tmp_path / "o" / "figures"
    result_of(*words, capsys=capsys)
    (figures / "mine.png").write_text("mine")
    result_of(*words, "--claim", "linear/wrong", capsys=capsys)
    assert [path.name for path in figures.iterdir()] == ["mine.png"]


@pytest.mark.parametrize(
    "names, flags, sentence",
    [
        (("honest",), (), "1 claim in *: 1 holds"),
        (("honest", "vain", "misstated"), (), "3 claims in *: 2 hold, 1 is misstated"),
        (("honest", "wrong"), ("--falsify",), "2 claims in *: all fail, as they should"),
        (("vain", "wrong"), ("--falsify",), "2 claims in *: 1 holds, but none should; 1 fails*"),
    ],
)
def test_verify_closes_with_a_sentence(registry, names, flags, sentence, tmp_path, capsys):
    registry(*names)
    _, text, _ = result_of("verify", *flags, "--out", tmp_path / "o", capsys=capsys)
    assert fnmatch.fnmatch(text.splitlines()[-2], sentence)


def test_counts_that_differ_are_not_equal_on_the_terminal_too(registry, tmp_path, capsys):
    registry("miscounted")
    _, text, _ = result_of("verify", "--out", tmp_path / "o", capsys=capsys)
    assert "not equal" in text and "inf" not in text


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of Unix")
def test_an_interrupted_verify_stops_at_once(registry, tmp_path, capsys, monkeypatch):
    def interrupted(lab):
        with contextlib.suppress(KeyboardInterrupt):  # as flows do, which keep what they have
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        raise AssertionError("went on")

    monkeypatch.setitem(CLAIMS, "interrupted", make_claim("interrupted", interrupted))
    registry("interrupted", "honest")
    code, text, err = result_of("verify", "--out", tmp_path / "a" / "b", capsys=capsys)
    assert (code, text, err) == (130, "", "iclflow: interrupted; no report was written.\n")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of Unix")
@pytest.mark.parametrize("options, printed", [("", "loaded\n"), ("at_once=True", "")])
def test_an_interrupt_never_breaks_off_the_loading_of_a_module(options, printed, tmp_path):
    (tmp_path / "module.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('loaded', flush=True)\n"
    )
    program = (
        "import sys, time; from iclflow.cli._interrupts import Interrupts\n"
        "try:\n"
        f"    with Interrupts({options}): import module; time.sleep(60)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    done = python(program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, printed)
    assert "Traceback" not in done.stderr


def test_verify_prints_json_alone_where_asked(registry, tmp_path, capsys):
    registry("honest")
    code, text, _ = result_of("verify", "--json", "--out", tmp_path / "o", capsys=capsys)
    assert code == 0 and json.loads(text)["claims"][0]["id"] == "linear/honest"


def test_verify_says_which_claims_belong_to_another_tier(registry, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(
        CLAIMS, "slow", dataclasses.replace(CLAIMS["honest"], id="linear/slow", tier="paper")
    )
    registry("honest", "slow")
    code, text, _ = result_of("verify", "--out", tmp_path / "o", capsys=capsys)
    words = "1 more claim (linear/slow) belongs to a tier that takes longer"
    assert code == 0 and f"{words}: iclflow verify --tier paper\n" in text
    data = json.loads((tmp_path / "o" / "claims.json").read_text())
    assert data["left_out"] == [{"id": "linear/slow", "tier": "paper"}]
    assert [each["comparison"] for each in data["claims"]] == ["absolute"]
    assert words in (tmp_path / "o" / "report.html").read_text()
    text = result_of("verify", "--tier", "paper", "--out", tmp_path / "p", capsys=capsys)[1]
    assert "takes longer" not in text


@pytest.mark.parametrize("name, code", [("honest", 0), ("wrong", 1), ("broken", 1)])
def test_verify_fails_only_when_a_claim_fails(registry, name, code, tmp_path, capsys):
    registry("honest", name)
    assert result_of("verify", "--out", tmp_path / "o", capsys=capsys)[0] == code


def test_a_claim_that_breaks_is_a_failure_with_its_reason_and_stops_nobody(
    registry, tmp_path, capsys
):
    registry("broken", "honest")
    _, text, _ = result_of("verify", "--out", tmp_path / "o", capsys=capsys)
    assert "stopped with ZeroDivisionError: oh no" in text and "✓ holds" in text


@pytest.mark.parametrize(
    "names, code",
    [(("drawn", "wrong", "misstated"), 0), (("drawn", "vain"), 1), (("drawn", "broken"), 1)],
)
def test_falsify_wants_every_claim_to_fail(registry, names, code, tmp_path, capsys):
    registry(*names)
    assert result_of("verify", "--falsify", "--out", tmp_path / "o", capsys=capsys)[0] == code
    assert not (tmp_path / "o" / "figures").exists()


def test_verify_runs_only_what_was_asked_for(registry, tmp_path, capsys):
    registry("honest", "wrong")
    words = ("verify", "--claim", "linear/honest", "--out", tmp_path / "o", "--json")
    code, text, _ = result_of(*words, capsys=capsys)
    assert code == 0 and [c["id"] for c in json.loads(text)["claims"]] == ["linear/honest"]
    code, _, err = result_of("verify", "--claim", "linear/hones", capsys=capsys)
    assert code == 2 and "is not a claim: did you mean linear/honest?" in err
    assert result_of("verify", "--paper", "softmax", capsys=capsys)[0] == 2


def test_reproduce_draws_one_figure(registry, tmp_path, capsys):
    registry("honest")
    words = ("reproduce", "linear/line", "--out", tmp_path / "f", "--json")
    code, text, _ = result_of(*words, capsys=capsys)
    result = json.loads(text)
    assert code == 0 and result["name"] == "linear/line"
    assert sorted(Path(file).suffix for file in result["files"]) == [
        ".npz",
        ".pdf",
        ".png",
        ".toml",
    ]
    assert all(Path(file).is_file() for file in result["files"])


def test_figures_and_reports_of_others_are_neither_overwritten_nor_deleted(
    registry, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    registry("drawn")
    # The default folder of the one is where the other puts its figures.
    assert result_of("reproduce", "linear/line", capsys=capsys)[0] == 0
    kept = {path.name: path.read_bytes() for path in Path("figures").iterdir()}
    code, text, err = result_of("verify", "--out", ".", capsys=capsys)
    assert (code, text, err.count("\n")) == (
        2,
        "",
        1,
    ) and "`figures/linear-line.pdf` was not" in err
    code, *_ = result_of("verify", "--falsify", "--out", ".", capsys=capsys)
    assert code == 0 and {p.name: p.read_bytes() for p in Path("figures").iterdir()} == kept
    # Ours are written again, unless they were changed since.
    for words in (("verify", "--out", "o"), ("reproduce", "linear/line")):
        assert [result_of(*words, capsys=capsys)[0] for _ in range(2)] == [0, 0]
    for words, file in (
        (("verify", "--out", "o"), Path("o/report.html")),
        (("reproduce", "linear/line"), Path("figures/linear-line.toml")),
    ):
        file.write_text("my notes")
        code, _, err = result_of(*words, capsys=capsys)
        assert code == 2 and f"`{file}` was not written by iclflow, or was changed since" in err
        assert file.read_text() == "my notes"


def test_reproduce_lists_figures_and_refuses_others(registry, tmp_path, capsys):
    registry("honest")
    first = result_of("reproduce", "--list", capsys=capsys)[1].splitlines()[0]
    assert first.split(maxsplit=1) == ["linear/line", "A line"]
    listed = json.loads(result_of("reproduce", "--list", "--json", capsys=capsys)[1])
    assert listed[0]["name"] == "linear/line" and listed[0]["caption"] == "It falls."
    code, _, err = result_of("reproduce", "linear/lime", "--out", tmp_path / "f", capsys=capsys)
    assert code == 2 and "did you mean linear/line?" in err
    assert not (tmp_path / "f").exists()


def test_bench_says_where_it_has_gone(capsys):
    code, out, err = result_of("bench", "linear", capsys=capsys)
    assert (code, out) == (2, "") and "`make bench` measures speed" in err


# The compile cache ----------------------------------------------------------------------------


# Two processes that compute, each a copy of one that has loaded modules and computed nothing.
# Figures are left empty, since nobody looks at them.
TWICE = """
import json, os, sys
from pathlib import Path
import matplotlib.pyplot, iclflow.cli._run, iclflow.experiment._figure
iclflow.experiment._figure._render = lambda figure, kind: b""
for _ in range(2):
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(iclflow.cli.main(sys.argv[2:]))
    assert os.waitpid(child, 0)[1] == 0
    print(json.dumps(sorted(path.name for path in Path(sys.argv[1]).glob("*-cache"))), flush=True)
"""


@pytest.mark.slow
def test_compiled_programs_are_kept_between_runs(small, tmp_path):
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    environment["XLA_FLAGS"] = os.environ["XLA_FLAGS"]  # as little optimised as all other tests
    environment["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # or it looks for all fonts
    folder = tmp_path / "cache" / "iclflow" / "compiled"
    # No theory covers such a prior: it would be most of what is compiled.
    small.write_text(small.read_text().replace("[model]", "prior_mean = [1.0, 0.5]\n[model]"))
    words = ["run", str(small), "--out", str(tmp_path / "o"), "--fresh"]
    # JAX warns that threads are not copied.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", TWICE, str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first and first == second


def test_a_study_runs_by_its_name_unless_there_is_a_file_of_that_name(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    by_name = iclflow.cli._run.read_config("linear/white", ["--seed", "3"])
    assert (by_name.name, by_name.seed, by_name.model.kind) == ("linear-white", 3, "merged")
    (tmp_path / "linear").mkdir()
    text = '[task]\nkind = "linear_regression"\neigenvalues = [1.0]\ncontext = 5\n'
    (tmp_path / "linear" / "white").write_text(f'{text}[model]\nkind = "separate"\nheads = 1\n')
    assert iclflow.cli._run.read_config("linear/white").model.kind == "separate"
    code, _, err = result_of("run", "linear/stairs", capsys=capsys)
    assert code == 2 and err.count("\n") == 1
    assert "`linear/stairs` is neither a file nor a study: did you mean linear/staircase" in err
    assert [path.name for path in tmp_path.iterdir()] == ["linear"]


@pytest.mark.parametrize(
    "width, left_out", [(80, []), (32, ["seconds"]), (10, ["seconds", "model"])]
)
def test_a_narrow_table_leaves_out_columns_and_keeps_names_whole(
    monkeypatch, capsys, width, left_out
):
    from rich.console import Console

    from iclflow.cli import _tables

    monkeypatch.setattr(_tables, "_console", lambda _: Console(width=width))
    name = "runs/a_long_name"
    _tables.print_columns(("run", "model", "seconds"), [(name, "merged", "1.25")], 240,
                          ("seconds", "model"))  # fmt: skip
    shown = capsys.readouterr().out
    assert ("merged" in shown, "1.25" in shown) == ("model" not in left_out, not left_out)
    assert ("Left out at this width: " + ", ".join(left_out) in shown) == bool(left_out)
    assert name in shown or width < len(name)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_help_and_lists_fit_into_eighty_columns():
    import fcntl
    import pty
    import struct
    import termios

    words = [["--help"], ["reproduce", "--list"], *([name, "--help"] for name in COMMANDS)]
    program = f"""
import contextlib
from iclflow.cli import main
for words in {words!r}:
    with contextlib.suppress(SystemExit):
        main(words)
"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    # The end of the output is an error on Linux.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    lines = shown.decode().splitlines()
    assert len(lines) > 200
    assert [line for line in lines if len(line) > 80] == []


def test_text_is_broken_between_words_on_a_terminal_alone(monkeypatch, capsys):
    from iclflow.cli import _streams

    text = "holds  linear/a-claim-with-a-long-name  refuted by: some words\nshort"
    monkeypatch.setenv("COLUMNS", "40")
    assert _streams.wrap(text, 7) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    first = "holds  linear/a-claim-with-a-long-name"
    assert _streams.wrap(text, 7).splitlines() == [
        first, "       refuted by: some words", "short"
    ]  # fmt: skip


def test_where_a_run_lies_is_broken_on_a_narrow_terminal(monkeypatch, capsys):
    from iclflow.cli import _tables
    from iclflow.experiment import run
    from iclflow.papers import study

    summary = run(study("linear/white", flow={"end": 1.0}), progress=False).summary()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    folder = "runs/a-name-that-is-quite-long-0123abcd"
    _tables.print_summary(summary, f"in {folder}; its loss is drawn in {folder}/loss.png")
    closing = capsys.readouterr().out.splitlines()[-2:]
    assert closing == [f"in {folder}; its loss is drawn in", f"{folder}/loss.png"]


def test_examples_are_listed_and_copies_run_like_the_studies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = result_of("examples", "--json", capsys=capsys)
    listed = {each["name"]: each for each in json.loads(out)}
    assert code == 0 and set(iclflow.papers.STUDIES) <= set(listed)
    assert {name for name, each in listed.items() if each["command"] == "sweep"} == set(DIAGRAMS)
    code, out, _ = result_of("examples", "--paper", "linear", capsys=capsys)
    assert code == 0 and "The staircase: four plateaus" in out and "softmax/" not in out
    names = ("linear/white", "sweeps/scale")
    code, out, _ = result_of("examples", *names, "--out", "mine", capsys=capsys)
    assert out == "iclflow run mine/linear-white.toml\niclflow sweep mine/sweeps-scale.toml\n"
    copied = iclflow.cli._run.read_config("mine/linear-white.toml")
    assert copied.hash == iclflow.papers.study("linear/white").hash
    assert Path("mine/sweeps-scale.toml").read_text() == DIAGRAMS["sweeps/scale"].text()
    # All or nothing, and nothing is replaced.
    before = Path("mine/linear-white.toml").read_bytes()
    code, _, err = result_of("examples", "linear/", "--out", "mine", capsys=capsys)
    assert code == 2 and "`mine/linear-white.toml` exists: remove it" in err
    assert len(list(Path("mine").iterdir())) == 2
    assert Path("mine/linear-white.toml").read_bytes() == before
    code, _, err = result_of("examples", "linear/whit", capsys=capsys)
    assert code == 2 and "is not an example: did you mean linear/white" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]

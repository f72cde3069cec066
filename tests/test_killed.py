"""A sweep that is killed again and again, each time at another of the moments that matter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iclflow.cli import main
from iclflow.config import to_toml
from iclflow.files import LOCK, leftovers

# The program of a sweep of test_sweep.py: who has run that need not compile it.
SWEEP = {
    "name": "killed",
    "seeds": 1,
    "batch": 2,
    "base": {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
        "model": {"kind": "separate", "heads": 2, "scale": 0.1},
        "risk": {"kind": "sampled", "batch": 8},
        "flow": {"kind": "adam", "learning_rate": 0.01, "steps": 40},
        "save": {"kind": "linear", "count": 11},
    },
    "axes": {"model.scale": [0.3, 0.1], "task.noise": [0.1, 0.2]},
    "measure": {"trajectories": True},
}
# Compiles as the tests do, since other programs are other bits. Loads all that a sweep needs, and
# computes nothing: whoever dies is a copy of it, so that modules are loaded once.
PROGRAM = """
import os, re, signal, sys
from iclflow.runtime import compile_quickly
compile_quickly(optimise=False)
replace = os.replace
from iclflow.cli import main
import iclflow.cli._sweep, iclflow.sweeps
for line in sys.stdin:
    when, pattern = line.split()
    def dying(source, target):
        for moment in ("before", "after"):
            if moment == when and re.search(pattern, str(target)):
                os.kill(os.getpid(), signal.SIGKILL)
            if moment == "before":
                replace(source, target)
    if (child := os.fork()) == 0:
        os.dup2(2, 1)
        os.replace = dying
        os._exit(main(sys.argv[1:]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# The marker half written, the first file, a batch; trajectories without their part; a table nobody
# vouches for; not yet tidy.
DEATHS = (
    ("before", r"\.iclflow\.json$"),
    ("before", r"sweep\.toml$"),
    ("before", r"parts/\d+-\w+-\w+\.parquet"),
    ("after", r"trajectories/"),
    ("after", r"results\.parquet"),
    ("after", r"manifest\.json"),
)


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "manifest.json"}


@pytest.mark.slow
def test_a_sweep_that_is_killed_while_it_writes_ends_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)
    Path("killed.toml").write_text(to_toml(SWEEP))
    words = ["sweep", "killed.toml", "--out"]
    assert main([*words, "whole"]) == 0
    program = [sys.executable, "-c", PROGRAM, *words, "killed"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(program, **pipes) as copied:
        for when, pattern in DEATHS:
            print(when, pattern, file=copied.stdin)
            assert copied.stdout.readline() == f"{-signal.SIGKILL}\n"
            assert Path("killed", LOCK).exists()
            if when == "before":
                assert leftovers(Path("killed")) or leftovers(Path("killed/parts"))
        copied.communicate(timeout=60)
    assert Path("killed/manifest.json").exists() and Path("killed/parts").exists()
    assert main([*words, "killed"]) == 0
    assert main(["runs", "gc", "--yes", "--root", "killed"]) == 0
    assert contents(Path("killed")) == contents(Path("whole"))
    assert sorted(os.listdir("killed")) == sorted(os.listdir("whole"))

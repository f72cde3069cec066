"""Kills runs and sweeps at random moments, starts them again, and compares every bit.

Usage: `python tools/kill_runs.py --kills 100 --seed 0`. Every kind of run and of sweep is computed
once undisturbed. Then it is started again and again in a new folder, killed (SIGKILL, the whole
process group) at a random moment between the opening of its folder and its end, most of them once
more or several times while they are being taken up, and then left to finish. Last, one of each
kind is killed and not taken up, and `iclflow runs gc` must leave nothing of it. Exit code 1 if
anything differs.
"""

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iclflow.config import to_toml
from iclflow.files import LOCK, MANIFEST, MARKER

EIGENVALUES = [0.4, 0.3, 0.2, 0.1]
TASK = {"kind": "linear_regression", "eigenvalues": EIGENVALUES}
STIFF = TASK | {"eigenvalues": [0.6, 0.5, 0.4, 0.01]}
WIDE = TASK | {"eigenvalues": [0.6 - 0.05 * i for i in range(12)]}
SEPARATE = {"kind": "separate", "heads": 4, "scale": 1e-2}
MERGED = {"kind": "merged", "heads": 2, "scale": 0.1}
SAMPLED = {"kind": "sampled", "batch": 32}
POINTS = {"kind": "linear", "count": 101}


def _descent(kind: str, steps: int, rate: float, **rest) -> dict[str, Any]:
    return {"kind": kind, "steps": steps, "learning_rate": rate, **rest}


RUNS = {
    "flow, explicit": {
        "task": WIDE,
        "model": SEPARATE | {"heads": 12},
        "flow": {"end": 40000.0, "solver": "explicit"},
    },
    "flow, explicit then implicit": {"task": STIFF, "model": SEPARATE, "flow": {"end": 1e6}},
    "gradient descent": {
        "task": TASK,
        "model": SEPARATE,
        "flow": _descent("gradient_descent", 1_000_000, 0.05),
    },
    "SGD, sampled": {
        "task": TASK,
        "model": MERGED,
        "risk": SAMPLED,
        "flow": _descent("sgd", 12_000, 0.02, momentum=0.5),
        "save": POINTS,
    },
    "Adam, sampled": {
        "task": TASK,
        "model": MERGED,
        "risk": SAMPLED,
        "flow": _descent("adam", 12_000, 1e-3),
        "save": POINTS,
    },
    "Adam, minibatches": {
        "task": TASK,
        "model": MERGED,
        "risk": {"kind": "minibatch", "sequences": 500, "batch": 16},
        "flow": _descent("adam", 8_000, 1e-3),
        "save": POINTS,
    },
    "flow, data set": {
        "task": WIDE,
        "model": SEPARATE | {"heads": 12},
        "risk": {"kind": "dataset", "sequences": 300},
        "flow": {"end": 20000.0},
    },
}
KEPT = {"names": ["floor"], "trajectories": True}
SWEEPS = {
    # 128 runs in 64 lanes, which are refilled; two batches.
    "sweep of flows": {
        "seeds": 64,
        "batch": 128,
        "base": {"task": TASK, "model": SEPARATE, "flow": {"end": 4000.0}},
        "axes": {"model.scale": [0.05, 0.02, 0.01, 0.005]},
        "measure": KEPT | {"names": ["floor", "plateaus"]},
    },
    "sweep of Adam, sampled": {
        "seeds": 8,
        "batch": 8,
        "base": {key: RUNS["Adam, sampled"][key] for key in ("task", "model", "risk", "save")}
        | {"flow": _descent("adam", 1200, 1e-3)},
        "axes": {"model.scale": [0.2, 0.1, 0.05]},
        "measure": KEPT,
    },
    "sweep of two shapes, data sets": {
        "seeds": 8,
        "batch": 8,
        "base": {
            "task": TASK,
            "model": SEPARATE,
            "risk": {"kind": "dataset", "sequences": 100},
            "flow": _descent("gradient_descent", 60_000, 0.05),
        },
        "axes": {"model.heads": [3, 4], "model.scale": [0.02, 0.01]},
        "measure": {"names": ["drops"]},
    },
}
# Chances that a start that takes up a killed one is killed too.
AGAIN = 0.7
EVERY = "0.05"
LEFT = (LOCK, MARKER, "checkpoint.safetensors")


@dataclasses.dataclass
class Kind:
    """One command, and how long it is at work once it has its folder."""

    name: str
    words: tuple[str, ...]
    seconds: float
    reference: Path


@dataclasses.dataclass
class Tally:
    """What became of the kills of one kind."""

    kills: int = 0
    computing: int = 0
    resumable: int = 0
    finished: int = 0
    identical: int = 0

    @property
    def whole(self) -> bool:
        return self.kills == self.finished == self.identical


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills runs and sweeps, and compares every bit.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="no new kill after so many")
    parser.add_argument("--only", default="", help="kinds whose names contain this")
    parser.add_argument("--keep", metavar="DIR", help="work here, and leave what there is")
    options = parser.parse_args()
    place = Path(options.keep or tempfile.mkdtemp(prefix="kill-runs-")).absolute()
    for name in ("tmp", "whole", "killed"):
        (place / name).mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    # What is left in the folder for temporary files counts as well.
    os.environ["TMPDIR"] = str(place / "tmp")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(place / "compiled"))
    kinds = list(_kinds(options.only))
    tallies = {kind.name: Tally() for kind in kinds}
    dice, total = random.Random(options.seed), 0
    until = time.monotonic() + 60 * options.minutes
    while total < options.kills and time.monotonic() < until:
        kind = min(kinds, key=lambda kind: tallies[kind.name].kills)
        total += _killed(kind, dice, tallies[kind.name], options.kills - total)
        print(f"\r{total} of {options.kills} kills", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _print(kinds, tallies)
    left = _tidied(kinds, dice)
    print(f"{len(kinds)} more were killed and not taken up; after gc these are left: {left}")
    if not options.keep:
        shutil.rmtree(place)
    return 0 if not left and all(tally.whole for tally in tallies.values()) else 1


def _kinds(only: str) -> Iterator[Kind]:
    """Every kind, computed once: what it gives, how long it takes, and a full compile cache."""
    for command, named in (("run", RUNS), ("sweep", SWEEPS)):
        for number, (name, data) in enumerate(named.items()):
            if only not in name:
                continue
            file, reference = Path(f"{command}-{number}.toml"), Path(f"whole/{command}-{number}")
            file.write_text(to_toml(data | ({"theory": False} if command == "run" else {})))
            words = (command, str(file), "--checkpoint-every", EVERY, "--out")
            start = time.monotonic()
            process = _started((*words, str(reference)))
            opened = _opened(process, reference)
            if process.wait() != 0:
                sys.exit(f"{name}: ended with {process.returncode}\n{_said()}")
            seconds, whole = (time.monotonic() - since for since in (opened, start))
            print(f"{name}: {whole:.1f} s, {seconds:.1f} s of them in its folder", flush=True)
            yield Kind(name, words, seconds, reference)


def _killed(kind: Kind, dice: random.Random, tally: Tally, most: int) -> int:
    """Kills one command once or more often, lets it finish, and compares; how many kills landed."""
    folder = Path("killed") / f"{kind.reference.name}-{dice.getrandbits(40):010x}"
    kills, process = 0, None
    while kills < most and (kills == 0 or dice.random() < AGAIN):
        killed, process = _kill(kind, folder, dice)
        if not killed:
            break  # it was over before its moment came
        kills += 1
        tally.computing += (folder / LOCK).exists() and not (folder / MANIFEST).exists()
        tally.resumable += _resumable(folder)
        process = None
    if kills == 0:
        shutil.rmtree(folder)
        return 0
    tally.kills += kills
    process = process or _started((*kind.words, str(folder)))
    if process.wait() != 0:
        print(f"{kind.name}: {folder} ended with {process.returncode}\n{_said()}", flush=True)
        return kills
    tally.finished += kills
    # What a process that died after it had finished left of its own stays until gc.
    differs = [name for name in _differences(kind.reference, folder) if name not in LEFT]
    if differs:
        print(f"{kind.name}: {folder} differs in {', '.join(differs)}", flush=True)
        return kills
    tally.identical += kills
    return kills


def _kill(kind: Kind, folder: Path, dice: random.Random) -> tuple[bool, subprocess.Popen]:
    """Starts a command and kills it at a random moment; False if it was over before."""
    new = not folder.exists()
    process = _started((*kind.words, str(folder)))
    opened = _opened(process, folder)
    moment = opened + dice.random() * kind.seconds
    while process.poll() is None and time.monotonic() < moment:
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    elif new:  # with what is compiled already it takes less
        kind.seconds = time.monotonic() - opened
    return process.wait() == -signal.SIGKILL, process


def _started(words: tuple[str, ...]) -> subprocess.Popen:
    command = [sys.executable, "-m", "iclflow", *words]
    with open("said.txt", "wb") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)


def _said() -> str:
    return Path("said.txt").read_text()


def _opened(process: subprocess.Popen, folder: Path) -> float:
    """When a process has taken its folder. A lock that a killed one left is of an older file."""
    before = _identity(folder / LOCK)
    while process.poll() is None:
        now = _identity(folder / LOCK)
        if now is not None and (now != before or _held(folder / LOCK)):
            break
        time.sleep(0.002)
    return time.monotonic()


def _identity(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _held(path: Path) -> bool:
    """Whether a process has a lock on a file, as the system tells."""
    inode = _identity(path)
    return any(f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines())


def _resumable(folder: Path) -> bool:
    """Whether something of what was computed is on disk."""
    found = [*folder.glob("*checkpoint*"), *(folder / "parts").glob("[!.]*")]
    return bool(found) or (folder / MANIFEST).exists()


def _differences(whole: Path, other: Path) -> list[str]:
    """The files of which one is missing, or that differ."""
    one, two = _contents(whole), _contents(other)
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


def _contents(folder: Path) -> dict[str, Any]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    content: dict[str, Any] = {name: path.read_bytes() for name, path in found.items()}
    if MANIFEST in content:
        content[MANIFEST] = _timeless(json.loads(content[MANIFEST]))
    return content


def _timeless(manifest: Any) -> Any:
    """A manifest without what the clock decides, and its own hash, which knows that."""
    if not isinstance(manifest, dict):
        return manifest
    kept = {key: value for key, value in manifest.items() if key not in ("seconds", "hash")}
    return {key: _timeless(value) for key, value in kept.items()}


def _tidied(kinds: list[Kind], dice: random.Random) -> list[str]:
    """Kills one of each kind once more, tidies, and returns what should not be left of all."""
    given_up = [Path(f"killed/{number}") for number in range(len(kinds))]
    for kind, folder in zip(kinds, given_up):
        while not _kill(kind, folder, dice)[0]:
            shutil.rmtree(folder)
    process = _started(("runs", "gc", "--yes", "--stopped", "--root", "killed"))
    if process.wait() != 0:
        sys.exit(f"gc ended with {process.returncode}\n{_said()}")
    left = [str(path) for path in Path("tmp").rglob("*")]
    for kind in kinds:
        for folder in Path("killed").glob(f"{kind.reference.name}-*"):
            left += [str(folder / name) for name in _differences(kind.reference, folder)]
    for folder in given_up:  # those that had their manifest are complete
        if not (folder / MANIFEST).exists():
            left += [str(path) for path in (folder, *folder.rglob("*")) if path.exists()]
    return left


def _print(kinds: list[Kind], tallies: dict[str, Tally]) -> None:
    columns = ("kills", "computing", "resumable", "finished", "identical")
    width = max(len(kind.name) for kind in kinds)
    print(f"{'kind':<{width}}  " + "  ".join(f"{name:>9}" for name in columns))
    rows = {kind.name: [getattr(tallies[kind.name], name) for name in columns] for kind in kinds}
    rows["all"] = [sum(column) for column in zip(*rows.values())]
    for name, row in rows.items():
        print(f"{name:<{width}}  " + "  ".join(f"{count:>9}" for count in row))


if __name__ == "__main__":
    sys.exit(main())

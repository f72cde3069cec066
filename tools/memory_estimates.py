"""Measures how much memory runs take, beside what `iclflow` expects of them.

Usage: `python tools/memory_estimates.py --configs 60 --seed 1 --from 0.9 --to 3`. Draws configs of
every kind of model, risk and flow, with one size grown until the estimate lies where it was drawn
(evenly in its logarithm). Each is run by `iclflow run` in a process of its own, for a few steps but
with all that takes memory: compiling, drawing, the test set, points that are kept, the figure. Says
for each what was expected, the peak that the system measured, and their ratio. Exit code 1 if a
ratio lies beyond a factor of 2, or a run neither ends well nor is refused in a sentence.

With `--limit GIB` runs are started under `ulimit -v`, and are drawn just below and just above what
they may then take: none may be killed, or end in a traceback. For the same in a container, start
this program in one, and draw around three quarters of what it allows with `--from` and `--to`.
"""

import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from iclflow.config import InputError, memory_needed, parse_config, to_toml
from iclflow.config._limits import GIB, SHARE, UNUSED_ADDRESSES

# Of addresses beyond what is expected: whoever needs more has been estimated wrong by far.
SPARE = 4 * GIB
COMMAND = [sys.executable, "-c", "import sys, iclflow.cli; sys.exit(iclflow.cli.main())", "run"]
Data = dict[str, Any]


def linear_task(rng: random.Random, **rest) -> Data:
    dim = rng.choice((3, 5, 8, 16))
    eigenvalues = [round(rng.uniform(0.2, 1.0), 3) for _ in range(dim)]
    noise = rng.choice((0.0, 0.1))
    task = {"kind": "linear_regression", "eigenvalues": eigenvalues, "noise": noise}
    return task | {"context": rng.choice((15, 40, 100))} | rest


def function_task(rng: random.Random) -> Data:
    kind = rng.choice(("quadratic", "sparse", "two_layer_relu", "decision_tree", "hermite"))
    return {"kind": kind, "inputs": rng.choice((4, 8, 16)), "context": rng.choice((20, 60))}


def multi_task(rng: random.Random) -> Data:
    labels, each = rng.choice((2, 3)), rng.choice((2, 4))
    coordinates = [list(range(i * each, (i + 1) * each)) for i in range(labels)]
    return {"kind": "multi_task", "coordinates": coordinates, "context": rng.choice((20, 60))}


def softmax_model(rng: random.Random) -> Data:
    kind = rng.choice(("merged", "separate", "factored", "structured"))
    model: Data = {"kind": kind, "heads": rng.choice((1, 2, 4)), "activation": "softmax"}
    model["self_attention"] = rng.random() < 0.5
    if kind in ("merged", "separate"):
        model["form"] = rng.choice(("reduced", "full"))
    return model


def descent(rng: random.Random, *kinds: str) -> Data:
    flow = {"kind": rng.choice(kinds), "learning_rate": 1e-3, "steps": rng.choice((2, 4))}
    return {"flow": flow, "save": {"kind": "linear", "count": 2}}


def sampled(rng: random.Random, task: Data, model: Data, precision: str = "float64") -> Data:
    risk = {"kind": "sampled", "batch": rng.choice((16, 64, 256)), "precision": precision}
    return {"task": task, "model": model, "risk": risk, **descent(rng, "sgd", "adam")}


def sampled_softmax(rng: random.Random) -> Data:
    return sampled(rng, linear_task(rng), softmax_model(rng))


def sampled_in_single(rng: random.Random) -> Data:
    return sampled(rng, linear_task(rng), softmax_model(rng), "float32")


def sampled_functions(rng: random.Random) -> Data:
    return sampled(rng, function_task(rng), softmax_model(rng))


def sampled_labels(rng: random.Random) -> Data:
    kind = rng.choice(("multi_merged", "multi_factored", "multi_blind", "multi_structured"))
    return sampled(rng, multi_task(rng), {"kind": kind, "heads": rng.choice((2, 4))})


def sampled_mixture(rng: random.Random) -> Data:
    task = linear_task(rng, kind="in_context_in_weight", fraction=0.5)
    return sampled(rng, task, softmax_model(rng))


def sampled_stack(rng: random.Random) -> Data:
    model = {"kind": "stack", "heads": rng.choice((1, 2)), "depth": rng.choice((1, 2, 3))}
    return sampled(rng, linear_task(rng), model)


def sampled_linear(rng: random.Random) -> Data:
    model = {"kind": rng.choice(("merged", "two_layer", "factored")), "heads": 2}
    if model["kind"] == "factored":
        model["activation"] = "linear"
    return sampled(rng, linear_task(rng), model)


def on_a_data_set(rng: random.Random) -> Data:
    kind = rng.choice(("dataset", "minibatch"))
    model = rng.choice((softmax_model(rng), {"kind": "merged", "heads": 2}))
    task = rng.choice((linear_task, function_task))(rng)
    flows = ("gradient_descent", "adam") if kind == "dataset" else ("sgd", "adam")
    risk = {"kind": kind, "sequences": 1000}
    return {"task": task, "model": model, "risk": risk, **descent(rng, *flows)}


def flow_on_a_data_set(rng: random.Random) -> Data:
    flow = {"end": 1e-3, "solver": rng.choice(("explicit", "implicit"))}
    risk = {"kind": "dataset", "sequences": 100}
    task, save = linear_task(rng), {"kind": "linear", "count": 2}
    return {"task": task, "model": softmax_model(rng), "risk": risk, "flow": flow, "save": save}


def exact_flow(rng: random.Random) -> Data:
    kind = rng.choice(("merged", "separate", "two_layer", "convolutional"))
    model = {"kind": kind, "heads": rng.choice((4, 16, 64))}
    flow = {"end": 1e-3, "solver": "explicit"}
    save = {"kind": "linear", "count": rng.choice((2, 20))}
    return {"task": linear_task(rng), "model": model, "flow": flow, "save": save}


def implicit_flow(rng: random.Random) -> Data:
    model = {"kind": rng.choice(("merged", "separate")), "heads": rng.choice((4, 16))}
    flow = {"end": 1e-3, "solver": "implicit"}
    save = {"kind": "linear", "count": 2}
    return {"task": linear_task(rng), "model": model, "flow": flow, "save": save}


def exact_descent(rng: random.Random) -> Data:
    data = exact_flow(rng) | descent(rng, "gradient_descent", "adam")
    data["flow"]["steps"] = data["save"]["count"] = rng.choice((2, 200, 2000))
    return data


def full_form(rng: random.Random) -> Data:
    model = {"kind": "merged", "form": "full", "heads": rng.choice((2, 8))}
    return {"task": linear_task(rng), "model": model, **descent(rng, "gradient_descent", "adam")}


def large_context(rng: random.Random) -> Data:
    model = {"kind": "merged", "heads": 2, "activation": "softmax", "self_attention": False}
    flow = {"end": 1e-3, "solver": "explicit"}
    save = {"kind": "linear", "count": 2}
    risk = {"kind": "large_context"}
    return {"task": linear_task(rng), "model": model, "risk": risk, "flow": flow, "save": save}


KINDS: dict[str, Callable[[random.Random], Data]] = {
    kind.__name__: kind
    for kind in (
        *(sampled_softmax, sampled_in_single, sampled_functions, sampled_labels, sampled_mixture),
        *(sampled_stack, sampled_linear, on_a_data_set, flow_on_a_data_set, exact_flow),
        *(implicit_flow, exact_descent, full_form, large_context),
    )
}
# Settings that are grown, where a config has them.
KNOBS = (
    *("task.context", "risk.batch", "risk.sequences", "model.heads", "task.dim", "save.count"),
    *("task.hidden", "model.width"),
)


class Drawn(NamedTuple):
    """A config, what it is, and what is expected of it, in bytes."""

    kind: str
    knob: str
    data: Data
    estimate: float


def grown(data: Data, knob: str, size: int) -> Data:
    """The config with one of its sizes set."""
    section, key = knob.split(".")
    inside = data[section]
    if key == "dim":
        names = {"inputs": size} if "inputs" in inside else {"eigenvalues": [0.5] * size}
        return data | {"task": inside | names}
    changed = data | {section: inside | {key: size}}
    if knob == "save.count" and "steps" in data["flow"]:  # a descent keeps no more than it steps
        changed["flow"] = data["flow"] | {"steps": size}
    return changed


def has(data: Data, knob: str) -> bool:
    section, key = knob.split(".")
    if key == "dim":
        return data["task"]["kind"] != "multi_task"
    if key == "count":  # of others, a few points take as long as all of these
        steps = data["flow"].get("steps", 0)
        return steps > 2 and data.get("risk") is None and data["model"].get("form") != "full"
    if knob in ("model.heads", "model.width", "task.dim") and "sequences" in data.get("risk", {}):
        # Large matrices take minutes to factorise.
        if data["flow"].get("solver") == "implicit":
            return False
    known = {
        "hidden": data["task"]["kind"] == "two_layer_relu",
        "width": "factored" in data["model"]["kind"],
    }
    return known.get(key, key in data.get(section, {}))


def estimate(data: Data) -> float:
    return sum(memory_needed(parse_config(data, stored=True)).values())


def draw(rng: random.Random, low: float, high: float) -> Drawn:
    """A config whose estimate lies between two sizes in bytes."""
    while True:
        kind = rng.choice(sorted(KINDS))
        data = KINDS[kind](rng)
        target = math.exp(rng.uniform(math.log(low), math.log(high)))
        knob = rng.choice([knob for knob in KNOBS if has(data, knob)])
        try:
            found = _reaching(data, knob, target)
            if found is not None and low <= estimate(found) <= high:
                return Drawn(kind, knob, found, estimate(found))
        except InputError:  # sizes that do not go together
            continue


def _reaching(data: Data, knob: str, target: float) -> Data | None:
    """The config with a size as large as its estimate allows; None if none is large enough."""
    # Inputs beyond some hundreds take minutes to compile, thousands of heads as long to compute.
    limit, most = {"task.dim": 2**9, "model.heads": 2**12}.get(knob, 2**24), 2
    if knob == "model.heads" and "risk" not in data:
        limit = 2**15
    while estimate(grown(data, knob, most)) < target:
        most *= 2
        if most > limit:
            return None
    least = most // 2
    while most - least > max(1, least // 100):
        middle = (least + most) // 2
        least, most = (
            (middle, most) if estimate(grown(data, knob, middle)) < target else (least, middle)
        )
    return grown(data, knob, most)


class Measured(NamedTuple):
    """The peak in bytes, the exit code (negative: a signal), the last words, and seconds."""

    peak: float
    code: int
    words: str
    seconds: float


def measure(drawn: Drawn, addresses: float, timeout: float) -> Measured:
    """Runs a config in a process of its own, with a limit on its addresses."""
    with tempfile.TemporaryDirectory() as name:
        folder, begin = Path(name), time.monotonic()
        (folder / "config.toml").write_text(to_toml(drawn.data))
        command = [*COMMAND, str(folder / "config.toml"), "--out", str(folder / "out")]
        # What was compiled before takes less: the first run of its shape is measured.
        quiet = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}
        bounds = int(addresses), int(addresses)
        with open(folder / "words", "w+") as words:
            process = subprocess.Popen(
                command, stdout=words, stderr=words, cwd=folder, env=os.environ | quiet,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, bounds),
            )  # fmt: skip
            code, used = _waited(process, begin + timeout)
            words.seek(0)
            told = words.read()
        return Measured(1024.0 * used, code, told.strip()[-300:], time.monotonic() - begin)


def _waited(process: subprocess.Popen, deadline: float) -> tuple[int, int]:
    """The exit code of a process and its peak in kilobytes; it is killed when it takes too long."""
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_maxrss
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=float, default=0.9, dest="low", metavar="GIB")
    parser.add_argument("--to", type=float, default=3.0, dest="high", metavar="GIB")
    parser.add_argument("--limit", type=float, metavar="GIB", help="run under `ulimit -v`")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only these")
    parser.add_argument("--json", metavar="FILE", help="write every measurement there")
    options = parser.parse_args()
    low, high = options.low * GIB, options.high * GIB
    if options.limit:
        usable = SHARE * (options.limit * GIB - UNUSED_ADDRESSES)
        low, high = 0.8 * usable, 1.1 * usable
    if options.kind:
        for name in set(KINDS) - {options.kind}:
            del KINDS[name]
    rng = random.Random(options.seed)
    ratios, wrong, refused, rows = [], 0, 0, []
    for number in range(options.configs):
        drawn = draw(rng, low, high)
        addresses = options.limit * GIB if options.limit else 2.5 * drawn.estimate + SPARE
        found = measure(drawn, addresses, options.timeout)
        ratio = drawn.estimate / found.peak
        # A refusal is an answer, and no measurement.
        answer = found.code == 2 and found.words.startswith("iclflow: ")
        refused += bool(answer)
        wrong += not answer and found.code != 0
        if found.code == 0:
            ratios.append(ratio)
        rows.append(drawn._asdict() | found._asdict())
        print(
            f"{number:3d} {drawn.kind:18s} {drawn.knob:14s} expected {drawn.estimate / GIB:5.2f} "
            f"measured {found.peak / GIB:5.2f} GiB, ratio {ratio:5.2f}, exit {found.code}, "
            f"{found.seconds:3.0f} s {found.words if found.code else ''}",
            flush=True,
        )
        if options.json:
            Path(options.json).write_text(json.dumps(rows, indent=1))
    outside = sum(not 0.5 <= ratio <= 2 for ratio in ratios)
    if ratios:
        print(
            f"{len(ratios)} runs: expected over measured has median {statistics.median(ratios):.2f}"
            f", lowest {min(ratios):.2f}, highest {max(ratios):.2f}; beyond a factor 2: {outside}"
        )
    print(f"refused in a sentence: {refused}; ended badly: {wrong}")
    return int(bool(outside or wrong))


if __name__ == "__main__":
    sys.exit(main())

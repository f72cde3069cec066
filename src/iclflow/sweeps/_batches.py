"""Batches of runs of one shape: each is one program, and fits into memory."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..config import BASE, GIB, Config, InputError, memory_here, memory_needed
from ._file import Sweep

# Bytes that the runs of a batch may take, by the estimate below. It is the same on every machine
# and in every version, because batches decide the bits of a result, and a sweep that resumes must
# find its batches unchanged.
BUDGET = 2**29
# That estimate leaves much out for some runs: their batches are limited by all they need.
CEILING = 2**32
# Copies of the weights, table entries per pair of softmax heads, points that a run saves by
# default, and the memory of sequences in a fused pass as a share of that of stored ones (measured).
_COPIES, _QUADRATURE, _POINTS, _FUSED_SHARE = 60, 300_000, 3_000, 1 / 8
# Settings that decide the initial weights but not their shape.
START_ONLY = (
    *("scale", "scheme", "omega", "mu", "spread", "key_imbalance", "value_imbalance"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Batch:
    """Runs that are computed together.

    **Fields:**

    - `number`: of the batch, from 0.
    - `runs`: the numbers of its runs in the sweep.
    - `size`: runs in the program. The last batch of a shape is padded to it, so that each shape is
      compiled once.
    - `one_risk`: whether all runs of this shape, in all batches, share their risk.
    """

    number: int
    runs: tuple[int, ...]
    size: int
    one_risk: bool


def batches_of(sweep: Sweep) -> tuple[Batch, ...]:
    """The batches of a sweep: the same for the same sweep, on every machine.

    Runs of one shape form batches, those with the largest initial weights first: they take longest,
    and a batch takes as long as its slowest run.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 3, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate"}}, "axes": {"model.heads": [1, 2]}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> [sorted(batch.runs) for batch in icl.sweeps.batches_of(sweep)]
    [[0, 1, 2], [3, 4, 5]]
    >>> icl.sweeps.batches_at_once(sweep, icl.sweeps.batches_of(sweep)) >= 1
    True
    ```
    """
    groups: dict[str, list[int]] = {}
    for i, point in enumerate(sweep.points):
        groups.setdefault(shape_of(point.config), []).append(i)
    found: list[Batch] = []
    for points in groups.values():
        configs = [sweep.points[i].config for i in points]
        one_risk = len({risk_of(config) for config in configs}) == 1 and not seeded(configs[0])
        runs = list(_in_order(sweep, points))
        size = _size(configs[0], len(runs), sweep.batch)  # runs of one shape need the same
        for first in range(0, len(runs), size):
            part = tuple(runs[first : first + size])
            found.append(Batch(len(found), part, size, one_risk))
    return tuple(found)


def _size(config: Config, runs: int, most: int) -> int:
    """How many of these runs form one program; batches are as equal as possible."""
    most = max(1, min(most, int(BUDGET // _estimate_bytes(config))))
    even = lambda most: -(-runs // -(-runs // most))
    while most > 1 and batch_memory(config, even(most)) > CEILING:
        most //= 2
    return even(most)


def batch_memory(config: Config, size: int) -> float:
    """About how many bytes a process needs for a batch of `size` runs."""
    return sum(memory_needed(config, size).values())


def check_batch(sweep: Sweep, batch: Batch) -> None:
    """Refuses a batch that would need more memory than this process may take."""
    needed = batch_memory(sweep.config(batch.runs[0]), batch.size)
    here = memory_here(now=False)
    if needed > here.usable:
        raise InputError(
            f"`batch` = {sweep.batch}: {batch.size} runs as one program would need about "
            f"{needed / GIB:.3g} GiB of memory, and may take {here.sentence}; a smaller `batch` "
            "needs less."
        )


def batches_at_once(sweep: Sweep, batches: Sequence[Batch]) -> int:
    """How many batches fit into the memory of this process at a time; at least one."""
    first = {(batch.size, batch.runs[0]) for batch in batches}
    shapes = {shape_of(sweep.config(run)): (sweep.config(run), size) for size, run in first}
    each = max(batch_memory(*shape) - BASE for shape in shapes.values())
    return max(1, int(min((memory_here().usable - BASE) / max(each, 1.0), len(batches))))


def _estimate_bytes(config: Config) -> float:
    """The estimate of the bytes that one run of a batch takes."""
    task, model, risk = config.task, config.model, config.risk
    weights, tokens = model.weight_count(task.dim, task.labels), task.longest_context + 1
    points = len(getattr(config.save, "times", ())) or getattr(config.save, "count", _POINTS)
    attention = 0 if model.bilinear else 6 * model.heads * tokens
    if model.layers:
        attention *= model.layers * tokens
    data = 4 * tokens * (task.dim + 1 + task.labels) + task.function_size
    sequences = 0.0
    if risk.kind in ("dataset", "minibatch"):
        whole = risk.kind == "dataset" and not (model.bilinear or model.cubic)
        sequences = getattr(risk, "sequences") * (data + (attention if whole else 0))
    elif config.sampled:
        share = _FUSED_SHARE if _mostly_fused(config) else 1
        sequences = share * getattr(risk, "batch", 256) * (data + attention)
    tables = _QUADRATURE * model.heads**2 if config.exact and model.structured else 0
    return 8 * (20 * task.dim**2 + (_COPIES + 2 * points) * weights + tables + sequences)


def _mostly_fused(config: Config) -> bool:
    """Whether most machines compute these runs in a fused pass."""
    risk, model = config.risk, config.model
    alone = model.softmax and not getattr(model, "self_attention", False)
    fresh = risk.kind == "sampled" and getattr(risk, "precision") == "float32"
    return fresh and alone and getattr(risk, "integrate") not in ("posterior", "context")


def _in_order(sweep: Sweep, points: Sequence[int]) -> Iterator[int]:
    seeds = len(sweep.seeds)
    for i in sorted(points, key=lambda i: (-_slowness(sweep.points[i].config), i)):
        yield from range(i * seeds, (i + 1) * seeds)


def _slowness(config: Config) -> float:
    """How slow a run is expected to be: large initial weights make a flow stiff."""
    sizes = (getattr(config.model, name, None) for name in ("scale", "omega"))
    return next((float(size) for size in sizes if size is not None), 0.0)


def shape_of(config: Config) -> str:
    """What decides the compiled program and all that a batch has in common: all settings except
    numbers of the task and those of the initial weights."""
    given = config.given()
    model = {k: v for k, v in given["model"].items() if k not in START_ONLY}
    task = {name: _form(value) for name, value in given["task"].items()}
    rest = [given[name] for name in ("risk", "flow", "save")]
    return json.dumps([task, model, *rest, config.exact, config.sampled], sort_keys=True)


def risk_of(config: Config) -> str:
    """What decides the risk of a run, without its seed."""
    given = config.given()
    return json.dumps([given["task"], given["risk"], shape_of(config)], sort_keys=True)


def seeded(config: Config) -> bool:
    """Whether the training risk depends on the seed."""
    return config.risk.kind in ("dataset", "minibatch")


def _form(value: Any) -> Any:
    """A value with its floats replaced by placeholders; integers stay, because they are sizes."""
    if isinstance(value, float):
        return "0" if value == 0 else "x"
    return [_form(entry) for entry in value] if isinstance(value, list) else value

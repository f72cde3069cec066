"""Runs of one shape in batches: each is one program, and fits into memory."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..config import BASE, GIB, Config, InputError, memory_here, memory_needed
from ._file import Sweep

# Bytes that the runs of a batch may take, by the reckoning below: the same on every machine, and
# in every version, since other batches are other bits, and a sweep that is taken up must find its
# batches as it left them.
BUDGET = 2**29
# Where that reckoning leaves much out, a batch is cut by what it is expected to need in all.
CEILING = 2**32
# Copies of the weights, tables of a pair of softmax heads, points that a run keeps of itself, and
# what sequences of a fused pass take of others.
_COPIES, _QUADRATURE, _POINTS, _FUSED_SHARE = 60, 300_000, 3_000, 1 / 8
# What decides the first weights and nothing about their shape.
START_ONLY = (
    *("scale", "scheme", "omega", "mu", "spread", "key_imbalance", "value_imbalance"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Batch:
    """Runs that are computed together.

    **Fields:**

    - `number`: of the batch, from 0.
    - `runs`: their numbers in the sweep.
    - `size`: of the program: batches of one shape are filled up to one size.
    - `one_risk`: whether all runs of this shape, in all batches, share their risk.
    """

    number: int
    runs: tuple[int, ...]
    size: int
    one_risk: bool


def batches_of(sweep: Sweep) -> tuple[Batch, ...]:
    """The batches of a sweep: the same for the same sweep, on every machine.

    Runs of one shape come together, those with the largest first weights first: they take longest,
    and a batch is over when its last run is.
    """
    groups: dict[str, list[int]] = {}
    for i, point in enumerate(sweep.points):
        groups.setdefault(shape_of(point.config), []).append(i)
    found: list[Batch] = []
    for points in groups.values():
        configs = [sweep.points[i].config for i in points]
        one_risk = len({risk_of(config) for config in configs}) == 1 and not seeded(configs[0])
        runs = list(_in_order(sweep, points))
        size = _size(configs[0], len(runs), sweep.batch)  # those of one shape need the same
        for first in range(0, len(runs), size):
            part = tuple(runs[first : first + size])
            found.append(Batch(len(found), part, size, one_risk))
    return tuple(found)


def _size(config: Config, runs: int, most: int) -> int:
    """How many of so many runs are one program, all batches as equal as can be."""
    most = max(1, min(most, int(BUDGET // _estimate_bytes(config))))
    even = lambda most: -(-runs // -(-runs // most))
    while most > 1 and batch_memory(config, even(most)) > CEILING:
        most //= 2
    return even(most)


def batch_memory(config: Config, size: int) -> float:
    """About how many bytes a process needs for a batch of so many runs."""
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
    """How many batches this process has memory for at a time, one at least."""
    first = {(batch.size, batch.runs[0]) for batch in batches}
    shapes = {shape_of(sweep.config(run)): (sweep.config(run), size) for size, run in first}
    each = max(batch_memory(*shape) - BASE for shape in shapes.values())
    return max(1, int(min((memory_here().usable - BASE) / max(each, 1.0), len(batches))))


def _estimate_bytes(config: Config) -> float:
    """Bytes that a run of a batch counts for."""
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
    """Whether there is a fused pass for these runs on most machines."""
    risk, model = config.risk, config.model
    alone = model.softmax and not getattr(model, "self_attention", False)
    fresh = risk.kind == "sampled" and getattr(risk, "precision") == "float32"
    return fresh and alone and getattr(risk, "integrate") not in ("posterior", "context")


def _in_order(sweep: Sweep, points: Sequence[int]) -> Iterator[int]:
    seeds = len(sweep.seeds)
    for i in sorted(points, key=lambda i: (-_slowness(sweep.points[i].config), i)):
        yield from range(i * seeds, (i + 1) * seeds)


def _slowness(config: Config) -> float:
    """What makes a run slow, as far as its settings tell: large weights make a flow stiff."""
    sizes = (getattr(config.model, name, None) for name in ("scale", "omega"))
    return next((float(size) for size in sizes if size is not None), 0.0)


def shape_of(config: Config) -> str:
    """What decides the compiled program and all that a batch has in common: everything but
    numbers of the task and what the first weights are drawn from."""
    given = config.given()
    model = {k: v for k, v in given["model"].items() if k not in START_ONLY}
    task = {name: _form(value) for name, value in given["task"].items()}
    rest = [given[name] for name in ("risk", "flow", "save")]
    return json.dumps([task, model, *rest, config.exact, config.sampled], sort_keys=True)


def risk_of(config: Config) -> str:
    """What decides the risk of a run, its seed left out."""
    given = config.given()
    return json.dumps([given["task"], given["risk"], shape_of(config)], sort_keys=True)


def seeded(config: Config) -> bool:
    """Whether the risk that is minimised is another for every seed."""
    return config.risk.kind in ("dataset", "minibatch")


def _form(value: Any) -> Any:
    """A value without its numbers: whole ones are kept, because sizes are such."""
    if isinstance(value, float):
        return "0" if value == 0 else "x"
    return [_form(entry) for entry in value] if isinstance(value, list) else value

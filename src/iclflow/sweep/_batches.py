"""Runs of one shape in batches: each is one program, and fits into memory."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..config import Config, memory_needed
from ._file import Sweep

# Bytes that a batch may take: the same on every machine, since other batches are other bits.
BUDGET = 2**29
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
        needed = max(sum(memory_needed(config).values()) for config in configs)
        most = max(1, min(sweep.batch, int(BUDGET // needed)))
        size = -(-len(runs) // -(-len(runs) // most))
        for first in range(0, len(runs), size):
            part = tuple(runs[first : first + size])
            found.append(Batch(len(found), part, size, one_risk))
    return tuple(found)


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

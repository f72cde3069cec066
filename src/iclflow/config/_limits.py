"""What a config would cost, so that one that cannot run is refused before it starts."""

import os
from typing import TYPE_CHECKING

from ._training import DatasetRisk, MinibatchRisk, SampledRisk, SaveDrops, SaveExplicit

if TYPE_CHECKING:
    from ._config import Config

GIB = 2**30
_FLOAT = 8
# Copies of the weights that a solver's stages, a chunk of the record and the optimiser hold.
_COPIES = 60
# Tables of the integrals that a pair of softmax heads needs.
_QUADRATURE = 300_000
# A run that keeps what moves has rarely more points than this.
_DROP_POINTS = 3_000
# Of what sequences take: those of a fused pass are not stored where there is one, and are in single
# precision where there is none.
_FUSED_SHARE = 1 / 8


def memory_needed(config: "Config") -> dict[str, float]:
    """About how many bytes a run needs, by the setting that makes it so many."""
    task, model, dim = config.task, config.model, config.task.dim
    weights = model.weight_count(dim, task.labels)
    tokens = task.longest_context + 1
    size = _largest(config)
    inputs = "task.inputs" if getattr(task, "inputs", None) else "task"
    needed: dict[str, float] = {inputs: 20 * dim**2}
    needed[size] = needed.get(size, 0) + _COPIES * weights
    if config.exact and model.structured:
        needed[size] += _QUADRATURE * model.heads**2
    if isinstance(config.save, SaveDrops):
        needed[size] += 2 * _DROP_POINTS * weights
    elif isinstance(config.save, SaveExplicit):
        needed["save"] = 2 * len(config.save.times) * weights
    else:
        needed["save.count"] = 2 * config.save.count * weights
    # Scores and values of every token, of every head, forwards and back.
    attention = 0 if model.bilinear else 6 * model.heads * tokens
    if model.layers:
        attention *= model.layers * tokens
    data = 4 * tokens * (dim + 1 + task.labels) + task.function_size
    sequence = data + attention
    if isinstance(config.risk, DatasetRisk | MinibatchRisk):
        whole = isinstance(config.risk, DatasetRisk) and not (model.bilinear or model.cubic)
        needed["risk.sequences"] = config.risk.sequences * (sequence if whole else data)
    elif config.sampled:
        batch = config.risk.batch if isinstance(config.risk, SampledRisk) else 256
        sizes = {"risk.batch": batch, "task.context": tokens, **_task_sizes(config)}
        name = max(sizes, key=lambda key: sizes[key])
        share = _FUSED_SHARE if _mostly_fused(config) else 1
        needed[name] = needed.get(name, 0) + share * batch * sequence
    return {name: _FLOAT * count for name, count in needed.items()}


def _mostly_fused(config: "Config") -> bool:
    """Whether there is a fused pass for these runs on most machines."""
    risk, model = config.risk, config.model
    if not isinstance(risk, SampledRisk) or risk.precision != "float32":
        return False
    alone = model.softmax and not getattr(model, "self_attention", False)
    return alone and risk.integrate not in ("posterior", "context")


def _largest(config: "Config") -> str:
    """The setting that makes the weights so many."""
    model = config.model
    sizes = {f"model.{name}": getattr(model, name, None) for name in ("heads", "rank", "width")}
    known = {name: size for name, size in sizes.items() if size is not None}
    known |= _task_sizes(config)
    return max(known, key=lambda name: known[name])


def _task_sizes(config: "Config") -> dict[str, int]:
    sizes = {f"task.{name}": getattr(config.task, name, None) for name in ("inputs", "hidden")}
    return {name: size for name, size in sizes.items() if size is not None}


def memory_here() -> float:
    """How many bytes this machine has; infinite where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")

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
# A run that keeps what moves has rarely more points than this.
_DROP_POINTS = 3_000


def memory_needed(config: "Config") -> dict[str, float]:
    """About how many bytes a run needs, by the setting that makes it so many."""
    task, model, dim = config.task, config.model, config.task.dim
    weights = model.weight_count(dim)
    tokens = task.longest_context + 1
    size = "model.rank" if model.widest_rank > model.heads else "model.heads"
    needed: dict[str, float] = {"task": 20 * dim**2, size: _COPIES * weights}
    if isinstance(config.save, SaveDrops):
        needed[size] += 2 * _DROP_POINTS * weights
    elif isinstance(config.save, SaveExplicit):
        needed["save"] = 2 * len(config.save.times) * weights
    else:
        needed["save.count"] = 2 * config.save.count * weights
    # Scores and values of every token, of every head, forwards and back.
    attention = 0 if model.bilinear else 6 * model.heads * tokens
    sequence = 4 * tokens * (dim + 2) + attention
    if isinstance(config.risk, DatasetRisk | MinibatchRisk):
        whole = isinstance(config.risk, DatasetRisk) and model.softmax
        stored = sequence if whole else 4 * tokens * (dim + 2)
        needed["risk.sequences"] = config.risk.sequences * stored
    elif config.sampled:
        batch = config.risk.batch if isinstance(config.risk, SampledRisk) else 256
        needed["risk.batch" if batch > tokens else "task.context"] = batch * sequence
    return {name: _FLOAT * count for name, count in needed.items()}


def memory_here() -> float:
    """How many bytes this machine has; infinite where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")

"""What a config must have for a claim to be about its run, in words: needs of several papers."""

import functools

from ..config import Config
from ..experiment import build_task
from ..tasks import LinearRegression
from ._given import Need

# Less accurate solvers make errors that no tolerance of a claim allows for.
_LOOSEST = 1e-8


def population(config: Config) -> str | None:
    """Training on the exact risk."""
    if config.exact:
        return None
    kind = "sampled" if config.sampled else config.risk.kind
    return f"is about the population risk, without randomness: the risk is {kind}"


def accurate_flow(config: Config) -> str | None:
    """An accurate gradient flow."""
    flow = config.flow
    if flow.kind != "gradient_flow":
        return f'is about gradient flow: `flow.kind` = "{flow.kind}"'
    if flow.rtol > _LOOSEST:
        return f"needs an accurate solver: `flow.rtol` = {flow.rtol:g} is above {_LOOSEST:g}"
    return None


class _ByTask:
    """A config as a key of a cache: equal if the tasks are."""

    def __init__(self, config: Config):
        self.config = config

    def __hash__(self):
        return hash(self.config.task)

    def __eq__(self, other):
        return self.config.task == other.config.task


# Nearly every need builds the task, and the runs of a sweep often share theirs.
@functools.lru_cache(maxsize=128)
def _built(key: _ByTask) -> LinearRegression:
    task = build_task(key.config)
    assert isinstance(task, LinearRegression)
    return task


def regression(config: Config) -> LinearRegression:
    """The task of a config, which must be linear regression."""
    return _built(_ByTask(config))


def scheme(*names: str) -> Need:
    """Initial weights of one of these schemes."""

    def need(config: Config) -> str | None:
        given = getattr(config.model, "scheme")
        if given in names:
            return None
        allowed = " or ".join(f'"{name}"' for name in names)
        return f'is about initial weights by the scheme {allowed}: `model.scheme` = "{given}"'

    return need

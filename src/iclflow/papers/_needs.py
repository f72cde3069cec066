"""What a config must have for a claim to speak of its run, in words: needs of several papers."""

import functools

from ..config import Config
from ..experiment import build_task
from ..tasks import LinearRegression
from ._given import Need

# Solvers below this accuracy leave errors of their own that no claim accounts for.
_LOOSEST = 1e-8


def population(config: Config) -> str | None:
    """Training on the exact risk."""
    if config.exact:
        return None
    kind = "sampled" if config.sampled else config.risk.kind
    return f"speaks of the population risk, without randomness: the risk is {kind}"


def accurate_flow(config: Config) -> str | None:
    """An accurate gradient flow."""
    flow = config.flow
    if flow.kind != "gradient_flow":
        return f'speaks of gradient flow: `flow.kind` = "{flow.kind}"'
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


# Every need asks for the task, and the runs of a sweep often share theirs.
@functools.lru_cache(maxsize=128)
def _built(key: _ByTask) -> LinearRegression:
    task = build_task(key.config)
    assert isinstance(task, LinearRegression)
    return task


def regression(config: Config) -> LinearRegression:
    """The task of a config, which must be linear regression."""
    return _built(_ByTask(config))


def scheme(*names: str) -> Need:
    """First weights of one of these schemes."""

    def need(config: Config) -> str | None:
        given = getattr(config.model, "scheme")
        if given in names:
            return None
        allowed = " or ".join(f'"{name}"' for name in names)
        return f'speaks of first weights by the scheme {allowed}: `model.scheme` = "{given}"'

    return need

"""What a run in the explorer may cost. Larger ones are for `iclflow run`."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ..config import Config, InputError, largest_setting, memory_needed

# Seconds that a run may compute; what it has by then is kept. Readers do not wait longer.
LONGEST_RUN = 120.0
# Runs that one page may have waiting or under way, and that it may keep.
MOST_WAITING = 8
MOST_KEPT = 12
# Of all pages together.
MOST_WAITING_IN_ALL = 200
MOST_SESSIONS = 256
# Bytes of a request, and of what is kept of all runs.
LARGEST_BODY = 2**18
MOST_BYTES = 2**29
# Bytes of one run. Four workers fit into a laptop.
_MEMORY = 2 * 2**30


@dataclasses.dataclass(frozen=True)
class Limit:
    """The most that a setting, or something that follows from several, may be."""

    name: str
    field: str
    most: int
    value: Callable[[Config], Any]

    @property
    def words(self) -> str:
        return f"at most {group_digits(self.most)} {self.name}"


def _setting(path: str) -> Callable[[Config], Any]:
    section, key = path.split(".")
    return lambda config: getattr(getattr(config, section), key, None) or 0


LIMITS = (
    Limit("input coordinates", "task.eigenvalues", 32, lambda config: config.task.dim),
    Limit("labels", "task.coordinates", 8, lambda config: config.task.labels),
    Limit("pairs in a context", "task.context", 2000, lambda config: config.task.longest_context),
    Limit("lengths of contexts", "task.context", 64, lambda config: len(config.task.context)),
    Limit("hidden units", "task.hidden", 1000, _setting("task.hidden")),
    Limit("heads", "model.heads", 16, _setting("model.heads")),
    Limit("columns per head", "model.width", 64, _setting("model.width")),
    Limit("layers", "model.depth", 4, lambda config: config.model.layers),
    Limit("sequences in a step", "risk.batch", 4096, _setting("risk.batch")),
    Limit("sequences in a data set", "risk.sequences", 20_000, _setting("risk.sequences")),
    Limit("steps", "flow.steps", 200_000, _setting("flow.steps")),
    Limit("saved moments", "save.count", 2000, _setting("save.count")),
    Limit(
        "saved moments", "save.times", 2000, lambda config: len(getattr(config.save, "times", ()))
    ),
    Limit(
        "weights",
        "model.heads",
        20_000,
        lambda config: config.model.weight_count(config.task.dim, config.task.labels),
    ),
)


def check_limits(config: Config) -> None:
    """Refuses what is too large for an interactive page, with a `RequestError` that names the
    setting."""
    for limit in LIMITS:
        value = limit.value(config)
        if value > limit.most:
            raise RequestError(
                f"`{limit.field}`: the explorer runs {limit.words}, and this has "
                f"{group_digits(value)}; `iclflow run` has no such limit.",
                limit.field,
            )
    needed = memory_needed(config)
    if sum(needed.values()) > _MEMORY:
        field = largest_setting(needed)
        raise RequestError(
            f"`{field}`: the run would need about {sum(needed.values()) / 2**30:.3g} GiB, and the "
            f"explorer allows {_MEMORY / 2**30:g}; `iclflow run` has no such limit.",
            field,
        )


def describe_limits() -> list[dict[str, Any]]:
    """All limits as the page states them."""
    unique = {limit.words: limit for limit in LIMITS}.values()
    described = [
        {"name": limit.name, "words": limit.words, "field": limit.field, "value": limit.most}
        for limit in unique
    ]
    others = {
        "seconds": (f"at most {LONGEST_RUN:g} seconds of computing per run", LONGEST_RUN),
        "waiting": (f"at most {MOST_WAITING} runs per page at once, in a queue", MOST_WAITING),
        "kept": (f"the last {MOST_KEPT} runs of a page are kept", MOST_KEPT),
        "memory": (f"at most {_MEMORY / 2**30:g} GiB of memory per run", _MEMORY),
    }
    return described + [
        {"name": name, "words": words, "field": None, "value": value}
        for name, (words, value) in others.items()
    ]


class RequestError(InputError):
    """A request that cannot be served: one sentence, the setting that it is about, and the HTTP
    status of the answer."""

    def __init__(self, message: str, field: str | None = None, status: int = 422):
        super().__init__(message)
        self.field = field
        self.status = status


def group_digits(number: int) -> str:
    """A whole number with thousands set apart: 20 000."""
    # A comma means a decimal point to many readers.
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")

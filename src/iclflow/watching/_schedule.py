"""When to look: every n steps, at log-spaced steps, or as often as a share of the time allows."""

import abc
import dataclasses
import functools

import numpy as np

from ..errors import InputError
from ..tasks import is_real


class Schedule(abc.ABC):
    """Decides whether to look at a step."""

    @abc.abstractmethod
    def is_due(self, step: int, spent: float, elapsed: float, last: float) -> bool:
        """Whether to look now.

        **Arguments:**

        - `spent`: seconds that looks have taken.
        - `elapsed`: seconds since the start, looks included.
        - `last`: seconds that one of the last looks took at most; 0 before the first.
        """

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """The schedule as the end of a sentence."""


@dataclasses.dataclass(frozen=True)
class Every(Schedule):
    """Every `steps` steps."""

    steps: int | np.integer

    def __post_init__(self):
        if not _is_whole(self.steps) or self.steps < 1:
            raise InputError("every", self.steps, "must be a whole number of steps from 1 up")

    def is_due(self, step: int, spent: float, elapsed: float, last: float) -> bool:
        return bool(step % self.steps == 0)

    @property
    def words(self) -> str:
        return f"every {self.steps} steps"


@dataclasses.dataclass(frozen=True)
class LogSpaced(Schedule):
    """`looks` looks from the first step to the last, evenly spaced on a logarithmic axis. A step
    that two of them fall on counts once."""

    looks: int | np.integer
    last: int

    def __post_init__(self):
        if not _is_whole(self.looks) or self.looks < 2:
            raise InputError("looks", self.looks, "must be a whole number from 2 up")
        if not _is_whole(self.last) or self.last < 1:
            raise InputError("steps", self.last, "must be the number of steps of the training")

    @functools.cached_property  # asked at every step of a training
    def steps(self) -> frozenset[int]:
        """The steps, 0 among them."""
        spaced = np.geomspace(1, self.last, self.looks - 1)
        return frozenset([0, *np.rint(spaced).astype(int).tolist()])

    def is_due(self, step: int, spent: float, elapsed: float, last: float) -> bool:
        return step in self.steps

    @property
    def words(self) -> str:
        return f"at {len(self.steps)} log-spaced steps up to {self.last}"


@dataclasses.dataclass(frozen=True)
class Budget(Schedule):
    """As often as a share of the wall time allows: a look is due when it would not exceed it."""

    share: float

    def __post_init__(self):
        if not is_real(self.share) or not 0 < self.share < 1:
            raise InputError("budget", self.share, "must be a share of the time between 0 and 1")

    def is_due(self, step: int, spent: float, elapsed: float, last: float) -> bool:
        # The next look takes about as long as the longest of the last ones.
        return last == 0 or spent + last <= self.share * (elapsed + last)

    @property
    def words(self) -> str:
        return f"as often as {100 * self.share:g} % of the time allows"


def choose_schedule(
    every: int | np.integer | None,
    looks: int | np.integer | None,
    steps: int | None,
    budget: float | None,
) -> Schedule:
    """The schedule that the arguments of `watch` ask for; by default 5 % of the time."""
    given = [name for name, value in (("every", every), ("looks", looks), ("budget", budget))
             if value is not None]  # fmt: skip
    if len(given) > 1:
        raise InputError(f"`{given[0]}` and `{given[1]}`: both are given, must be at most one.")
    if every is not None:
        return Every(every)
    if looks is not None:
        if steps is None:
            raise InputError("`looks` needs `steps`, the number of steps of the training.")
        return LogSpaced(looks, steps)
    return Budget(0.05 if budget is None else budget)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

"""Ours and its peers take turns, so that a machine that is busy for a while is so for all."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ._row import Row, Timing, measure


class Contestant(NamedTuple):
    """A training run, and the steps it takes, those of all its members together."""

    name: str
    run: Callable[[], object]
    steps: int


@runtime_checkable
class Peer(Protocol):
    """A loop of another library, which is timed for as long as one likes."""

    @property
    def name(self) -> str: ...

    @property
    def first(self) -> Timing:
        """Of its first step, with all that is compiled in it."""
        ...

    def timed(self, seconds: float) -> Timing: ...


class Result(NamedTuple):
    """Seconds a step, and those of the first call, most of which is compilation."""

    name: str
    step: Timing
    first: Timing

    def rows(self, group: str, note: str = "", **fields: Any) -> list[Row]:
        """A step, and apart from it the first call."""
        return [
            self.step.row(group, self.name, "µs", note=note, **fields),
            self.first.row(group, f"{self.name}: first call, with what it compiles"),
        ]


def race(
    contestants: list[Contestant], peers: list[Peer], rounds: int, seconds: float
) -> dict[str, Result]:
    """Times a step of each, in turns.

    **Arguments:**

    - `rounds`: how often each has its turn.
    - `seconds`: for which a peer is timed in each round.
    """
    first = {name: measure(run, 1) for name, run, _ in contestants}
    first |= {peer.name: peer.first for peer in peers}
    steps = {}
    for _ in range(rounds):
        for name, run, count in contestants:
            steps.setdefault(name, []).extend(measure(run, 1).times(1 / count).seconds)
        for peer in peers:
            steps.setdefault(peer.name, []).extend(peer.timed(seconds).seconds)
    return {name: Result(name, Timing(tuple(steps[name])), first[name]) for name in steps}

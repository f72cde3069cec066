"""What is kept of runs while they go on, and how each ended; of all runs of an ensemble at once."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..trajectory import Result, Trajectory
from ._layout import Layout

_RESULTS = tuple(Result)
_RUNNING = -1


class Points(NamedTuple):
    """The next points of some runs: one row per run, in the order of time.

    **Fields:**

    - `tried`: which are steps that a solver tried.
    - `accepted`: which of them are points of the run.
    - `kept`: which were asked for.
    """

    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    tried: np.ndarray
    accepted: np.ndarray
    kept: np.ndarray


class Records:
    """Takes the points of runs as they come, keeps those that were asked for, and says which runs
    are over.

    **Arguments:**

    - `count`: of the runs.
    - `end`: the clock reading at which a run is finished, if there is one.
    """

    def __init__(self, layout: Layout, count: int, end: float | None):
        self.layout = layout
        self._end = end
        self.steps, self.rejected = np.zeros(count, int), np.zeros(count, int)
        self.last_losses = np.full(count, np.nan)
        self._codes = np.full(count, _RUNNING)
        self._targets = np.full(count, -np.inf)
        self._last_times = np.zeros(count)
        self.last_weights = np.zeros((count, layout.size))
        self._kept: list[_Block] = []

    def begin(
        self,
        members: np.ndarray,
        losses: np.ndarray,
        weights: np.ndarray,
        targets: np.ndarray | None = None,
    ) -> None:
        """Takes the first point of runs. A run counts as converged at the loss that is its target,
        if it has one."""
        losses = np.asarray(losses, float)
        self.last_losses[members], self.last_weights[members] = losses, weights
        self._kept.append(_Block(members, np.zeros(len(members)), losses, weights))
        # A run that starts at infinity is over before its first step.
        self._codes[members[~np.isfinite(losses)]] = _RESULTS.index(Result.diverged)
        if targets is not None:
            self._targets[members] = targets
            self.finish(members[losses <= targets], Result.converged)

    def add(self, members: np.ndarray, points: Points, rows: np.ndarray) -> None:
        """Takes the next points of runs; of those that are over, none.

        **Arguments:**

        - `members`: which runs.
        - `rows`: where in `points` they are.
        """
        small = points.times, points.losses, points.tried, points.accepted, points.kept
        times, losses, tried, accepted, kept = (part[rows] for part in small)
        running = (self._codes[members] == _RUNNING)[:, None]
        accepted, losses = accepted & running, np.asarray(losses, float)
        codes, first = self._ends_among(members, times, losses, accepted)
        place = np.arange(times.shape[1])
        # A loss that is not finite is no point of the run any more; any other end is.
        own = accepted & (place <= first[:, None]) & np.isfinite(losses)
        # The last point is known even where it is not kept: a run that is cancelled ends there.
        moved = np.flatnonzero(own.any(1))
        newest = times.shape[1] - 1 - own[moved, ::-1].argmax(1)
        whose, which = np.nonzero(own & kept)
        if len(whose):
            weights = points.weights[rows[whose], which]
            block = _Block(members[whose], times[whose, which], losses[whose, which], weights)
            self._kept.append(block)
        self._last_times[members[moved]] = times[moved, newest]
        self.last_losses[members[moved]] = losses[moved, newest]
        self.last_weights[members[moved]] = points.weights[rows[moved], newest]
        self.steps[members] += own.sum(1)
        self.rejected[members] += (tried & ~accepted & running & (place < first[:, None])).sum(1)
        # At last: an interrupt before leaves runs that are not over, never ones that seem to be.
        self._codes[members] = np.where(codes == _RUNNING, self._codes[members], codes)

    def _ends_among(
        self, members: np.ndarray, times: np.ndarray, losses: np.ndarray, accepted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How each run ends among these points, if it does, and with which: what comes first."""
        lost = accepted & ~np.isfinite(losses)
        converged = accepted & (losses <= self._targets[members, None])
        finished = accepted & (times >= (np.inf if self._end is None else self._end))
        over = lost | converged | finished
        first = np.where(over.any(1), over.argmax(1), times.shape[1])
        codes = np.full(len(members), _RUNNING)
        ends = (Result.finished, finished), (Result.converged, converged), (Result.diverged, lost)
        ended = np.flatnonzero(first < times.shape[1])
        for result, found in ends:  # of several at one point the last of these counts
            codes[ended[found[ended, first[ended]]]] = _RESULTS.index(result)
        return codes, first

    def finish(self, members: np.ndarray, result: Result) -> None:
        """Ends runs for a reason from outside, unless they have already ended."""
        codes = self._codes[members]
        self._codes[members] = np.where(codes == _RUNNING, _RESULTS.index(result), codes)

    @property
    def tried(self) -> np.ndarray:
        """How many steps each run has tried, as long as it goes on."""
        return self.steps + self.rejected

    @property
    def begun(self) -> bool:
        """Whether there is a point of any run."""
        return bool(self._kept)

    @property
    def running(self) -> np.ndarray:
        """Which runs are not over, or have not begun."""
        return self._codes == _RUNNING

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is kept so far, and what decides what will be."""
        # Joined once, not at every snapshot again.
        self._kept = [_join(self._kept)] if self._kept else []
        kept = self._kept[0]._asdict() if self._kept else {}
        return {f"kept.{name}": values for name, values in kept.items()} | {
            f"runs.{name}": values for name, values in self._by_run().items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `arrays` gave."""
        self._kept = [_Block(*(arrays[f"kept.{name}"] for name in _Block._fields))]
        for name, values in self._by_run().items():
            values[...] = arrays[f"runs.{name}"]

    def _by_run(self) -> dict[str, np.ndarray]:
        return {
            "codes": self._codes,
            "targets": self._targets,
            "steps": self.steps,
            "rejected": self.rejected,
            "last_times": self._last_times,
            "last_losses": self.last_losses,
            "last_weights": self.last_weights,
        }

    def so_far(self, clock: str) -> Trajectory:
        """The first run up to here, as one that was cancelled now would be."""
        self._kept = [_join(self._kept)]
        kept = self._kept[0]
        # A single run is the common case: no mask over all of its points.
        own = slice(None) if len(self._codes) == 1 else kept.members == 0
        points = [part[own] for part in kept[1:]]
        if self._last_times[0] > points[0][-1]:
            last = self._last_times[:1], self.last_losses[:1], self.last_weights[:1]
            points = [np.concatenate(pair) for pair in zip(points, last)]
        times, losses, weights = points
        result = Result.cancelled if self.running[0] else _RESULTS[self._codes[0]]
        return Trajectory(times, losses, self.layout.models(weights), clock, result)

    def series(self, clock: str, statistics: Sequence[Mapping[str, Any]]) -> "Series":
        """Everything that was kept; the last point of a run always is."""
        kept = _join(self._kept)
        order = np.argsort(kept.members, kind="stable")  # points of a run came in order of time
        kept = _Block(*(part[order] for part in kept))
        counts = np.bincount(kept.members, minlength=len(self._codes))
        newest = kept.times[np.cumsum(counts) - 1]
        late = np.flatnonzero(self._last_times > newest)
        if len(late):
            ends = self._last_times[late], self.last_losses[late], self.last_weights[late]
            places = np.cumsum(counts)[late]
            parts = zip(kept[1:], ends)
            kept = _Block(
                np.insert(kept.members, places, late),
                *(np.insert(part, places, end, axis=0) for part, end in parts),
            )
            counts[late] += 1
        results = tuple(
            Result.finished if code == _RUNNING else _RESULTS[code] for code in self._codes
        )
        offsets = np.append(0, np.cumsum(counts))
        return Series(self.layout, clock, offsets, *kept[1:], results, tuple(statistics))


@dataclasses.dataclass(frozen=True)
class Series:
    """What came out of some runs: their points one after the other, run by run.

    **Fields:**

    - `offsets`: where the points of each run begin, and at last where they end.
    """

    layout: Layout
    clock: str
    offsets: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    results: tuple[Result, ...]
    statistics: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.results)

    def ends(self, index: int) -> tuple[float, float, float] | None:
        """The last moment of a run, its first and its last loss, if it has a point."""
        first, last = self.offsets[index : index + 2].tolist()
        if first == last:
            return None
        return float(self.times[last - 1]), float(self.losses[first]), float(self.losses[last - 1])

    def run(self, index: int) -> Trajectory:
        """One of the runs."""
        index = range(len(self))[index]
        own = slice(self.offsets[index], self.offsets[index + 1])
        models = self.layout.models(self.weights[own])
        statistics = dict(self.statistics[index])
        result = self.results[index]
        return Trajectory(self.times[own], self.losses[own], models, self.clock, result, statistics)


class _Block(NamedTuple):
    """Points that are kept, and of which runs they are."""

    members: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray


def _join(blocks: list[_Block]) -> _Block:
    return _Block(*(np.concatenate(parts) for parts in zip(*blocks)))

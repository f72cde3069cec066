"""The points of runs that are kept, and how each run ended; for all runs of an ensemble at once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..trajectory import Result, Trajectory
from ._ensemble import Ensemble
from ._layout import Layout

_RESULTS = tuple(Result)
_RUNNING = -1


class Points(NamedTuple):
    """The next points of some runs: one row per run, in the order of time.

    **Fields:**

    - `tried`: which of them are steps that a solver attempted.
    - `accepted`: which of these steps were accepted, and so are points of the run.
    - `kept`: which of these points are to be saved.
    """

    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    tried: np.ndarray
    accepted: np.ndarray
    kept: np.ndarray


class Records:
    """Collects the points of runs, and decides which runs have ended.

    **Arguments:**

    - `count`: the number of runs.
    - `end`: the time, or the step, at which a run is finished; None if there is none.
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
        """Adds the first point of runs. A run has converged at a loss of `targets` or below."""
        losses = np.asarray(losses, float)
        self.last_losses[members], self.last_weights[members] = losses, weights
        self._kept.append(_Block(members, np.zeros(len(members)), losses, weights))
        # A run that starts at infinity ends before its first step.
        self._codes[members[~np.isfinite(losses)]] = _RESULTS.index(Result.diverged)
        if targets is not None:
            self._targets[members] = targets
            self.finish(members[losses <= targets], Result.converged)

    def add(self, members: np.ndarray, points: Points, rows: np.ndarray) -> None:
        """Adds the next points of runs, except of those that have ended.

        **Arguments:**

        - `members`: the numbers of the runs.
        - `rows`: the rows of `points` that hold them.
        """
        small = points.times, points.losses, points.tried, points.accepted, points.kept
        times, losses, tried, accepted, kept = (part[rows] for part in small)
        running = (self._codes[members] == _RUNNING)[:, None]
        accepted, losses = accepted & running, np.asarray(losses, float)
        codes, first = self._find_ends(members, times, losses, accepted)
        place = np.arange(times.shape[1])
        # A run that diverged ends with its last finite loss, any other with the point that ends it.
        own = accepted & (place <= first[:, None]) & np.isfinite(losses)
        # The last point is known even if it is not kept: a run that is cancelled ends there.
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
        # Last: an interrupt before this line must not leave a run that seems to have ended.
        self._codes[members] = np.where(codes == _RUNNING, self._codes[members], codes)

    def _find_ends(
        self, members: np.ndarray, times: np.ndarray, losses: np.ndarray, accepted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How each run ends among these points, if it does, and the first point that ends it."""
        lost = accepted & ~np.isfinite(losses)
        converged = accepted & (losses <= self._targets[members, None])
        finished = accepted & (times >= (np.inf if self._end is None else self._end))
        over = lost | converged | finished
        first = np.where(over.any(1), over.argmax(1), times.shape[1])
        codes = np.full(len(members), _RUNNING)
        ended = np.flatnonzero(first < times.shape[1])
        # Later entries win: a run that reaches its end and its target at one point has converged.
        ends = (Result.finished, finished), (Result.converged, converged), (Result.diverged, lost)
        for result, found in ends:
            codes[ended[found[ended, first[ended]]]] = _RESULTS.index(result)
        return codes, first

    def finish(self, members: np.ndarray, result: Result) -> None:
        """Ends runs that have not ended yet."""
        codes = self._codes[members]
        self._codes[members] = np.where(codes == _RUNNING, _RESULTS.index(result), codes)

    @property
    def tried(self) -> np.ndarray:
        """The number of steps that each run has attempted."""
        return self.steps + self.rejected

    @property
    def begun(self) -> bool:
        """Whether any run has a point."""
        return bool(self._kept)

    @property
    def running(self) -> np.ndarray:
        """Which runs have not ended; those that have not begun are among them."""
        return self._codes == _RUNNING

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs."""
        self._join_kept()
        kept = self._kept[0]._asdict() if self._kept else {}
        return {f"kept.{name}": values for name, values in kept.items()} | {
            f"runs.{name}": values for name, values in self._by_run().items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Goes back to the state in which `arrays` was called."""
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

    def _join_kept(self) -> None:
        """Joins the points kept so far, so that each is copied once, not at every snapshot."""
        if self._kept:
            self._kept = [_Block(*(np.concatenate(parts) for parts in zip(*self._kept)))]

    def so_far(self, clock: str) -> Trajectory:
        """The first run up to here, as if it were cancelled now."""
        return self.ensemble(clock, [{}] * len(self._codes))[0]

    def ensemble(self, clock: str, statistics: Sequence[Mapping[str, Any]]) -> Ensemble:
        """The points that were kept, and the last point of every run. A run that has not ended is
        cancelled."""
        self._join_kept()
        kept = self._kept[0]
        if len(self._codes) > 1:  # a callback may ask for a large single run again and again
            order = np.argsort(kept.members, kind="stable")  # points of a run are in order of time
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
            Result.cancelled if code == _RUNNING else _RESULTS[code] for code in self._codes
        )
        offsets = np.append(0, np.cumsum(counts))
        return Ensemble(self.layout, clock, offsets, *kept[1:], results, tuple(statistics))


class _Block(NamedTuple):
    """Points that are kept, with the number of the run of each."""

    members: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray

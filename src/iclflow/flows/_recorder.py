"""What is kept of one run while it goes on, and how it ended."""

import math
from typing import Any, NamedTuple

import numpy as np

from ..trajectory import Result, Trajectory
from ._layout import Layout
from ._save import Drops, SavePoints, Thinner, save_times


class Snapshot(NamedTuple):
    """A run between two chunks: numbers, and what else must be known, as plain data."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


class Recorder:
    """Takes the points of one run as they come, keeps those that were asked for, and says when
    the run is over.

    **Arguments:**

    - `end`: the clock reading at which the run is finished, if there is one.
    - `target`: the loss at which the run counts as converged, if there is one.
    """

    def __init__(
        self,
        layout: Layout,
        save: SavePoints,
        start_loss: float,
        start_weights: np.ndarray,
        end: float | None,
        target: float | None,
    ):
        self._layout = layout
        self._fixed = save_times(save, end)
        self._thinner = Thinner(save, 0.0, start_loss) if isinstance(save, Drops) else None
        self._end = end
        self._target = target
        self._times = [np.zeros(1)]
        self._losses = [np.asarray([start_loss])]
        self._weights = [start_weights[None]]
        self._last: tuple[float, float, np.ndarray] = (0.0, start_loss, start_weights)
        self.result: Result | None = None
        self.steps = self.rejected = 0
        if not math.isfinite(start_loss):
            self.result = Result.diverged
        elif target is not None and start_loss <= target:
            self.result = Result.converged

    @property
    def last_loss(self) -> float:
        return self._last[1]

    def add_tries(
        self, accepted: np.ndarray, times: np.ndarray, losses: np.ndarray, weights: np.ndarray
    ) -> None:
        """Takes the next tries of an adaptive solver, of which some were rejected."""
        if self.result is not None:
            return
        # A slice does not copy, and most chunks have no rejected step.
        kept = slice(None) if accepted.all() else accepted
        self.add(times[kept], losses[kept], weights[kept])
        # Tries after the end of the run are none of its own.
        own = slice(None) if self.result is None else times < self._last[0]
        self.rejected += int(np.sum(~accepted[own]))

    def add(self, times: np.ndarray, losses: np.ndarray, weights: np.ndarray) -> None:
        """Takes the next points, in order."""
        if self.result is not None or len(times) == 0:
            return
        stop, self.result = self._end_among(times, losses)
        times, losses, weights = times[:stop], losses[:stop], weights[:stop]
        if len(times) == 0:
            return
        self._last = (float(times[-1]), float(losses[-1]), weights[-1])
        self.steps += len(times)
        if self._thinner is not None:
            kept = self._thinner.keep(times, losses)
        else:
            kept = np.flatnonzero(_is_among(times, np.asarray(self._fixed)))
        if kept.size:
            # Where everything is kept, a slice saves a copy.
            chosen = slice(None) if kept.size == len(times) else kept
            self._times.append(times[chosen])
            self._losses.append(losses[chosen])
            self._weights.append(weights[chosen])

    def _end_among(self, times: np.ndarray, losses: np.ndarray) -> tuple[int, Result | None]:
        """How many of these points belong to the run, and how it ended if it did: whatever
        comes first."""
        ends = {Result.diverged: np.flatnonzero(~np.isfinite(losses))}
        if self._target is not None:
            ends[Result.converged] = np.flatnonzero(losses <= self._target) + 1
        if self._end is not None:
            ends[Result.finished] = np.flatnonzero(times >= self._end) + 1
        reached = [(int(found[0]), result) for result, found in ends.items() if found.size]
        return min(reached, key=lambda end: end[0]) if reached else (len(times), None)

    def finish(self, result: Result) -> None:
        """Ends the run for a reason from outside, unless it has already ended."""
        self.result = self.result or result

    def snapshot(self) -> Snapshot:
        """All that is kept so far, and what decides what will be."""
        time, loss, weights = self._last
        arrays = {
            "times": np.concatenate(self._times),
            "losses": np.concatenate(self._losses),
            "weights": np.concatenate(self._weights),
            "last": np.asarray([[time, loss]]),
            "last_weights": weights[None],
        }
        about = {
            "result": None if self.result is None else self.result.name,
            "steps": self.steps,
            "rejected": self.rejected,
            "thinner": None if self._thinner is None else self._thinner.state(),
        }
        return Snapshot(arrays, about)

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a snapshot."""
        arrays, about = snapshot
        self._times, self._losses = [arrays["times"]], [arrays["losses"]]
        self._weights = [arrays["weights"]]
        time, loss = arrays["last"][0].tolist()
        self._last = (time, loss, arrays["last_weights"][0])
        self.result = None if about["result"] is None else Result[about["result"]]
        self.steps, self.rejected = about["steps"], about["rejected"]
        if self._thinner is not None:
            self._thinner.go_to(about["thinner"])

    def trajectory(self, clock: str, statistics: dict[str, Any]) -> Trajectory:
        """Everything that was kept; the last point always is."""
        time, loss, weights = self._last
        if time > self._times[-1][-1]:
            self._times.append(np.asarray([time]))
            self._losses.append(np.asarray([loss]))
            self._weights.append(weights[None])
        return Trajectory(
            np.concatenate(self._times),
            np.concatenate(self._losses),
            self._layout.models(np.concatenate(self._weights)),
            clock,
            self.result or Result.finished,
            statistics,
        )


def _is_among(times: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """`np.isin` for sorted moments, without sorting them again at every chunk."""
    if fixed.size == 0:
        return np.zeros(len(times), bool)
    place = np.minimum(np.searchsorted(fixed, times), len(fixed) - 1)
    return fixed[place] == times

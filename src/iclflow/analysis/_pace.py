"""The pace of a loss curve: how long it stays at each height."""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ._denoise import Curve, zigzag

# Windows per height of a window, so that no plateau is missed between two of them.
_OVERLAP = 8
# Two slow windows are one plateau if the loss between them changes by less than this, in units of
# the ripple.
_SAME_LEVEL = 1.5
# A curve that rests exactly on a height must not be lost to rounding.
_SLACK = 1e-9


class Pace(NamedTuple):
    """How long a curve stays in each of many overlapping windows of loss.

    **Fields:**

    - `path`: the distance that the loss has moved at each time, falls and rises alike, in units of
      the height of a window.
    - `lower`: where along that path each window begins; none if the whole curve fits into two.
    - `dwell`: the time spent in each window.
    """

    curve: Curve
    path: Float[np.ndarray, " T"]
    lower: Float[np.ndarray, " W"]
    dwell: Float[np.ndarray, " W"]

    @staticmethod
    def of(found: Curve, resolution: float) -> "Pace":
        """**Arguments:**

        - `resolution`: the height of a window as a share of the whole way; windows are at least as
          high as the ripple.
        """
        if not 0 < resolution < 0.5:
            raise InputError("resolution", resolution, "must lie between 0 and 0.5")
        moves = np.abs(np.diff(found.smooth))
        height = np.maximum(found.ripple, resolution * moves.sum())
        height = np.maximum(height[1:], height[:-1])
        path = np.concatenate([[0.0], np.cumsum(moves / np.where(moves > 0, height, 1.0))])
        if path[-1] <= 2:  # too short a way to compare windows
            return Pace(found, path, np.zeros(0), np.zeros(0))
        lower = np.linspace(0.0, path[-1] - 1, _OVERLAP * math.ceil(path[-1]))
        begins, ends = _stay(found.times, path, lower)
        return Pace(found, path, lower, ends - begins)

    def turns(self, contrast: float) -> list[int]:
        """The slowest and quickest windows, in turn, that differ by a factor of `contrast`."""
        if not contrast > 1:
            raise InputError("contrast", contrast, "must be above 1")
        return zigzag(np.log(self.dwell), math.log(contrast))

    def quick_windows(self, contrast: float) -> list[int]:
        """The window in the middle of each drop."""
        turns = self.turns(contrast)
        return [
            turn
            for turn, other in zip(turns, [*turns[1:2], *turns])
            if self.dwell[turn] < self.dwell[other]
        ]

    def slow_windows(self, contrast: float) -> list[int]:
        """The window of each plateau."""
        turns = self.turns(contrast)
        quick = self.quick_windows(contrast)
        kept: list[int] = []
        for window in (turn for turn in turns if turn not in quick):
            # Where a noisy curve turns, its two sides show the same plateau twice.
            if kept and self._same_level(kept[-1], window):
                window = max(kept.pop(), window, key=lambda i: self.dwell[i])
            kept.append(window)
        return kept

    def stay(self, windows: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """When the curve enters and leaves these windows."""
        return _stay(self.curve.times, self.path, self.lower[windows])

    def _same_level(self, first: int, second: int) -> bool:
        """Whether the change between two slow windows may come from noise."""
        begin, end = np.searchsorted(self.path, [self.lower[first], self.lower[second] + 1])
        # With the point at the end, because a drop may lie between two points.
        change = np.ptp(self.curve.smooth[begin : end + 1])
        middles = np.mean(self.stay([first, second]), axis=0)
        ripple = np.interp(middles, self.curve.times, self.curve.ripple)
        return bool(change <= _SAME_LEVEL * np.min(ripple))


def _stay(times: np.ndarray, path: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When the path first reaches `lower`, and when it last is at `lower` + 1."""
    return (
        _time_at(times, path, lower - _SLACK, "left"),
        _time_at(times, path, lower + 1 + _SLACK, "right"),
    )


def _time_at(
    times: np.ndarray, path: np.ndarray, target: np.ndarray, side: Literal["left", "right"]
) -> np.ndarray:
    right = np.clip(np.searchsorted(path, target, side=side), 1, len(path) - 1)
    width = path[right] - path[right - 1]
    # Between two equal points `left` is the first of them, and `right` the last.
    share = np.full(len(target), 1.0 if side == "right" else 0.0)
    np.divide(target - path[right - 1], width, out=share, where=width > 0)
    return times[right - 1] + np.clip(share, 0.0, 1.0) * (times[right] - times[right - 1])

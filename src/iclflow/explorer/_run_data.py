"""The numbers of a run that the server keeps, for the slider and for exports."""

from typing import Any, NamedTuple

import numpy as np

# The matrices of the heads at some points, by index and name.
Frames = dict[int, dict[str, np.ndarray]]


class Points(NamedTuple):
    """The points of a run: times, losses, the lines of the panels by the id of the panel, and the
    roles of the heads. The arrays are never written to, so that threads may read them."""

    times: np.ndarray
    losses: np.ndarray
    lines: dict[str, np.ndarray]
    roles: list | None

    def until(self, end: int) -> "Points":
        roles = None if self.roles is None else self.roles[:end]
        lines = {name: values[:end] for name, values in self.lines.items()}
        return Points(self.times[:end], self.losses[:end], lines, roles)


_NONE = Points(np.zeros(0), np.zeros(0), {}, None)


class RunData:
    """What is known of one run. It belongs to the event loop; threads get what its methods return.

    **Fields:**

    - `events`: the last event of each kind, as text.
    - `moments`: the moments that were described.
    - `figures`: of a run that is over, by name.
    """

    def __init__(self):
        self._parts: list[Points] = []
        self._frames: Frames = {}
        self.events: dict[str, str] = {}
        self.moments: list[Any] = []
        self.figures: dict[str, bytes] = {}
        self.count = 0
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes + sum(map(len, self.figures.values()))

    def add(self, start: int, points: Points, frames: Frames) -> None:
        """Replaces the points from index `start` on, and adds the weights of some of them."""
        if start < self.count:
            self._parts = [self.points().until(start)]
            for place in [place for place in self._frames if place >= start]:
                self._bytes -= _size(self._frames.pop(place))
        self._parts.append(points)
        self.count = start + len(points.times)
        self._frames |= frames
        self._bytes += sum(map(_size, frames.values()))
        width = sum(int(np.prod(np.shape(x)[1:], dtype=int)) for x in points.lines.values())
        # Times, losses and lines are float64. The roles are short texts, and are not counted.
        self._bytes += 8 * len(points.times) * (2 + width)

    def points(self) -> Points:
        """All points."""
        parts = self._parts
        # Joined when they are needed: joining at every message would take quadratic time.
        if len(parts) > 1:
            first = parts[0]
            roles = [row for part in parts for row in part.roles or ()]
            lines = {
                name: np.concatenate([part.lines[name] for part in parts]) for name in first.lines
            }
            joined = Points(
                np.concatenate([part.times for part in parts]),
                np.concatenate([part.losses for part in parts]),
                lines,
                None if first.roles is None else roles,
            )
            self._parts = [joined]
        return self._parts[0] if self._parts else _NONE

    def frame(self, index: int) -> tuple[int, dict[str, np.ndarray]]:
        """The weights at a point, or at the last before it that has some, and its index."""
        kept = max((place for place in self._frames if place <= index), default=None)
        return (index, {}) if kept is None else (kept, self._frames[kept])


def _size(frame: dict[str, np.ndarray]) -> int:
    return sum(part.nbytes for part in frame.values())

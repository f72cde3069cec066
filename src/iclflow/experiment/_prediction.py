"""A prediction for a run, in the units of its clock."""

import contextlib
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from ..drawing.loss import curve_points, reach


@dataclasses.dataclass(frozen=True)
class Overlay:
    """A prediction in the units of a run's clock.

    **Fields:**

    - `levels`: the plateaus of the loss, one after the other.
    - `drop_times`: when half of each drop between them is done, as far as it is predicted.
    - `curve`: the loss as a function of the clock; None if there is none.
    - `source`: what the prediction rests on, in words.
    - `references`: other known losses to compare with, by name.
    - `whole`: whether each call of `curve` solves an equation from the start, so that one call
      for all moments is cheaper than several.
    """

    levels: np.ndarray
    drop_times: np.ndarray
    curve: Callable[[np.ndarray], np.ndarray] | None
    source: str
    references: tuple[tuple[str, float], ...] = ()
    whole: bool = False

    def for_plot(self, clock: np.ndarray) -> SimpleNamespace:
        """The prediction as `Trajectory.plot` takes it: with a `loss` only if there is one, and if
        it can be computed for a run with this `clock`."""
        parts: dict = {"drop_times": self.drop_times, "references": self.references}
        named = {loss for _, loss in self.references}
        parts["levels"] = [level for level in self.levels if level not in named]
        curve = self.sample(clock, reach(clock[-1], self.drop_times))
        if curve is not None:
            parts["times"], parts["loss"] = curve
        return SimpleNamespace(**parts)

    def sample(self, clock: np.ndarray, end: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Times up to `end` for drawing the curve over a run with this `clock`, and the predicted
        losses; None if there is no curve, or it cannot be computed that far."""
        if self.curve is None or not 0 < end < np.inf:
            return None
        with contextlib.suppress(ValueError, RuntimeError), np.errstate(all="ignore"):
            return curve_points(self.curve, clock, end, refine=not self.whole)
        return None

    def at(self, moment: float) -> float | None:
        """The predicted loss at one time; None if there is no curve that reaches it."""
        if self.curve is None:
            return None
        with contextlib.suppress(ValueError, RuntimeError):
            loss = float(self.curve(np.array([0.0, moment]))[-1])
            return loss if np.isfinite(loss) else None
        return None

"""The share of a run that is done, for progress bars."""

import functools
import math
import time

from ..flows import Status
from ._build import Experiment
from ._overlay import overlay

# Seconds before theory is asked how long a run takes: that takes some tenths of a second itself.
_PATIENCE = 2.0
# A flow comes to rest some time after its last drop; until then it is never done.
_AFTER_DROPS, _NEVER_DONE = 1.2, 0.99


class Share:
    """The share of a run that is done, also of a flow that ends where it comes to rest: then it is
    the share of the time to the last drop that theory expects."""

    def __init__(self, experiment: Experiment, patience: float = _PATIENCE):
        self._experiment, self._asked_from = experiment, time.monotonic() + patience

    def __call__(self, status: Status) -> float | None:
        if status.fraction is not None or time.monotonic() < self._asked_from:
            return status.fraction
        end = self._end
        return None if end is None else min(status.clock / end, _NEVER_DONE)

    @functools.cached_property
    def _end(self) -> float | None:
        predicted = overlay(self._experiment)
        times = () if predicted is None else predicted.drop_times
        return max((_AFTER_DROPS * float(t) for t in times if math.isfinite(t)), default=None)

"""Tells the page of a run: what theory says, its points, what they mean, and the claims."""

import sys
import time
import traceback

import numpy as np

from ..claims import Outcome, run_checks
from ..experiment import Experiment, Overlay
from ..flows import Status
from ..report import error_text, predicted_text, value_text
from ..trajectory import Trajectory
from ._desk import Desk
from ._panels import panels_of
from ._run_data import Points
from ._words import Narrator, moments_to_tell

# Bytes of the weights that are kept of one run; then those of every second, third … point.
_MATRIX_BYTES = 2**24
# About how many points a run has, for that.
_POINTS = 1500


class Teller:
    """Of one run.

    **Arguments:**

    - `predicted`: what theory says, if anything.
    - `floor`: the smallest loss that it could reach, if that is known.
    - `told`: how many points were told before, of a run that is taken up.
    """

    def __init__(
        self,
        desk: Desk,
        experiment: Experiment,
        predicted: Overlay | None,
        floor: float | None,
        told: int = 0,
    ):
        self.predicted, self.floor = predicted, floor
        self._desk, self._experiment = desk, experiment
        self._panels = panels_of(experiment)
        self._narrator = Narrator(experiment, predicted, self._panels)
        self._checks = run_checks(experiment.config)
        # How many points will not change any more, and moments that were told in words.
        self._kept, self._moments = max(0, told - 1), 0
        self._stride: int | None = None
        # The first moment after 0 and the last one at which the page has theory's curve.
        self._drawn_from, self._drawn_to = 0.0, 0.0
        # Seconds that words and claims of a moment took last.
        self.cost = 0.0

    def begin(self, end: float | None) -> None:
        """Tells what is known before the first step."""
        panels = self._panels
        self._desk.event(
            "panels",
            clock=panels.clock,
            panels=[panel._asdict() for panel in panels.lines],
            heads=[{"label": label} for label in panels.heads],
            matrices=[matrix._asdict() for matrix in panels.matrices],
        )
        times = () if self.predicted is None else self.predicted.drop_times
        late = [float(time) for time in times if np.isfinite(time)]
        self.theory(end if end is not None else 1.4 * late[-1] if late else None)
        waiting = [_as_told(check.claim, check.tolerance_reason) for check in self._checks]
        self._desk.event("claims", final=False, claims=waiting)

    def theory(self, end: float | None, clock: np.ndarray = np.zeros(0)) -> None:
        """Tells what is predicted up to a moment, for a run that is drawn at those of `clock`."""
        predicted = self.predicted
        if predicted is None:
            levels, drops, references, source, curve = (), (), (), None, None
        else:
            levels, drops, source = predicted.levels, predicted.drop_times, predicted.source
            references = predicted.references
            end = None if end is None else max(end, self._drawn_to)
            curve = None if end is None else predicted.sampled(clock, end)
            if curve is None and self._drawn_to:
                return  # what was told before still holds
            if curve is not None:
                self._drawn_from, self._drawn_to = float(curve[0][1]), float(curve[0][-1])
        self._desk.event(
            "theory",
            levels=levels,
            drop_times=drops,
            references=references,
            floor=self.floor,
            curve=None if curve is None else {"times": curve[0], "losses": curve[1]},
            source=source,
        )

    def points(self, run: Trajectory) -> None:
        """Tells the points that are new. The last of a run under way may be gone at the next."""
        start = self._kept
        new = run[start:]
        if not len(new):
            return
        measured = self._panels.measure(new)
        # First what the server keeps: a page that has heard of points may ask for their weights.
        roles = None if measured.roles is None else measured.roles.tolist()
        points = Points(new.times, new.losses, measured.lines, roles)
        self._desk.points(start, points, self._frames(start, measured.matrices))
        self._desk.event(
            "points",
            **{"from": start},
            times=new.times,
            losses=new.losses,
            lines=measured.lines,
            roles=roles,
        )
        self._kept = max(0, len(run) - 1)
        # Before its first point nobody knows where a run begins on a logarithmic axis.
        if np.any((run.times > 0) & (run.times < self._drawn_from)):
            self.theory(self._drawn_to, run.times)

    def measure(self, run: Trajectory) -> None:
        """Computes what is told of a run and tells nobody, so that all is compiled."""
        self._panels.measure(run)
        self._narrator.sentences(run, len(run) - 1)
        for check in self._checks:
            check.check(run, self._experiment.task, self._experiment.config)

    def _frames(self, start: int, matrices: dict[str, np.ndarray]) -> dict[int, dict]:
        """The weights of those points for which there is room, by their place."""
        if not matrices:
            return {}
        count = len(next(iter(matrices.values())))
        if self._stride is None:
            size = sum(part[0].size * 4 for part in matrices.values())
            self._stride = max(1, -(-_POINTS * size // _MATRIX_BYTES))
        places = [i for i in range(count) if (start + i) % self._stride == 0 or i == count - 1]
        return {
            start + i: {name: np.asarray(part[i], np.float32) for name, part in matrices.items()}
            for i in places
        }

    def progress(self, status: Status, seconds: float) -> None:
        """Tells how far the run is."""
        self._desk.event(
            "progress",
            seconds=seconds,
            clock=status.clock,
            loss=status.loss,
            steps=status.steps,
            fraction=status.fraction,
        )

    def live(self, run: Trajectory) -> None:
        """Tells what is happening now, and what the claims say so far."""
        start = time.monotonic()
        self._words(run, len(run) - 1)
        self._claims(run, final=False)
        self.cost = time.monotonic() - start

    def finish(self, shown: Trajectory, run: Trajectory) -> None:
        """Tells of a run that is over all that can be said; `run` has the points that are not
        shown too."""
        self._claims(run, final=True)
        self._moments = 0
        for place in moments_to_tell(shown):
            if self._desk.cancelled:
                return
            self._words(shown, int(place))
        # What was told on the way and is told no more goes, if the run had fewer moments than that.
        self._desk.event("words", **{"from": self._moments}, moments=[])

    def _words(self, run: Trajectory, place: int) -> None:
        moment = {"index": place, "time": run.times[place], "sentences": self._said(run, place)}
        self._desk.event("words", **{"from": self._moments}, moments=[moment])
        self._moments += 1

    def _said(self, run: Trajectory, place: int) -> list[str]:
        try:
            return self._narrator.sentences(run, place)
        except Exception:
            # The run is worth more than its words; whoever runs the server sees what is wrong.
            traceback.print_exc(file=sys.stderr)
            return ["What is happening here could not be measured."]

    def _claims(self, run: Trajectory, final: bool) -> None:
        config, task = self._experiment.config, self._experiment.task
        outcomes = []
        for check in self._checks:
            # Others may wait for their turn, but a run that is over is told to its end.
            if self._desk.cancelled if final else self._desk.stopped():
                return
            outcomes.append(_as_checked(check.check(run, task, config)))
        self._desk.event("claims", final=final, claims=outcomes)


def _as_told(claim, tolerance_reason: str) -> dict:
    return {
        "id": claim.id,
        "statement": claim.statement,
        "source": claim.source,
        "paper": claim.paper,
        "verdict": "waiting",
        "predicted": None,
        "measured": None,
        "error": None,
        "tolerance": None,
        "tolerance_reason": tolerance_reason,
        "reason": "",
    }


def _as_checked(outcome: Outcome) -> dict:
    """A verdict as the page shows it: of several comparisons the one that comes closest to fail."""
    told = _as_told(outcome.claim, outcome.claim.tolerance_reason)
    told |= {"verdict": outcome.verdict, "reason": outcome.reason}
    worst = outcome.worst
    if worst is not None:
        told |= {
            "what": worst.name,
            "predicted": predicted_text(worst),
            "measured": value_text(worst.measured),
            "error": error_text(worst),
            # Without one, the comparison says it all.
            "tolerance": worst.tolerance or None,
        }
    return told

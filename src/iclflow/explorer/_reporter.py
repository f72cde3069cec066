"""Reports a run to the page: what theory says, its points, what they mean, and the claims."""

import sys
import time
import traceback
from typing import Any

import numpy as np

from ..analysis import key_moments
from ..experiment import Experiment, overlay, summarise
from ..flows import Status
from ..papers import Claim, Outcome, claims_on
from ..report import error_text, predicted_text, value_text
from ..trajectory import Trajectory
from ._channel import WorkerChannel
from ._narrator import Narrator
from ._panels import build_panels
from ._run_data import Frames, Points

# Bytes of the weights that are kept of one run; a larger run keeps those of every second, third …
# point, where this many points are expected.
_MATRIX_BYTES = 2**24
_EXPECTED_POINTS = 1500
# How far the curve of theory reaches beyond the last predicted drop, if no end is known.
_BEYOND_DROPS = 1.4


class Reporter:
    """Reports one run.

    **Arguments:**

    - `reported`: how many points were reported before, for a run that is resumed.

    **Fields:**

    - `cost`: the seconds that the last description of a moment took, claims included.
    """

    def __init__(self, channel: WorkerChannel, experiment: Experiment, reported: int = 0):
        self._channel, self._experiment = channel, experiment
        self._predicted, self._floor = overlay(experiment), experiment.floor()
        self._panels = build_panels(experiment)
        self._narrator = Narrator(experiment, self._predicted, self._panels)
        self._claims = claims_on(experiment.config)
        # Points that will not change any more, and moments that were described.
        self._final, self._moments = max(0, reported - 1), 0
        self._stride: int | None = None
        # The first time after 0 and the last one for which the page has theory's curve.
        self._curve_from, self._curve_to = 0.0, 0.0
        self.cost = 0.0

    def begin(self, end: float | None) -> None:
        """Reports what is known before the first step; `end` is the last time, where known."""
        panels = self._panels
        self._channel.send_event(
            "panels",
            clock=panels.clock,
            panels=[panel.describe() for panel in panels.lines],
            heads=[{"label": label} for label in panels.heads],
            matrices=[matrix._asdict() for matrix in panels.matrices],
        )
        times = () if self._predicted is None else self._predicted.drop_times
        drops = [float(time) for time in times if np.isfinite(time)]
        self.report_theory(end if end is not None else _BEYOND_DROPS * drops[-1] if drops else None)
        waiting = [
            _describe_claim(claim, claim.on_run.tolerance_reason)
            for claim in self._claims
            if claim.on_run is not None
        ]
        self._channel.send_event("claims", final=False, claims=waiting)

    def report_theory(self, end: float | None, clock: np.ndarray = np.zeros(0)) -> None:
        """Reports what is predicted up to a time, for a run whose points have the times `clock`."""
        predicted, curve = self._predicted, None
        if predicted is not None:
            end = None if end is None else max(end, self._curve_to)
            curve = None if end is None else predicted.sample(clock, end)
            if curve is None and self._curve_to:
                return  # the curve on the page still holds
            if curve is not None:
                self._curve_from, self._curve_to = float(curve[0][1]), float(curve[0][-1])
        self._channel.send_event(
            "theory",
            levels=() if predicted is None else predicted.levels,
            drop_times=() if predicted is None else predicted.drop_times,
            references=() if predicted is None else predicted.references,
            floor=self._floor,
            curve=None if curve is None else {"times": curve[0], "losses": curve[1]},
            source=None if predicted is None else predicted.source,
        )

    def report_points(self, run: Trajectory) -> None:
        """Reports new points. The last point of a run under way may be replaced by the next."""
        start = self._final
        new = run[start:]
        if not len(new):
            return
        measured = self._panels.measure(new)
        roles = None if measured.roles is None else measured.roles.tolist()
        points = Points(new.times, new.losses, measured.lines, roles)
        # To the server first: a page that has seen points may ask for their weights.
        self._channel.send_points(start, points, self._choose_frames(start, measured.matrices))
        self._channel.send_event("points", **{"from": start}, **points._asdict())
        self._final = max(0, len(run) - 1)
        # Where a run begins on a logarithmic axis is known only from its first point.
        if np.any((run.times > 0) & (run.times < self._curve_from)):
            self.report_theory(self._curve_to, run.times)

    def measure(self, run: Trajectory) -> None:
        """Computes what is reported of a run and sends nothing: this compiles all of it."""
        self._panels.measure(run)
        self._narrator.sentences(run, len(run) - 1)
        for claim in self._claims:
            claim.check(run, self._experiment.task, self._experiment.config)

    def _choose_frames(self, start: int, matrices: dict[str, np.ndarray]) -> Frames:
        """The weights of the points for which there is room, by index."""
        if not matrices:
            return {}
        count = len(next(iter(matrices.values())))
        if self._stride is None:
            size = sum(part[0].size * 4 for part in matrices.values())  # bytes, as float32
            self._stride = max(1, -(-_EXPECTED_POINTS * size // _MATRIX_BYTES))
        chosen = [i for i in range(count) if (start + i) % self._stride == 0 or i == count - 1]
        return {
            start + i: {name: np.asarray(part[i], np.float32) for name, part in matrices.items()}
            for i in chosen
        }

    def report_progress(self, status: Status, seconds: float) -> None:
        self._channel.send_event(
            "progress",
            seconds=seconds,
            clock=status.clock,
            loss=status.loss,
            steps=status.steps,
            fraction=status.fraction,
        )

    def report_live(self, run: Trajectory) -> None:
        """Describes the last point, and what the claims say so far."""
        start = time.monotonic()
        self._report_moment(run, len(run) - 1)
        self._report_claims(run, final=False)
        self.cost = time.monotonic() - start

    def finish(self, shown: Trajectory, run: Trajectory, seconds: float, message: str = "") -> None:
        """Reports the summary, the claims and the key moments of a run that is over.

        **Arguments:**

        - `run`: with the points that are not shown.
        - `seconds`: that it has computed.
        - `message`: how it ended (default: the words of its result).
        """
        config, task = self._experiment.config, self._experiment.task
        self._channel.send_event(
            "ended",
            result=run.result.name,
            message=message or run.result.value,
            seconds=seconds,
            points=len(shown),
            summary=summarise(config, run, self._floor, self._predicted, task).as_json(),
        )
        self.report_theory(float(shown.times[-1]), shown.times)
        self._report_claims(run, final=True)
        self._moments = 0
        for index in key_moments(shown):
            if self._channel.cancelled:
                return
            self._report_moment(shown, int(index))
        # Removes the moments that were described live beyond these.
        self._channel.send_event("words", **{"from": self._moments}, moments=[])

    def _report_moment(self, run: Trajectory, index: int) -> None:
        try:
            sentences = self._narrator.sentences(run, index)
        except Exception:
            # The run is worth more than its description; the terminal shows what is wrong.
            traceback.print_exc(file=sys.stderr)
            sentences = ["What is happening here could not be measured."]
        moment = {"index": index, "time": run.times[index], "sentences": sentences}
        self._channel.send_event("words", **{"from": self._moments}, moments=[moment])
        self._moments += 1

    def _report_claims(self, run: Trajectory, final: bool) -> None:
        config, task = self._experiment.config, self._experiment.task
        outcomes = []
        for claim in self._claims:
            # A run under way yields to others; one that is over is reported to its end.
            if self._channel.cancelled if final else self._channel.stop_reason():
                return
            outcomes.append(_describe_outcome(claim.check(run, task, config)))
        self._channel.send_event("claims", final=final, claims=outcomes)


def _describe_claim(claim: Claim, tolerance_reason: str) -> dict[str, Any]:
    """A claim that is not checked yet, as the page shows it."""
    unknown = dict.fromkeys(("predicted", "measured", "error", "tolerance"))
    about = {"id": claim.id, "statement": claim.statement, "source": claim.source}
    about |= {"paper": claim.paper, "verdict": "waiting"}
    return {**about, **unknown, "tolerance_reason": tolerance_reason, "reason": ""}


def _describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """A verdict as the page shows it: of several comparisons, the one closest to failing."""
    described = _describe_claim(outcome.claim, outcome.claim.tolerance_reason)
    described |= {"verdict": outcome.verdict, "reason": outcome.reason}
    worst = outcome.worst
    if worst is not None:
        described |= {
            "what": worst.name,
            "predicted": predicted_text(worst),
            "measured": value_text(worst.measured),
            "error": error_text(worst),
            # A tolerance of zero says nothing that the comparison does not say.
            "tolerance": worst.tolerance or None,
        }
    return described

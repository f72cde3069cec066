"""Jobs of a worker: computing a run, drawing it, compiling what a run needs."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..config import Config, parse_config
from ..experiment import Run, prepare, train
from ..flows import Checkpoint, Status
from ..trajectory import Result, Trajectory
from ._channel import StopReason, WorkerChannel
from ._reporter import Reporter

# Steps of a descent between two reports, at most. Fewer where steps take long: then attention reads
# about this many tokens between two reports, some tenths of a second.
_MOST_STEPS = 500
_TOKENS = 1_500_000
# Points of a stored run that are shown at most, and points per message.
_MOST_SHOWN, _CHUNK = 2000, 500
# Seconds between reports of points, and between descriptions, which also take at most this share of
# the time of a run.
_POINTS_EVERY = 0.1
_LIVE_EVERY, _LIVE_SHARE = 0.7, 0.2
# A report that takes long is followed by a pause this many times as long, so that training keeps
# most of the time.
_REST = 3
# `train` saves a checkpoint when it stops; none are needed before.
_NO_CHECKPOINTS = 1e9


def compute_run(
    channel: WorkerChannel,
    config: dict[str, Any],
    checkpoint: str,
    seconds: float,
    limit: float,
    reported: int,
) -> dict[str, Any]:
    """Trains, and reports the run as it goes.

    **Arguments:**

    - `checkpoint`: the file from which a run that was stopped is resumed.
    - `seconds`: that it has computed before.
    - `limit`: of seconds in all.
    - `reported`: how many of its points the page has already.
    """
    experiment = prepare(parse_config(config, stored=True))
    if reason := channel.stop_reason():
        return _outcome(reason, seconds)
    reporter = Reporter(channel, experiment, reported)
    if not reported:
        flow = experiment.config.flow
        reporter.begin(flow.end if flow.kind == "gradient_flow" else float(flow.steps))
    start = time.monotonic()
    callback = _Callback(channel, reporter, start - seconds, limit)
    saved = Checkpoint(Path(checkpoint), every=_NO_CHECKPOINTS)
    run = train(experiment, callback, saved, _steps_per_report(experiment.config))
    spent = seconds + time.monotonic() - start
    reason = callback.stop_reason
    # Only a run that will be resumed needs its checkpoint.
    if reason not in ("pause", "yield"):
        Path(checkpoint).unlink(missing_ok=True)
    reporter.report_points(run)
    if reason is not None:
        return _outcome(reason, spent)
    late = f"Stopped after {limit:g} seconds, the time limit of the explorer."
    reporter.finish(run, run, spent, late if callback.late else "")
    return _outcome(None, spent)


def report_whole_run(channel: WorkerChannel, config: Config, run: Trajectory) -> dict[str, Any]:
    """Reports a run that was read from disk, as if it had just ended."""
    reporter = Reporter(channel, prepare(config))
    reporter.begin(float(run.times[-1]))
    shown = _thin_out(run)
    for end in [*range(_CHUNK, len(shown), _CHUNK), len(shown)]:
        reporter.report_points(shown[:end])
        if channel.cancelled:
            return _outcome("cancel", 0.0)
    message = ""
    if len(shown) < len(run):
        message = f"{run.result.value} Of {len(run)} points {len(shown)} are shown."
    reporter.finish(shown, run, float(run.statistics.get("seconds", 0.0)), message)
    return _outcome(None, 0.0)


def _outcome(stopped: StopReason | None, seconds: float) -> dict[str, Any]:
    """What the server gets back: why the run was stopped, and the seconds that it has computed."""
    return {"stopped": stopped, "seconds": seconds}


def _thin_out(run: Trajectory) -> Trajectory:
    """At most as many points of a run as a page can show, evenly, with the first and the last."""
    if len(run) <= _MOST_SHOWN:
        return run
    places = np.unique(np.linspace(0, len(run) - 1, _MOST_SHOWN).astype(int))
    models = jax.tree.map(lambda leaf: leaf[places], run.models)
    return dataclasses.replace(
        run, times=run.times[places], losses=run.losses[places], models=models
    )


def draw_loss(
    channel: WorkerChannel,
    config: dict[str, Any],
    times: np.ndarray,
    losses: np.ndarray,
    result: str,
) -> dict[str, bytes]:
    """The figure of a run, as `iclflow run` draws it: PNG and PDF."""
    experiment = prepare(parse_config(config, stored=True))
    clock = "time" if experiment.config.flow.kind == "gradient_flow" else "step"
    run = Trajectory(times, losses, experiment.model, clock, Result[result])
    return Run(experiment, run).figures()


def warm_up(channel: WorkerChannel, config: dict[str, Any]) -> None:
    """Compiles what a run of this config needs, and sends nothing."""
    experiment = prepare(parse_config(config, stored=True))
    run = train(experiment, lambda _: True, None, _steps_per_report(experiment.config))
    Reporter(channel, experiment).measure(run)


class _Callback:
    """Called by `train` between chunks of steps: reports the run, and says whether to go on."""

    def __init__(self, channel: WorkerChannel, reporter: Reporter, start: float, limit: float):
        self._channel, self._reporter, self._start, self._limit = channel, reporter, start, limit
        self._last_points = self._last_live = time.monotonic()
        self._first, self._cost = True, 0.0
        self.stop_reason: StopReason | None = None
        self.late = False

    def __call__(self, status: Status) -> bool:
        now = time.monotonic()
        assert status.so_far is not None
        # The first call comes at once: the page shows a point as soon as there is one.
        live = now - self._last_live >= max(_LIVE_EVERY, self._reporter.cost / _LIVE_SHARE)
        due = now - self._last_points >= max(_POINTS_EVERY, _REST * self._cost)
        if self._first or live or due:
            self._first = False
            run = status.so_far()
            self._reporter.report_points(run)
            self._reporter.report_progress(status, now - self._start)
            self._last_points = time.monotonic()
            self._cost = self._last_points - now
            if live:
                self._reporter.report_live(run)
                self._last_live = time.monotonic()
        self.stop_reason = self._channel.stop_reason()
        self.late = now - self._start >= self._limit
        return self.stop_reason is None and not self.late


def _steps_per_report(config: Config) -> int:
    """Steps between two calls of the callback."""
    if config.model.bilinear or config.model.cubic:
        return _MOST_STEPS  # its risks use moments of sequences, and read no tokens
    sequences = getattr(config.risk, "batch", None) or getattr(config.risk, "sequences", 256)
    tokens = sequences * (config.task.longest_context + 1) * getattr(config.model, "heads", 1)
    return max(1, min(_MOST_STEPS, _TOKENS // tokens))


JOBS = {"run": compute_run, "draw": draw_loss, "warm": warm_up}

"""Jobs of a worker: a run that is watched, and its export."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..config import Config, parse_config
from ..experiment import Experiment, loss_figure, overlay, prepare, summarise, train
from ..flows import Checkpoint, Status
from ..trajectory import Result, Trajectory
from ._desk import Desk
from ._teller import Teller

# Steps of a descent from one look at it to the next, at most; fewer where steps take long, such
# that a look comes after about so many tokens that attention reads.
_STRETCH = 500
_TOKENS = 1_500_000
# Points of a stored run that are shown, and of one message about them.
_MOST_SHOWN, _PIECE = 2000, 500
# Seconds from one message about points to the next, and what words and claims may take of a run.
_EVERY = 0.1
_LIVE_EVERY, _LIVE_SHARE = 0.7, 0.2


def compute_run(
    desk: Desk, config: dict, checkpoint: str, seconds: float, limit: float, told: int
) -> dict:
    """Trains, and tells of it as it goes.

    **Arguments:**

    - `checkpoint`: the file in which a run that is left stands, to be taken up.
    - `seconds`: that it has computed before.
    - `limit`: of seconds in all.
    - `told`: how many of its points the page knows already.
    """
    experiment = prepare(parse_config(config, stored=True))
    if why := desk.stopped():
        return {"left": why, "seconds": seconds}
    teller = Teller(desk, experiment, overlay(experiment), experiment.floor(), told)
    if not told:
        teller.begin(_known_end(experiment.config))
    start = time.monotonic()
    watch = _Watch(desk, teller, start - seconds, limit)
    run = train(
        experiment, watch, Checkpoint(Path(checkpoint), every=1e9), _stretch(experiment.config)
    )
    spent = seconds + time.monotonic() - start
    if watch.why in ("pause", "yield"):
        teller.points(run)
        return {"left": watch.why, "seconds": spent}
    Path(checkpoint).unlink(missing_ok=True)
    teller.points(run)
    if watch.why == "cancel":
        return {"left": "cancel", "seconds": spent}
    message = None
    if watch.late:
        message = f"Stopped after {limit:g} seconds, the most that the explorer gives a run."
    _tell_end(desk, teller, experiment, run, spent, message, shown=run)
    return {"left": None, "seconds": spent}


def tell_whole_run(desk: Desk, config: Config, run: Trajectory) -> dict:
    """Tells of a run that is there already, as of one that has just ended."""
    experiment = prepare(config)
    teller = Teller(desk, experiment, overlay(experiment), experiment.floor())
    teller.begin(float(run.times[-1]))
    shown = _thinned(run)
    for end in [*range(_PIECE, len(shown), _PIECE), len(shown)]:
        teller.points(shown[:end])
        if desk.cancelled:
            return {"left": "cancel", "seconds": 0.0}
    message = None
    if len(shown) < len(run):
        message = f"{run.result.value} Of {len(run)} points {len(shown)} are shown."
    seconds = float(run.statistics.get("seconds", 0.0))
    _tell_end(desk, teller, experiment, run, seconds, message, shown)
    return {"left": None, "seconds": 0.0}


def _thinned(run: Trajectory) -> Trajectory:
    """At most so many points of a run as a page can show, evenly, the first and the last too."""
    if len(run) <= _MOST_SHOWN:
        return run
    places = np.unique(np.linspace(0, len(run) - 1, _MOST_SHOWN).astype(int))
    models = jax.tree.map(lambda leaf: leaf[places], run.models)
    return dataclasses.replace(
        run, times=run.times[places], losses=run.losses[places], models=models
    )


def draw_loss(desk: Desk, config: dict, times: np.ndarray, losses: np.ndarray, result: str) -> Any:
    """The figure of a run, as `iclflow run` draws it: PNG and PDF."""
    experiment = prepare(parse_config(config, stored=True))
    clock = "time" if experiment.config.flow.kind == "gradient_flow" else "step"
    run = Trajectory(times, losses, experiment.model, clock, Result[result])
    return loss_figure(run, overlay(experiment), experiment.floor(), experiment.config.name)


def warm_up(desk: Desk, config: dict) -> None:
    """Compiles what a run of this config needs, without telling anybody."""
    experiment = prepare(parse_config(config, stored=True))
    teller = Teller(desk, experiment, overlay(experiment), experiment.floor())
    run = train(experiment, lambda _: True, None, _stretch(experiment.config))
    teller.measure(run)


class _Watch:
    """Looks at a run between its chunks: shows it, and says when to stop."""

    def __init__(self, desk: Desk, teller: Teller, start: float, limit: float):
        self._desk, self._teller, self._start, self._limit = desk, teller, start, limit
        self._shown = self._lived = time.monotonic()
        self._first, self._cost = True, 0.0
        self.why: str | None = None
        self.late = False

    def __call__(self, status: Status) -> bool:
        now = time.monotonic()
        assert status.so_far is not None
        live = now - self._lived >= max(_LIVE_EVERY, self._teller.cost / _LIVE_SHARE)
        # What takes long to tell is told less often.
        if self._first or live or now - self._shown >= max(_EVERY, 3 * self._cost):
            self._first = False
            run = status.so_far()
            self._teller.points(run)
            self._teller.progress(status, now - self._start)
            self._shown = time.monotonic()
            self._cost = self._shown - now
            if live:
                self._teller.live(run)
                self._lived = time.monotonic()
        self.why = self._desk.stopped()
        self.late = now - self._start >= self._limit
        return self.why is None and not self.late


def _stretch(config: Config) -> int:
    """Steps between two looks, so that a run can be watched and stopped."""
    if config.model.bilinear or config.model.cubic:
        return _STRETCH  # its risks know the moments of sequences, and read none
    sequences = getattr(config.risk, "batch", None) or getattr(config.risk, "sequences", 256)
    tokens = sequences * (config.task.longest_context + 1) * getattr(config.model, "heads", 1)
    return max(1, min(_STRETCH, _TOKENS // tokens))


def _known_end(config: Config) -> float | None:
    flow = config.flow
    return flow.end if flow.kind == "gradient_flow" else float(flow.steps)


def _tell_end(
    desk: Desk,
    teller: Teller,
    experiment: Experiment,
    run: Trajectory,
    seconds: float,
    message: str | None,
    shown: Trajectory,
) -> None:
    summary = summarise(
        experiment.config, run, teller.floor, teller.predicted, experiment.task
    ).as_json()
    desk.event(
        "ended",
        result=run.result.name,
        message=message or run.result.value,
        seconds=seconds,
        points=len(shown),
        summary=summary,
    )
    teller.theory(float(shown.times[-1]), shown.times)
    teller.finish(shown, run)


JOBS = {"run": compute_run, "draw": draw_loss, "warm": warm_up}

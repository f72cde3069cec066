"""Jobs of a worker: a run that is watched, and its export."""

import time
from pathlib import Path
from typing import Any

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
    experiment = prepare(parse_config(config))
    if desk.stopped():
        return {"left": desk.stopped(), "seconds": seconds}
    teller = Teller(desk, experiment, overlay(experiment), experiment.floor(), told)
    if not told:
        teller.begin(_known_end(experiment.config))
    start = time.monotonic()
    watch = _Watch(desk, teller, start + limit - seconds)
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
    _tell_end(desk, teller, experiment, run, spent, message)
    return {"left": None, "seconds": spent}


def tell_whole_run(desk: Desk, config: Config, run: Trajectory) -> dict:
    """Tells of a run that is there already, as of one that has just ended."""
    experiment = prepare(config)
    teller = Teller(desk, experiment, overlay(experiment), experiment.floor())
    teller.begin(float(run.times[-1]))
    teller.points(run)
    _tell_end(desk, teller, experiment, run, float(run.statistics.get("seconds", 0.0)), None)
    return {"left": None, "seconds": 0.0}


def draw_loss(desk: Desk, config: dict, times: np.ndarray, losses: np.ndarray, result: str) -> Any:
    """The figure of a run, as `iclflow run` draws it: PNG and PDF."""
    experiment = prepare(parse_config(config))
    clock = "time" if experiment.config.flow.kind == "gradient_flow" else "step"
    run = Trajectory(times, losses, experiment.model, clock, Result[result])
    return loss_figure(run, overlay(experiment), experiment.floor(), experiment.config.name)


def warm_up(desk: Desk, config: dict) -> None:
    """Compiles what a run of this config needs, without telling anybody."""
    experiment = prepare(parse_config(config))
    predicted, floor = overlay(experiment), experiment.floor()
    Teller(desk, experiment, predicted, floor)
    going = lambda _: desk.stopped() is None
    train(experiment, going, None, _stretch(experiment.config))


class _Watch:
    """Looks at a run between its chunks: shows it, and says when to stop."""

    def __init__(self, desk: Desk, teller: Teller, until: float):
        self._desk, self._teller, self._until = desk, teller, until
        self._shown = self._lived = time.monotonic()
        self._first = True
        self.why: str | None = None
        self.late = False

    def __call__(self, status: Status) -> bool:
        now = time.monotonic()
        assert status.so_far is not None
        if self._first or now - self._shown >= _EVERY:
            self._first, self._shown = False, now
            self._teller.points(status.so_far())
            self._teller.progress(status)
        lately = max(_LIVE_EVERY, self._teller.cost / _LIVE_SHARE)
        if now - self._lived >= lately:
            self._teller.live(status.so_far())
            self._lived = time.monotonic()
        self.why = self._desk.stopped()
        self.late = now >= self._until
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
) -> None:
    summary = summarise(
        experiment.config, run, teller.floor, teller.predicted, experiment.task
    ).as_json()
    desk.event(
        "ended",
        result=run.result.name,
        message=message or run.result.value,
        seconds=seconds,
        points=len(run),
        summary=summary,
    )
    teller.theory(float(run.times[-1]))
    teller.finish(run)


JOBS = {"run": compute_run, "draw": draw_loss, "warm": warm_up}

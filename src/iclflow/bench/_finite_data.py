"""Full-batch training on a finite data set: sufficient statistics against PyTorch loops."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..flows import Linear, gradient_descent
from ..models import AbstractModel, FullMergedKQ
from ..risks import AbstractRisk, dataset_risk
from ..tasks import LinearRegression, Sequences
from ._loops import EveryPosition, Loop, QueryPosition
from ._machine import missing_torch
from ._row import Bar, Row, Timing, measure

GROUP = "training on a finite data set"
EVERY_POSITION = "PyTorch at every position"
QUERY_POSITION = "PyTorch at the query position"
LEARNING_RATE = 1e-3


class Setting(NamedTuple):
    """How much to compute.

    **Fields:**

    - `sequences`, `steps`: P, and the number of steps of gradient descent.
    - `peer_seconds`: how long each peer is timed (and at least three steps); the whole is
      extrapolated.
    - `check_sequences`, `check_steps`: of the comparison in float64.
    - `judged`: whether these are the sizes that the bars are about.
    """

    sequences: int = 5000
    steps: int = 6001
    peer_seconds: float = 20.0
    check_sequences: int = 50
    check_steps: int = 2000
    repeats: int = 7
    judged: bool = True


class Problem(NamedTuple):
    """The sequences and the initial weights of all contestants.

    D = 4, N = 31, eight heads, all blocks trainable, no division by N: the setting of the
    authors of arXiv 2501.16265.
    """

    sequences: Sequences
    model: FullMergedKQ

    @staticmethod
    def make(count: int, scale: float) -> "Problem":
        task = LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)
        sequences = jax.tree.map(np.asarray, task.sample(jr.key(10), count))
        model = FullMergedKQ.init(jr.key(0), 4, 8, scale, normaliser="none")
        return Problem(sequences, model)


@eqx.filter_jit
def bare_scan(risk: AbstractRisk, model: AbstractModel, steps: int) -> Array:
    """The losses of gradient descent as one compiled loop, with nothing around it."""

    def step(model, _):
        loss, gradient = risk.value_and_gradient(model)
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, model, gradient), loss

    return jax.lax.scan(step, model, length=steps)[1]


def engine_losses(problem: Problem, steps: int) -> np.ndarray:
    """The loss at each step through the public API: statistics, then gradient descent."""
    statistics = dataset_risk(problem.sequences, problem.model)
    run = gradient_descent(
        problem.model, statistics, LEARNING_RATE, steps, save=Linear(steps + 1), progress=False
    )
    return run.losses


def finite_data_rows(setting: Setting) -> list[Row]:
    """The engine, its peers, and how closely their losses agree."""
    problem, steps = Problem.make(setting.sequences, 1e-6), setting.steps
    first = measure(lambda: engine_losses(problem, steps), 1)
    statistics = dataset_risk(problem.sequences, problem.model)
    pass_over_data = measure(lambda: dataset_risk(problem.sequences, problem.model), 3)
    save = Linear(steps + 1)
    warm = measure(
        lambda: gradient_descent(
            problem.model, statistics, LEARNING_RATE, steps, save=save, progress=False
        ),
        setting.repeats,
    )
    scan = lambda: jax.block_until_ready(bare_scan(statistics, problem.model, steps))
    scan()
    bare = measure(scan, setting.repeats)
    size = f"P = {setting.sequences}, {steps} steps, loss at each"
    rows = [
        warm.row(GROUP, "ours: gradient_descent, compiled", "ms", note=size),
        bare.row(GROUP, "ours: its bare compiled loop", "ms", note="losses alone, no weights kept"),
        pass_over_data.row(GROUP, "ours: one pass for the statistics", "ms"),
        first.row(GROUP, "ours: first call, with statistics and compilation"),
    ]
    missing = missing_torch()
    if missing is not None:
        names = (EVERY_POSITION, QUERY_POSITION, "losses in float64")
        return rows + [Row(GROUP, name, None, note=missing) for name in names]
    losses = engine_losses(problem, steps)
    bar = lambda limit: Bar(limit, at_least=True) if setting.judged else None
    every = EveryPosition(problem.sequences, problem.model, LEARNING_RATE, "float32")
    slow, seen, words = _timed(every, setting.peer_seconds, steps)
    rows += [
        slow.times(steps).row(GROUP, EVERY_POSITION, note=words),
        slow.times(steps).ratio_row(
            GROUP,
            f"{EVERY_POSITION} ÷ ours, compiled",
            warm,
            bar=bar(50_000),
            note=_agreement(seen, losses),
        ),
        slow.times(steps).ratio_row(GROUP, f"{EVERY_POSITION} ÷ our bare loop", bare),
        slow.times(steps).ratio_row(
            GROUP, f"{EVERY_POSITION} ÷ our first call", first, bar=bar(3_000)
        ),
    ]
    query = QueryPosition(problem.sequences, problem.model, LEARNING_RATE, "float32")
    quick, seen, words = _timed(query, setting.peer_seconds, steps)
    rows += [
        quick.times(steps).row(GROUP, QUERY_POSITION, note=words),
        quick.times(steps).ratio_row(
            GROUP,
            f"{QUERY_POSITION} ÷ ours, compiled",
            warm,
            bar=bar(200),
            note=_agreement(seen, losses),
        ),
        quick.times(steps).ratio_row(GROUP, f"{QUERY_POSITION} ÷ our bare loop", bare),
    ]
    return [*rows, _float64_row(setting)]


def _float64_row(setting: Setting) -> Row:
    """How far apart the losses are when all compute in float64, through the whole drop."""
    problem, steps = Problem.make(setting.check_sequences, 1e-3), setting.check_steps
    ours = engine_losses(problem, steps)
    worst = 0.0
    for loop in (EveryPosition, QueryPosition):
        peer = loop(problem.sequences, problem.model, LEARNING_RATE, "float64")
        losses: list[float] = [peer.step()]
        with _best_threads(peer, losses):
            losses += [peer.step() for _ in range(steps - len(losses))]
        theirs = np.asarray(losses)
        worst = max(worst, float(np.max(np.abs(theirs / ours[:steps] - 1))))
    return Row(
        GROUP,
        "losses in float64: largest relative difference",
        worst,
        bar=Bar(1e-8) if setting.judged else None,
        note=f"both loops, P = {setting.check_sequences}, {steps} steps",
    )


def _timed(loop: Loop, seconds: float, most: int) -> tuple[Timing, np.ndarray, str]:
    """Seconds a step, in up to seven blocks of steps; the losses; and how it was timed.

    The first step, in which memory is allocated, is not timed. The loop gets one thread or all,
    whichever is faster: on small tensors, or beside other programs, threads wait for each other.
    """
    losses = [loop.step()]
    with _best_threads(loop, losses) as threads:
        timings: list[float] = []
        while len(losses) < most and (len(timings) < 3 or sum(timings) < seconds):
            losses.append(_step(loop, timings))
    blocks = np.array_split(np.asarray(timings), min(7, len(timings)))
    timing = Timing(tuple(float(block.mean()) for block in blocks))
    words = f"float32, {threads} threads; {len(timings)} steps timed, {most} extrapolated"
    return timing, np.asarray(losses), words


@contextlib.contextmanager
def _best_threads(loop: Loop, losses: list[float]) -> Iterator[int]:
    """Gives PyTorch the number of threads with which three steps of `loop` are quickest."""
    import torch

    most, trials = torch.get_num_threads(), {}
    for threads in (most, 1):
        torch.set_num_threads(threads)
        timings: list[float] = []
        losses += [_step(loop, timings) for _ in range(3)]
        trials[threads] = min(timings)
    best = min(trials, key=lambda threads: trials[threads])
    torch.set_num_threads(best)
    try:
        yield best
    finally:
        torch.set_num_threads(most)


def _step(loop: Loop, timings: list[float]) -> float:
    start = time.perf_counter()
    loss = loop.step()
    timings.append(time.perf_counter() - start)
    return loss


def _agreement(seen: np.ndarray, losses: np.ndarray) -> str:
    difference = np.max(np.abs(seen / losses[: len(seen)] - 1))
    return f"losses agree to {difference:.0e} (float32)"

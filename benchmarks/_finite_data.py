"""Full-batch training on a finite data set: sufficient statistics against PyTorch loops."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array

from iclflow.flows import SaveEvenly, gradient_descent
from iclflow.models import AbstractModel, Attention
from iclflow.risks import AbstractRisk, dataset_risk
from iclflow.tasks import LinearRegression, Sequences
from iclflow.trajectory import Trajectory

from ._loops import EveryPosition, QueryPosition, time_loop
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
    - `repeats`: of what is ours, in each of three rounds.
    - `judged`: whether these are the sizes that the bars are about.
    """

    sequences: int = 5000
    steps: int = 6001
    peer_seconds: float = 20.0
    check_sequences: int = 50
    check_steps: int = 2000
    repeats: int = 5
    judged: bool = True


class Problem(NamedTuple):
    """The sequences and the initial weights of all contestants.

    D = 4, N = 31, eight heads, all blocks trainable, no division by N: the setting of the
    authors of arXiv 2501.16265.
    """

    sequences: Sequences
    model: Attention

    @staticmethod
    def make(count: int, scale: float) -> "Problem":
        task = LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)
        sequences = jax.tree.map(np.asarray, task.sample(jr.key(10), count))
        model = Attention.merged(jr.key(0), 4, 8, scale, normaliser="none", blind=False)
        return Problem(sequences, model)


@eqx.filter_jit
def bare_scan(risk: AbstractRisk, model: AbstractModel, steps: int) -> Array:
    """The losses of gradient descent as one compiled loop, with nothing around it."""

    def step(model, _):
        loss, gradient = risk.value_and_gradient(model)
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, model, gradient), loss

    return jax.lax.scan(step, model, length=steps)[1]


class Engine:
    """Our side, timed in rounds before, between and after the peers, so that a machine that is
    busy for a while is busy for both sides."""

    def __init__(self, problem: Problem, setting: Setting):
        self._problem, self._steps, self._repeats = problem, setting.steps, setting.repeats
        self._full: list[float] = []
        self._bare: list[float] = []
        self.first = measure(lambda: engine_losses(problem, setting.steps), 1)
        self.one_pass = measure(lambda: dataset_risk(problem.sequences, problem.model), 3)
        self._risk = dataset_risk(problem.sequences, problem.model)
        self.losses = np.asarray(self._scan())

    @property
    def full(self) -> Timing:
        return Timing(tuple(self._full))

    @property
    def bare(self) -> Timing:
        return Timing(tuple(self._bare))

    def round(self) -> None:
        """Times everything that is compiled once more."""
        run = lambda: _descend(self._problem.model, self._risk, self._steps)
        self._full += measure(run, self._repeats).seconds
        self._bare += measure(self._scan, self._repeats).seconds

    def rows(self, note: str) -> list[Row]:
        return [
            self.full.row(GROUP, "ours: gradient_descent, compiled", "ms", note=note),
            self.bare.row(GROUP, "ours: its bare loop, compiled", "ms", note="keeps no weights"),
            self.one_pass.row(GROUP, "ours: one pass for the statistics", "ms"),
            self.first.row(GROUP, "ours: first call, with statistics and compilation"),
        ]

    def _scan(self) -> Array:
        return jax.block_until_ready(bare_scan(self._risk, self._problem.model, self._steps))


def engine_losses(problem: Problem, steps: int) -> np.ndarray:
    """The loss at each step through the public API: statistics, then gradient descent."""
    return _descend(problem.model, dataset_risk(problem.sequences, problem.model), steps).losses


def finite_data_rows(setting: Setting) -> list[Row]:
    """The engine, its peers, and how closely their losses agree."""
    problem, steps = Problem.make(setting.sequences, 1e-6), setting.steps
    engine = Engine(problem, setting)
    engine.round()
    note = f"P = {setting.sequences}, {steps} steps, loss at each"
    missing = missing_torch()
    if missing is not None:
        names = (EVERY_POSITION, QUERY_POSITION, "losses in float64")
        return engine.rows(note) + [Row(GROUP, name, None, note=missing) for name in names]
    peers = {}
    for name, loop in ((EVERY_POSITION, EveryPosition), (QUERY_POSITION, QueryPosition)):
        peer = loop(problem.sequences, problem.model, LEARNING_RATE, "float32")
        peers[name] = time_loop(peer, setting.peer_seconds, steps)
        engine.round()
    bars = {EVERY_POSITION: (50_000, 3_000), QUERY_POSITION: (200, None)}
    rows = engine.rows(note)
    for name, timed in peers.items():
        compiled, first = (
            Bar(limit, at_least=True) if limit and setting.judged else None for limit in bars[name]
        )
        whole, words = timed.timing.times(steps), timed.words
        difference = np.max(np.abs(timed.losses / engine.losses[: len(timed.losses)] - 1))
        agreement = f"losses agree to {difference:.0e}"
        ratio = lambda against, ours, **fields: whole.ratio_row(
            GROUP, f"{name} ÷ {against}", ours, **fields
        )
        rows += [
            whole.row(GROUP, name, note=f"float32, {words}, {steps} extrapolated"),
            ratio("ours, compiled", engine.full, bar=compiled, note=agreement),
            ratio("our bare loop, compiled", engine.bare),
            ratio("our first call", engine.first, bar=first),
        ]
    return [*rows, _float64_row(setting)]


def _descend(model: AbstractModel, risk: AbstractRisk, steps: int) -> Trajectory:
    save = SaveEvenly(steps + 1)
    return gradient_descent(model, risk, LEARNING_RATE, steps, save=save, progress=False)


def _float64_row(setting: Setting) -> Row:
    """How far apart the losses are when all compute in float64, through the whole drop."""
    problem, steps = Problem.make(setting.check_sequences, 1e-3), setting.check_steps
    ours = engine_losses(problem, steps)
    worst = 0.0
    for loop in (EveryPosition, QueryPosition):
        peer = loop(problem.sequences, problem.model, LEARNING_RATE, "float64")
        theirs = time_loop(peer, float("inf"), steps).losses
        worst = max(worst, float(np.max(np.abs(theirs / ours[:steps] - 1))))
    return Row(
        GROUP,
        "losses in float64: largest relative difference",
        worst,
        bar=Bar(1e-8) if setting.judged else None,
        note=f"both loops, P = {setting.check_sequences}, {steps} steps",
    )

"""The benchmark of few tasks and finite data: `make bench ARGS=diversity`.

The phase diagram of the ICL error over K and n, D = 40: from theory, from data, and by a PyTorch
loop on stored sequences.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from iclflow.models import Attention
from iclflow.papers.diversity.runs_data import Point, draw, draw_tasks, fit, losses, white_law
from iclflow.tasks import FiniteTasks
from iclflow.theory import diversity

from ._loops import EveryPosition, time_loop
from ._machine import missing_torch
from ._row import Bar, Row, Timing, measure
from ._suite import report

GROUP = "phase diagram of the ICL error over K and n"
# A loop of gradient descent has converged when A is within 1 % of its end. (Its ICL error comes
# near that of the end twice: it is smaller in between.)
_CLOSE, _MOST = 0.01, 100_000


class Setting(NamedTuple):
    """The diagram, every `stride`-th row and column of which is trained and the rest extrapolated;
    and for how long the peer is timed."""

    dim: int = 40
    points: int = 40
    stride: int = 3
    peer_seconds: float = 20.0
    judged: bool = True

    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """K from D/20 to 2D, and n from D²/10 to 4D²; no n is D²."""
        counts = np.unique(
            np.linspace(self.dim / 20, 2 * self.dim, self.points).round().astype(int)
        )
        sequences = np.geomspace(self.dim**2 / 10, 4 * self.dim**2, self.points).round().astype(int)
        return np.maximum(counts, 1), sequences + (sequences == self.dim**2)


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Measures everything; with `quick` at tiny sizes and without bars."""
    at = Setting(6, 5, 2, 0.0, False) if quick else Setting()
    say = progress or (lambda title: None)
    say("the diagram from theory")
    theory = measure(lambda: diagram(at), 1 if quick else 3)
    say("the diagram from data")
    single = trained_points(at)
    whole = Timing((float(np.mean(single)) * at.points**2,))
    bar = lambda limit, **kind: Bar(limit, **kind) if at.judged else None
    note = f"{len(single)} of {at.points**2} points, the rest extrapolated"
    rows = [
        theory.row(GROUP, "ours: theory", bar=bar(5)),
        whole.row(GROUP, "ours: trained on drawn data to the end", bar=bar(600), note=note),
    ]
    missing = missing_torch()
    if missing is not None:
        return [*rows, Row(GROUP, "PyTorch ÷ ours, trained", None, note=missing)]
    say("the loop in PyTorch")
    middle = Point(at.dim, at.dim, at.dim, 2 * at.dim**2, 0.1)
    peer, steps = step_of_peer(middle, at.peer_seconds), steps_needed(middle)
    # A step takes a time in proportion to n.
    mean = float(at.axes()[1].mean()) / middle.sequences
    slow = peer.times(steps * mean * at.points**2)
    note = f"{steps} steps at K = D, n = 2D²; as many at every point, in proportion to n"
    return [
        *rows,
        peer.row(GROUP, "PyTorch: a step at n = 2D²", "ms"),
        slow.ratio_row(
            GROUP, "PyTorch ÷ ours, trained", whole, bar=bar(1000, at_least=True), note=note
        ),
    ]


def diagram(at: Setting) -> np.ndarray:
    """ICL errors of theory at every point."""
    counts, sequences = at.axes()
    law, rng = white_law(Point(at.dim, at.dim, 1, 1, 0.1)), np.random.default_rng(0)
    sets = [diversity.with_tasks(law, draw_tasks(rng, int(k), at.dim)) for k in counts]
    return diversity.phase_diagram(sets, sequences, law)


def trained_points(at: Setting) -> np.ndarray:
    """Seconds for each point of a part of the diagram: data are drawn, A is trained on them by
    conjugate gradients to where gradient flow ends from zero, and tested."""
    counts, sequences = at.axes()
    rng, seconds = np.random.default_rng(0), []
    for k in counts[:: at.stride]:
        for n in sequences[:: at.stride]:
            point = Point(at.dim, at.dim, int(k), int(n), 0.1)
            rows = draw_tasks(rng, point.tasks, at.dim)
            train = lambda: losses(fit(draw(rng, rows, point)), rows, point)
            seconds += measure(train, 1).seconds
    return np.array(seconds)


def steps_needed(at: Point) -> int:
    """How many steps of gradient descent on A, at half of the largest stable rate, bring it within
    1 % of its end."""
    rng = np.random.default_rng(1)
    rows = draw_tasks(rng, at.tasks, at.dim)
    data = draw(rng, rows, at)
    beta, x, y = data
    end, A = fit(data), np.zeros((at.dim, at.dim))
    direction = rng.standard_normal(A.shape)
    for _ in range(50):  # the largest eigenvalue of the curvature, by powers
        direction = beta.T @ (np.sum((beta @ direction) * x, 1)[:, None] * x) / at.sequences
        curvature = float(np.linalg.norm(direction))
        direction /= curvature
    for step in range(1, _MOST):
        A += beta.T @ ((y - np.sum((beta @ A) * x, 1))[:, None] * x) / (at.sequences * curvature)
        if np.linalg.norm(A - end) < _CLOSE * np.linalg.norm(end):
            return step
    return _MOST


def step_of_peer(at: Point, seconds: float) -> Timing:
    """A step of gradient descent on stored sequences with attention at every position."""
    law = white_law(at)
    task = FiniteTasks(draw_tasks(np.random.default_rng(2), at.tasks, at.dim), law)
    sequences = jax.tree.map(np.asarray, task.sample(jr.key(0), at.sequences))
    model = Attention.merged(jr.key(1), at.dim, 1, 1e-3, normaliser="none", blind=False)
    loop = EveryPosition(sequences, model, 1e-6, "float32")
    return time_loop(loop, seconds, 1000).timing


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("diversity", run, quiet, quick)

"""A stack of linear attention: exact gradient flow, and a loop on sampled tokens beside it."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from iclflow.flows import gradient_flow, gradient_flow_ensemble
from iclflow.models import DiagonalStack, ScalarStack
from iclflow.risks import risk
from iclflow.tasks import LinearRegression
from iclflow.trajectory import Trajectory

from ._loops import AbstractLoop, best_threads
from ._row import Bar, Row, Timing, measure

GROUP = "two layers, to the end of training"
# How near to the smallest loss a run must end, as a share of that loss.
ACCURACY = 1e-3
_DIM, _LENGTH, _BATCH, _RATE = 5, 20, 256, 0.02
# Steps between two looks at the loss.
_BETWEEN = 25


def stack_rows(repeats: int, steps: int, judged: bool) -> list[Row]:
    """Seconds of the flow, and of steps in PyTorch until their loss is as near to the smallest.

    **Arguments:**

    - `steps`: the most that the loop takes.
    """
    task, model = _task(), _model()
    known = risk(task, model)
    floor = float(np.asarray(known.floor(model)))
    first = measure(lambda: _flow(), 1)
    warm = measure(lambda: _flow(), repeats)
    missed = float(_flow().losses[-1]) / floor - 1
    note = f"D = {_DIM}, N = {_LENGTH}, L = 2, white inputs, no noise, one number a layer"
    near = Bar(ACCURACY) if judged else None
    rows = [
        warm.row(GROUP, "gradient_flow, compiled", "ms", note=note),
        first.row(GROUP, "first call, with compilation"),
        Row(GROUP, "gradient_flow: end loss above the smallest, relative", missed, bar=near),
    ]
    return rows + _peer_rows(warm, floor, steps, judged)


def _peer_rows(ours: Timing, floor: float, steps: int, judged: bool) -> list[Row]:
    name = "Adam on sampled tokens in PyTorch"
    try:
        loop = TokenLoop(_task(), _model())
    except ImportError:
        return [Row(GROUP, name, None, note="PyTorch is not installed")]
    known = risk(_task(), _model())
    seconds, losses = 0.0, [loop.step()]
    with best_threads(loop, losses) as threads:
        # The trial of threads has trained it already: from the start again.
        loop, taken, missed = TokenLoop(_task(), _model()), 0, np.inf
        while missed > ACCURACY and taken < steps:
            start = time.perf_counter()
            for _ in range(_BETWEEN):
                loop.step()
            seconds += time.perf_counter() - start
            taken += _BETWEEN
            # Judged by the exact loss of its weights, not timed: by samples it would take longer.
            layers = ScalarStack(jnp.asarray(loop.steps), _DIM, 2)
            missed = float(known(layers)) / floor - 1
    if missed > ACCURACY:
        words = f"{missed:.2g} above the smallest loss after {taken} steps"
        return [Row(GROUP, name, None, note=words)]
    peer = Timing((seconds,))
    tokens = f"{_BATCH} sequences, each of {_LENGTH + 1} tokens"
    note = f"{taken} steps of {tokens}, float64, {threads} threads"
    bar = Bar(1000.0, at_least=True) if judged else None
    return [
        peer.row(GROUP, name, note=note),
        peer.ratio_row(GROUP, f"{name}: times as long", ours, bar=bar),
    ]


SIZES = "exact flows of stacks, compiled"


def stack_flow_rows(repeats: int, judged: bool) -> list[Row]:
    """Seconds of exact flows at the sizes that are promised; tiny ones where nothing is judged.

    They end by themselves, or, where no smallest loss is known, after a long time.
    """
    depth, dim, starts = (8, 64, 1000) if judged else (3, 4, 10)
    wide = _task(dim, 4 * dim)
    deep = ScalarStack.init(jr.key(0), dim, depth, 1e-2, "small_identity", spread=5e-3)
    exact = risk(wide, deep)
    layers, inputs = (4, 8) if judged else (2, 3)
    values = np.linspace(0.2, 0.05, inputs)
    task = LinearRegression(values / values.sum(), 31, noisy_query=False)
    diagonal = DiagonalStack.init(jr.key(0), inputs, layers, 1e-2)
    table = risk(task, diagonal)
    draw = lambda key: ScalarStack.init(key, _DIM, 3, 0.3)
    many, one = jax.vmap(draw)(jr.split(jr.key(0), starts)), draw(jr.key(0))
    three = risk(_task(), one)
    flows: dict[str, tuple[Callable[[], object], float]] = {
        f"white inputs, L = {depth}, D = {dim}": (
            lambda: gradient_flow(deep, exact, progress=False), 1.0
        ),
        f"diagonal layers, L = {layers}, D = {inputs}": (
            lambda: gradient_flow(diagonal, table, end=1e5, progress=False), 5.0
        ),
        f"{starts} starts, white inputs, L = 3": (
            lambda: gradient_flow_ensemble(many, three, end=200.0, progress=False), 20.0
        ),
    }  # fmt: skip
    rows = []
    for name, (flow, limit) in flows.items():
        flow()
        bar = Bar(limit) if judged else None
        rows.append(measure(flow, repeats).row(SIZES, name, bar=bar))
    return rows


class TokenLoop(AbstractLoop):
    """Adam on fresh sequences: two masked layers of attention on tokens (x; y) and (x_q; 0)."""

    def __init__(self, task: LinearRegression, model: ScalarStack):
        import torch  # pyright: ignore[reportMissingImports]

        self._torch, self._dim, self._length = torch, task.dim, task.max_context
        self._generator = torch.Generator().manual_seed(0)
        start = torch.tensor(np.asarray(model.gamma), dtype=torch.float64)
        # A matrix for each layer, as attention has one; it starts as the number times identity.
        eye = torch.eye(task.dim, dtype=torch.float64)
        self._gamma = start.clone().requires_grad_()
        self._eye = eye
        self._optimiser = torch.optim.Adam([self._gamma], lr=_RATE)

    @property
    def steps(self) -> np.ndarray:
        """γ_l."""
        return self._gamma.detach().numpy().copy()

    def step(self) -> float:
        """One step on a batch of its own; the loss before it."""
        torch = self._torch
        draw = lambda *shape: torch.randn(*shape, generator=self._generator, dtype=torch.float64)
        weights = draw(_BATCH, self._dim, 1) / self._dim**0.5
        x = draw(_BATCH, self._length + 1, self._dim)
        y = x @ weights
        wanted = y[:, -1, 0]
        left = torch.cat([y[:, :-1], torch.zeros(_BATCH, 1, 1, dtype=torch.float64)], 1)
        self._optimiser.zero_grad()
        for gamma in self._gamma:
            # Every position attends to the context.
            scores = x @ (gamma * self._eye) @ x[:, :-1].transpose(1, 2)
            left = left - scores @ left[:, :-1] / self._length
        loss = ((wanted + left[:, -1, 0]) ** 2).mean()
        loss.backward()
        self._optimiser.step()
        return loss.item()


def _task(dim: int = _DIM, context: int = _LENGTH) -> LinearRegression:
    prior = np.eye(dim) / dim
    return LinearRegression(np.ones(dim), context, prior_covariance=prior, noisy_query=False)


def _model() -> ScalarStack:
    return ScalarStack.init(jr.key(0), _DIM, 2, 1e-2, "small_identity", spread=5e-3)


def _flow() -> Trajectory:
    model = _model()
    return gradient_flow(model, risk(_task(), model), tolerance=ACCURACY / 20, progress=False)

"""The peers: full-batch training loops in eager PyTorch, as a user would write them."""

import abc
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from iclflow.models import Attention
from iclflow.tasks import Sequences

from ._row import Timing


class AbstractLoop(abc.ABC):
    """A training loop that has stopped between two steps."""

    @abc.abstractmethod
    def step(self) -> float:
        """One step of gradient descent; the loss before it."""


class EveryPosition(AbstractLoop):
    """Attention from every position to every position, then the loss at the last one.

    This is how attention layers are written, and how the public code of arXiv 2501.16265 trains
    this model: no division by the context length, mean squared error, plain SGD.
    """

    def __init__(self, sequences: Sequences, model: Attention, learning_rate: float, dtype: str):
        import torch  # pyright: ignore[reportMissingImports]

        torch_dtype = getattr(torch, dtype)
        circuits = model.circuits
        heads, token, dim = circuits.key_query.shape
        query = np.pad(np.asarray(sequences.x_query), ((0, 0), (0, 1)))
        pairs = np.concatenate([sequences.x, sequences.y], -1)
        tokens = np.concatenate([pairs, query[:, None]], 1)
        self._tokens = torch.tensor(tokens, dtype=torch_dtype)
        self._labels = torch.tensor(np.asarray(sequences.y_query)[:, 0], dtype=torch_dtype)
        self._heads = heads
        # Of a token-by-token matrix the model keeps what the query position reads; the rest is
        # never read and gets no gradient, but it is multiplied all the same.
        key_query = np.zeros((heads, token, token))
        key_query[:, :dim] = np.asarray(circuits.key_query).transpose(0, 2, 1)
        value = np.zeros((heads, token, token))
        value[:, -1] = circuits.value[:, 0]
        self._layers = [
            _linear(torch, w.reshape(-1, token), torch_dtype) for w in (key_query, value)
        ]
        weights = [layer.weight for layer in self._layers]
        self._optimiser = torch.optim.SGD(weights, lr=learning_rate)

    def step(self) -> float:
        self._optimiser.zero_grad()
        keys, values = (self._split(layer(self._tokens)) for layer in self._layers)
        scores = self._tokens[:, None] @ keys.transpose(-1, -2)
        output = (scores @ values).sum(1)
        loss = ((self._labels - output[:, -1, -1]) ** 2).mean()
        loss.backward()
        self._optimiser.step()
        return loss.item()

    def _split(self, projected):
        batch, length, _ = projected.shape
        return projected.view(batch, length, self._heads, -1).transpose(1, 2)


class QueryPosition(AbstractLoop):
    """The prediction at the query alone, from G = Σ z zᵀ, which is computed once."""

    def __init__(self, sequences: Sequences, model: Attention, learning_rate: float, dtype: str):
        import torch  # pyright: ignore[reportMissingImports]

        torch_dtype = getattr(torch, dtype)
        tensor = lambda array: torch.tensor(np.asarray(array), dtype=torch_dtype)
        pairs = np.concatenate([sequences.x, sequences.y], -1)
        query = np.pad(np.asarray(sequences.x_query), ((0, 0), (0, 1)))
        gram = pairs.transpose(0, 2, 1) @ pairs + query[:, :, None] * query[:, None, :]
        self._gram, self._query = tensor(gram), tensor(sequences.x_query)
        self._labels = tensor(sequences.y_query[:, 0])
        self._value = tensor(model.circuits.value[:, 0]).requires_grad_()
        self._key_query = tensor(model.circuits.key_query).requires_grad_()
        self._optimiser = torch.optim.SGD([self._value, self._key_query], lr=learning_rate)
        self._einsum = torch.einsum

    def step(self) -> float:
        self._optimiser.zero_grad()
        values = self._einsum("ha,pab->phb", self._value, self._gram)
        scores = self._einsum("hbc,pc->phb", self._key_query, self._query)
        loss = ((self._labels - (values * scores).sum((1, 2))) ** 2).mean()
        loss.backward()
        self._optimiser.step()
        return loss.item()


class Timed(NamedTuple):
    """Seconds a step (the mean of each of up to seven blocks), the losses, and how it was done."""

    timing: Timing
    losses: np.ndarray
    words: str


def time_loop(loop: AbstractLoop, seconds: float, most: int) -> Timed:
    """Times the steps of a loop until `seconds` have passed or `most` steps are done.

    The first step, in which memory is allocated, is not timed. The loop gets one thread or all,
    whichever is faster: on small tensors, or beside other programs, threads wait for each other.
    """
    losses = [loop.step()]
    with best_threads(loop, losses) as threads:
        timings: list[float] = []
        while len(losses) < most and (len(timings) < 3 or sum(timings) < seconds):
            losses.append(_step(loop, timings))
    blocks = np.array_split(np.asarray(timings), min(7, len(timings)))
    timing = Timing(tuple(float(block.mean()) for block in blocks))
    words = f"{threads} threads; {len(timings)} steps timed"
    return Timed(timing, np.asarray(losses), words)


@contextlib.contextmanager
def best_threads(loop: AbstractLoop, losses: list[float]) -> Iterator[int]:
    """Gives PyTorch the number of threads with which steps of `loop` are quickest in a trial."""
    import torch  # pyright: ignore[reportMissingImports]

    most, trials = torch.get_num_threads(), {}
    for threads in (most, 1):
        torch.set_num_threads(threads)
        timings: list[float] = []
        while len(timings) < 3 or (sum(timings) < 1 and len(timings) < 10):
            losses.append(_step(loop, timings))
        trials[threads] = statistics.median(timings)
    best = min(trials, key=lambda threads: trials[threads])
    torch.set_num_threads(best)
    try:
        yield best
    finally:
        torch.set_num_threads(most)


def _step(loop: AbstractLoop, timings: list[float]) -> float:
    start = time.perf_counter()
    loss = loop.step()
    timings.append(time.perf_counter() - start)
    return loss


def _linear(torch: Any, weight: np.ndarray, dtype: Any) -> Any:
    rows, columns = weight.shape
    layer = torch.nn.Linear(columns, rows, bias=False, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight, dtype=dtype))
    return layer

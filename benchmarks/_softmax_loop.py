"""The peer: a training loop of softmax attention in PyTorch, as a user would write it."""

import math
import time
from functools import cached_property
from typing import Any

import numpy as np

from iclflow.models import Attention
from iclflow.tasks import Sequences

from ._row import Timing, measure


class TorchLoop:
    """Adam on fresh batches, in float32: linear layers for queries, keys, values and outputs,
    attention from the query to the context, the loss at the query's label.

    **Arguments:**

    - `model`: whose weights to start from.
    - `batch`, `context`, `noise`: as in `SampledRisk` on `isotropic`.
    - `device`: of PyTorch, `"cpu"` or `"cuda"`.
    - `compiled`: whether drawing, loss and gradient go through `torch.compile`, on a GPU as one
      recorded graph, and Adam is PyTorch's fused one.
    """

    def __init__(
        self,
        model: Attention,
        batch: int,
        context: int,
        noise: float,
        learning_rate: float,
        device: str,
        compiled: bool = False,
    ):
        import torch  # pyright: ignore[reportMissingImports]

        self._torch: Any = torch
        self._device = torch.device(device)
        self._batch, self._context, self._noise = batch, context, noise
        circuits = model.circuits
        self._heads, self._width, token = circuits.K.shape
        self._dim = token - 1
        self.threads = 1
        output = np.zeros((token, self._heads * self._width))
        output[-1] = np.asarray(circuits.O).reshape(-1)  # the label; no other row is read
        flat = {name: np.asarray(getattr(circuits, name)).reshape(-1, token) for name in "QKV"}
        self.layers: Any = torch.nn.ModuleDict()
        for name, weight in {**flat, "O": output}.items():
            self.layers[name] = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            self.layers[name].weight.data = torch.tensor(weight, dtype=torch.float32)
        self.layers.to(self._device)
        self._optimiser = torch.optim.Adam(
            self.layers.parameters(), lr=learning_rate, fused=True if compiled else None
        )
        self.name = f"PyTorch, {'compiled' if compiled else 'eager'}"
        self._fresh_loss: Any = self.fresh_loss
        if compiled:
            mode = "reduce-overhead" if device == "cuda" else "default"
            self._fresh_loss = torch.compile(self.fresh_loss, mode=mode)

    @cached_property
    def first(self) -> Timing:
        """Of the first step, in which PyTorch compiles, where it does."""
        return measure(self.step, 1)

    def step(self) -> None:
        """Draws a batch, and moves the weights."""
        self._optimiser.zero_grad()
        self._fresh_loss().backward()
        self._optimiser.step()

    def fresh_loss(self) -> Any:
        """The loss on sequences that nobody has seen."""
        torch, options = self._torch, {"device": self._device}
        size = (self._batch, self._context + 1)
        x = torch.randn(*size, self._dim, **options)
        w = torch.randn(self._batch, self._dim, 1, **options) / math.sqrt(self._dim)
        y = x @ w + math.sqrt(self._noise) * torch.randn(*size, 1, **options)
        return self.loss(x, y)

    def loss(self, x, y) -> Any:
        """The mean squared error; the last position is the query, its label the target."""
        torch, layers = self._torch, self.layers
        tokens = torch.cat([x, y], -1)
        query = torch.cat([x[:, -1:], torch.zeros_like(y[:, -1:])], -1)
        context = tokens[:, :-1]
        queries, keys, values = (
            self._split(layers[name](read))
            for name, read in (("Q", query), ("K", context), ("V", context))
        )
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(self._width)
        heads = torch.softmax(scores, -1) @ values
        output = layers["O"](heads.transpose(1, 2).reshape(len(x), -1))
        return ((output[:, -1] - y[:, -1, 0]) ** 2).mean()

    def gradients(self, sequences: Sequences) -> dict[str, np.ndarray]:
        """The gradient of each layer on these sequences."""
        join = lambda context, query: np.concatenate([context, np.asarray(query)[:, None]], 1)
        x, y = join(sequences.x, sequences.x_query), join(sequences.y, sequences.y_query)
        tensor = lambda a: self._torch.tensor(a, dtype=self._torch.float32, device=self._device)
        self._optimiser.zero_grad()
        self.loss(tensor(x), tensor(y)).backward()
        return {name: layer.weight.grad.cpu().numpy() for name, layer in self.layers.items()}

    def _split(self, projected):
        batch, length, _ = projected.shape
        return projected.view(batch, length, self._heads, self._width).transpose(1, 2)

    def timed(self, seconds: float, blocks: int = 3) -> Timing:
        """Seconds a step, from blocks of steps, each waited for once, at its end.

        On a CPU PyTorch gets one thread or all, whichever makes steps quicker in a trial.
        """
        most = self._torch.get_num_threads()
        self._block(10)  # memory is allocated, kernels are loaded
        trials = {}
        for threads in {most, 1} if self._device.type == "cpu" else {most}:
            self._torch.set_num_threads(threads)
            trials[threads] = min(self._block(10) / 10 for _ in range(3))
        self.threads = min(trials, key=lambda threads: trials[threads])
        self._torch.set_num_threads(self.threads)
        size = max(1, math.ceil(seconds / blocks / trials[self.threads]))
        try:
            return Timing(tuple(self._block(size) / size for _ in range(blocks)))
        finally:
            self._torch.set_num_threads(most)

    def _block(self, steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()
        return time.perf_counter() - start

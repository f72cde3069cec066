"""The peers: full-batch training loops in eager PyTorch, as a user would write them."""

from typing import Any, Protocol

import numpy as np

from ..models import FullMergedKQ
from ..tasks import Sequences


class Loop(Protocol):
    """A training loop that has stopped between two steps."""

    def step(self) -> float:
        """One step of gradient descent; the loss before it."""
        ...


class EveryPosition:
    """Attention from every position to every position, then the loss at the last one.

    This is how attention layers are written, and how the public code of arXiv 2501.16265 trains
    this model: no division by the context length, mean squared error, plain SGD.
    """

    def __init__(self, sequences: Sequences, model: FullMergedKQ, learning_rate: float, dtype: str):
        import torch

        torch_dtype = getattr(torch, dtype)
        heads, token, dim = model.key_query.shape
        query = np.pad(np.asarray(sequences.x_query), ((0, 0), (0, 1)))
        pairs = np.concatenate([sequences.x, np.asarray(sequences.y)[..., None]], -1)
        tokens = np.concatenate([pairs, query[:, None]], 1)
        self._tokens = torch.tensor(tokens, dtype=torch_dtype)
        self._labels = torch.tensor(np.asarray(sequences.y_query), dtype=torch_dtype)
        self._heads = heads
        # Of a token-by-token matrix the model keeps what the query position reads; the rest is
        # never read and gets no gradient, but it is multiplied all the same.
        key_query = np.zeros((heads, token, token))
        key_query[:, :dim] = np.asarray(model.key_query).transpose(0, 2, 1)
        value = np.zeros((heads, token, token))
        value[:, -1] = model.value
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


class QueryPosition:
    """The prediction at the query alone, from G = Σ z zᵀ, which is computed once."""

    def __init__(self, sequences: Sequences, model: FullMergedKQ, learning_rate: float, dtype: str):
        import torch

        torch_dtype = getattr(torch, dtype)
        tensor = lambda array: torch.tensor(np.asarray(array), dtype=torch_dtype)
        pairs = np.concatenate([sequences.x, np.asarray(sequences.y)[..., None]], -1)
        query = np.pad(np.asarray(sequences.x_query), ((0, 0), (0, 1)))
        gram = pairs.transpose(0, 2, 1) @ pairs + query[:, :, None] * query[:, None, :]
        self._gram, self._query = tensor(gram), tensor(sequences.x_query)
        self._labels = tensor(sequences.y_query)
        self._value = tensor(model.value).requires_grad_()
        self._key_query = tensor(model.key_query).requires_grad_()
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


def _linear(torch: Any, weight: np.ndarray, dtype: Any) -> Any:
    rows, columns = weight.shape
    layer = torch.nn.Linear(columns, rows, bias=False, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight, dtype=dtype))
    return layer

"""Plain functions as models: what anybody's code predicts."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InputError
from ..models import AbstractModel
from ..tasks import Sequences


class Function(AbstractModel):
    """A function of (x, y, x_query) as a model that cannot be trained.

    It is called with NumPy arrays: x (n, N, D), y (n, N) or, for several labels, (n, N, I), x_query
    (n, D). It returns an array of any library, (n,) or (n, I), or that at every position, (n, N+1)
    or (n, N+1, I), of which the last is taken. Contexts of different lengths come one length at a
    time, without padding.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    @property
    def labels(self) -> int:
        return self.outputs

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The predicted query labels of each sequence."""
        parts = (sequences.x, sequences.y, sequences.x_query, sequences.length)
        x, y, query, length = map(np.asarray, parts)
        found = np.empty((len(x), self.outputs))
        for each in np.unique(length):
            rows, pairs = length == each, int(each)
            labels = y[rows, :pairs, 0] if self.outputs == 1 else y[rows, :pairs]
            found[rows] = self._call(x[rows, :pairs], labels, query[rows])
        return jnp.asarray(found)

    def _call(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
        raw: Any = self.function(x, y, query)
        if hasattr(raw, "detach"):  # a tensor of PyTorch, on any device
            raw = raw.detach().cpu()
        array, count = np.asarray(raw, float), len(x)
        ranks = (2, 3) if self.outputs == 1 else (3,)
        everywhere = array.ndim in ranks and array.shape[1] == x.shape[1] + 1
        last = array[:, -1] if everywhere else array
        if last.shape not in ((count, self.outputs), (count,) * (self.outputs == 1)):
            shape = (count,) if self.outputs == 1 else (count, self.outputs)
            raise InputError(
                "model", problem=f"returned the shape {array.shape}", allowed=f"must return {shape}"
            )
        return last.reshape(count, self.outputs)


def as_model(model: Any, labels: int) -> AbstractModel:
    """A model as it is; a function of (x, y, x_query) as one that predicts so many labels."""
    if isinstance(model, AbstractModel):
        return model
    if not callable(model):
        raise InputError("model", model, "must be a model or a function of (x, y, x_query)")
    return Function(model, labels)

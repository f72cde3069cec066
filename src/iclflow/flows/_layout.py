"""The weights of a model as one vector, and back."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel


class Layout(eqx.Module):
    """The order of a model's weights in a vector.

    A solver is fastest on one array. The structure and the shapes are static and hashable, so that
    models of one shape share one compiled program.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> layout = icl.flows.Layout.of(model)
    >>> same = layout.model(layout.vector(model))
    >>> layout.size, jnp.array_equal(same.circuits.value, model.circuits.value).item()
    (20, True)
    ```
    """

    rest: Any
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(model: AbstractModel) -> "Layout":
        weights, rest = eqx.partition(model, eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(weights)
        return Layout(rest, structure, tuple(leaf.shape for leaf in leaves))

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, model: AbstractModel) -> Float[Array, " n"]:
        """The weights of `model`, or a gradient of its shape, as one vector."""
        weights = eqx.filter(model, eqx.is_inexact_array)
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(weights)])

    def vectors(self, models: AbstractModel) -> np.ndarray:
        """The weights of one model, or of stacked models, one row per model."""
        # In NumPy: JAX would compile each of these operations.
        leaves = jax.tree.leaves(eqx.filter(models, eqx.is_inexact_array))
        rows = [np.asarray(x).reshape(-1, math.prod(s)) for x, s in zip(leaves, self.shapes)]
        return np.concatenate(rows, axis=1)

    def model(self, vector: Float[Array, " n"]) -> AbstractModel:
        """The model with these weights."""
        return eqx.combine(self._split(vector), self.rest)

    def models(self, vectors: np.ndarray) -> AbstractModel:
        """The models with these weights, stacked, in NumPy."""
        # Arrays that are not weights are the same for all models.
        rest = jax.tree.map(
            lambda x: np.broadcast_to(x, (len(vectors), *x.shape)) if eqx.is_array(x) else x,
            self.rest,
        )
        return eqx.combine(self._split(vectors), rest)

    def _split(self, vectors: Float[Array, "*rows n"] | Float[np.ndarray, "*rows n"]) -> Any:
        leaves, offset = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            part = vectors[..., offset : offset + size]
            leaves.append(part.reshape(*vectors.shape[:-1], *shape))
            offset += size
        return jax.tree.unflatten(self.structure, leaves)

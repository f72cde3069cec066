"""Several regression tasks in one sequence, each with its own label and its own coordinates."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..errors import InputError
from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import Lengths, check_array, check_contexts, check_flag, is_whole
from ._draw import draw_sequences
from ._linear_regression import LinearRegression, white_regression
from ._regression import AbstractRegression

# How far R Rᵀ may be from the identity: a rotation in single precision is within it.
_ORTHOGONAL_TOLERANCE = 1e-6


class MultiTaskRegression(AbstractRegression):
    """Inputs x ~ N(0, I); task i reads the coordinates S_i: y_i = β_i·x_{S_i} + ε_i.

    β_i ~ N(0, λ_i I) and Var ε_i = σ_i². Coordinate sets may have any size, and overlap
    (arXiv 2503.12734) or be disjoint blocks (arXiv 2402.19442). With a rotation R of the inputs
    tokens hold Rx, which hides the coordinates; with a rotation P of the labels they hold Py, which
    hides the tasks.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3, 4]], context=50, noise=0.1)
    >>> task.dim, task.labels, task.disjoint
    (5, 2, True)
    >>> task.masks
    Array([[1., 1., 0., 0., 0.],
           [0., 0., 1., 1., 1.]], dtype=float64)
    ```
    """

    signal: Float[Array, " I"]
    noise: Float[Array, " I"]
    input_rotation: Float[Array, "D D"] | None
    output_rotation: Float[Array, "I I"] | None
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(
        self,
        coordinates: Sequence[Sequence[int]],
        dim: int | None = None,
        context: Lengths = 48,
        *,
        noise: ArrayLike | Sequence[float] = 0.1,
        signal: ArrayLike | Sequence[float] | None = None,
        input_rotation: ArrayLike | Sequence[Sequence[float]] | None = None,
        output_rotation: ArrayLike | Sequence[Sequence[float]] | None = None,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `coordinates`: the coordinates (from 0) that each task reads.
        - `dim`: D, the number of inputs; by default just enough for `coordinates`.
        - `context`: N, the number of labelled tokens; several lengths make it vary.
        - `noise`: σ², one number or one per task.
        - `signal`: λ, the variance of an entry of β, one number or one per task; by default
          1/|S_i|, so that every noiseless label has variance 1.
        - `input_rotation`, `output_rotation`: R and P, orthogonal; by default none.
        - `noisy_query`: whether the query labels have noise too.
        """
        self.coordinates = check_coordinates(coordinates)
        count = len(self.coordinates)
        needed = 1 + max(max(read) for read in self.coordinates)
        dim = needed if dim is None else dim
        if not is_whole(dim) or dim < needed:
            raise InputError(
                "dim",
                dim,
                f"must be a whole number, and at least {needed} for `coordinates` up to "
                f"{needed - 1}",
            )
        sizes = np.asarray([len(read) for read in self.coordinates])
        self.inputs = int(dim)
        self.contexts = check_contexts(context)
        self.signal = _check_each("signal", 1 / sizes if signal is None else signal, count)
        self.noise = _check_each("noise", noise, count)
        self.input_rotation = check_rotation("input_rotation", input_rotation, self.inputs)
        self.output_rotation = check_rotation("output_rotation", output_rotation, count)
        self.noisy_query = check_flag("noisy_query", noisy_query)

    @property
    def dim(self) -> int:
        return self.inputs

    @property
    def labels(self) -> int:
        """I, the number of tasks."""
        return len(self.coordinates)

    @property
    def covariance(self) -> Float[Array, "D D"]:
        # A rotation leaves white inputs white.
        return jnp.eye(self.inputs, dtype=self.signal.dtype)

    @property
    def context_probabilities(self) -> Float[Array, " K"]:
        count = len(self.contexts)
        return jnp.full(count, 1 / count, self.signal.dtype)

    @property
    def input_basis(self) -> Float[np.ndarray, "D D"] | None:
        return None if self.input_rotation is None else np.asarray(self.input_rotation)

    @property
    def masks(self) -> Float[Array, "I D"]:
        masks = np.zeros((self.labels, self.inputs))
        for row, read in zip(masks, self.coordinates):
            row[list(read)] = 1
        return jnp.asarray(masks, self.signal.dtype)

    @property
    def disjoint(self) -> bool:
        """Whether no two tasks read the same coordinate."""
        used = [place for read in self.coordinates for place in read]
        return len(set(used)) == len(used)

    @property
    def rotated(self) -> bool:
        """Whether tokens hold rotated inputs or labels."""
        return self.input_rotation is not None or self.output_rotation is not None

    @property
    def parts(self) -> tuple[LinearRegression, ...]:
        return tuple(self.part(i) for i in range(self.labels))

    def part(self, index: int) -> LinearRegression:
        """Task `index` alone, with unrotated labels: a regression on all D inputs, with a prior of
        zero on those that it does not read."""
        prior = jnp.diag(self.signal[index] * self.masks[index])
        # Rotated white inputs are white: only the prior changes.
        if self.input_rotation is not None:
            prior = self.input_rotation @ prior @ self.input_rotation.T
        return white_regression(self.contexts, self.noisy_query, prior, self.noise[index])

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            beta = jr.normal(key, (count, self.labels, self.inputs), x.dtype)
            beta = beta * self.masks * jnp.sqrt(self.signal)[:, None]
            return jnp.einsum("pnd,pid->pni", x, beta)

        # Without `context_probabilities`, which would draw other lengths from the same key.
        return draw_sequences(
            key,
            count,
            self.inputs,
            values,
            self.noise,
            self.noisy_query,
            self.contexts,
            rotations=(self.input_rotation, self.output_rotation),
        )

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The posterior mean of each noiseless query label."""
        plain = self._unrotate(sequences)
        each = [part.bayes_predict(plain.label(i)) for i, part in enumerate(self.parts)]
        means = jnp.concatenate(each, -1)
        return means if self.output_rotation is None else means @ self.output_rotation.T

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The posterior variance of each query label."""
        plain = self._unrotate(sequences)
        each = [part.bayes_variance(plain.label(i)) for i, part in enumerate(self.parts)]
        variances = jnp.concatenate(each, -1)
        # The tasks are independent: variances mix with the squares of the rotation.
        rotation = self.output_rotation
        return variances if rotation is None else variances @ (rotation**2).T

    def _unrotate(self, sequences: Sequences) -> Sequences:
        """The sequences with unrotated labels."""
        if self.output_rotation is None:
            return sequences
        return eqx.tree_at(
            lambda s: (s.y, s.y_query),
            sequences,
            (sequences.y @ self.output_rotation, sequences.y_query @ self.output_rotation),
        )


def check_coordinates(coordinates: Any) -> tuple[tuple[int, ...], ...]:
    """The coordinates that each task reads, whole numbers from 0 up.

    **Example:**

    ```pycon
    >>> icl.tasks.check_coordinates([[0, 1], [2]])
    ((0, 1), (2,))
    ```
    """
    if isinstance(coordinates, AbstractTask):
        raise InputError(
            "coordinates",
            problem=f"is a {type(coordinates).__name__}",
            allowed="must be sets of coordinates; give `task.coordinates`",
        )
    try:
        sets = tuple(tuple(read) for read in coordinates)
    except TypeError:
        raise InputError(
            "coordinates", coordinates, "must be a list for each task, such as [[0, 1], [2]]"
        ) from None
    if not sets or not all(sets):
        raise InputError(
            "coordinates",
            coordinates,
            "must hold at least one task, each with at least one coordinate",
        )
    for read in sets:
        if not all(is_whole(place) and place >= 0 for place in read) or len(set(read)) < len(read):
            raise InputError(
                "coordinates",
                problem=f"holds {list(read)}",
                allowed="must be whole numbers from 0 up, each listed once per task",
            )
    return tuple(tuple(int(place) for place in read) for read in sets)


def _check_each(name: str, value: Any, count: int) -> Array:
    """One number per task, from one for all or from a list."""
    # Lists have no `ndim`. A single number has no axis, all else must have one.
    axes = getattr(value, "ndim", int(isinstance(value, Sequence)))
    numbers = check_array(name, value, min(axes, 1))
    if numbers.size not in (1, count):
        raise InputError(name, value, f"must be one number, or {count} of them")
    if numbers.min() < 0:
        raise InputError(name, value, "must not be negative")
    return as_float(np.broadcast_to(numbers, (count,)))


def check_rotation(name: str, matrix: Any, size: int) -> Array | None:
    """An orthogonal matrix of a given size, or None.

    **Example:**

    ```pycon
    >>> icl.tasks.check_rotation("rotation", np.eye(2)[::-1], 2)
    Array([[0., 1.],
           [1., 0.]], dtype=float64)
    ```
    """
    if matrix is None:
        return None
    rotation = check_array(name, matrix, 2)
    if rotation.shape != (size, size):
        raise InputError(
            name, problem=f"has shape {rotation.shape}", allowed=f"must be ({size}, {size})"
        )
    if np.max(np.abs(rotation @ rotation.T - np.eye(size))) > _ORTHOGONAL_TOLERANCE:
        raise InputError(
            name, problem="is not orthogonal", allowed="its transpose must be its inverse"
        )
    return as_float(rotation)

"""Several regression tasks in one sequence, each with its own label and its own coordinates."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..precision import as_float
from ._base import AbstractSequences, AbstractTask, Sequences, check_prediction
from ._check import checked_array, checked_contexts, is_whole
from ._lengths import cut_to_length
from ._linear_regression import LinearRegression, white_regression


class MultiSequences(AbstractSequences):
    """Sequences with I labels a token: one for each task."""

    x: Float[Array, "*batch N D"]
    y: Float[Array, "*batch N I"]
    x_query: Float[Array, "*batch D"]
    y_query: Float[Array, "*batch I"]
    length: Float[Array, "*batch"]

    @property
    def labels(self) -> int:
        """I, the number of labels."""
        return self.y.shape[-1]

    def task(self, index: int) -> Sequences:
        """The same sequences with the labels of one task."""
        return Sequences(
            self.x, self.y[..., index], self.x_query, self.y_query[..., index], self.length
        )

    def squared_error(self, prediction: Float[Array, "*batch I"]) -> Float[Array, "*batch"]:
        check_prediction(prediction, self.y_query)
        return jnp.sum((self.y_query - prediction) ** 2, -1)


class MultiTaskRegression(AbstractTask[MultiSequences]):
    """Inputs x ~ N(0, I); task i reads the coordinates S_i: y_i = β_i·x_{S_i} + ε_i.

    β_i ~ N(0, λ_i I) and Var ε_i = σ_i². Coordinate sets may be of any size and may overlap
    (arXiv 2503.12734) or be disjoint blocks (arXiv 2402.19442). A rotation R of the inputs hides
    the coordinates: tokens hold Rx. A rotation P of the labels hides the tasks: tokens hold Py.
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
        context=48,
        *,
        noise: ArrayLike | Sequence[float] = 0.1,
        signal: ArrayLike | Sequence[float] | None = None,
        input_rotation=None,
        output_rotation=None,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `coordinates`: the coordinates (from 0) that each task reads.
        - `dim`: D, the number of inputs; by default just enough for `coordinates`.
        - `context`: N, the number of labelled tokens; several lengths make it vary.
        - `noise`: σ², one number or one a task.
        - `signal`: λ, the variance of an entry of β, one number or one a task; by default
          1/|S_i|, so that every noiseless label has variance 1.
        - `input_rotation`, `output_rotation`: R and P, orthogonal; by default none.
        - `noisy_query`: whether the query labels carry noise too.
        """
        self.coordinates = checked_coordinates(coordinates)
        count = len(self.coordinates)
        needed = 1 + max(max(read) for read in self.coordinates)
        dim = needed if dim is None else dim
        if not is_whole(dim) or dim < needed:
            raise ValueError(
                f"`dim` = {dim}: must be a whole number, and at least {needed} for `coordinates` "
                f"up to {needed - 1}."
            )
        sizes = np.asarray([len(read) for read in self.coordinates])
        self.inputs = int(dim)
        self.contexts = checked_contexts(context)
        self.signal = _one_each("signal", 1 / sizes if signal is None else signal, count)
        self.noise = _one_each("noise", noise, count)
        self.input_rotation = checked_rotation("input_rotation", input_rotation, self.inputs)
        self.output_rotation = checked_rotation("output_rotation", output_rotation, count)
        if not isinstance(noisy_query, bool | np.bool_):
            raise ValueError(f"`noisy_query` = {noisy_query!r}: must be True or False.")
        self.noisy_query = bool(noisy_query)

    @property
    def dim(self) -> int:
        return self.inputs

    @property
    def labels(self) -> int:
        """I, the number of tasks."""
        return len(self.coordinates)

    @property
    def max_context(self) -> int:
        return max(self.contexts)

    @property
    def masks(self) -> Float[Array, "I D"]:
        """1 where a task reads a coordinate, else 0 (before any rotation)."""
        masks = np.zeros((self.labels, self.inputs))
        for row, read in zip(masks, self.coordinates):
            row[list(read)] = 1
        return jnp.asarray(masks, self.signal.dtype)

    @property
    def disjoint(self) -> bool:
        """Whether no coordinate is read by two tasks."""
        used = [place for read in self.coordinates for place in read]
        return len(set(used)) == len(used)

    @property
    def rotated(self) -> bool:
        """Whether tokens hold inputs or labels that are rotated."""
        return self.input_rotation is not None or self.output_rotation is not None

    @property
    def query_noise(self) -> Float[Array, " I"]:
        """Variance of the noise on each query label."""
        return self.noise if self.noisy_query else jnp.zeros_like(self.noise)

    def part(self, index: int) -> LinearRegression:
        """Task `index` alone, as a regression on all D inputs whose prior is zero where it does
        not read. (Labels as they are before a rotation.)"""
        prior = jnp.diag(self.signal[index] * self.masks[index])
        if self.input_rotation is not None:
            prior = self.input_rotation @ prior @ self.input_rotation.T
        return white_regression(self.contexts, self.noisy_query, prior, self.noise[index])

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> MultiSequences:
        key_x, key_beta, key_noise, key_length = jr.split(key, 4)
        dtype, tokens = self.signal.dtype, self.max_context + 1
        x = jr.normal(key_x, (count, tokens, self.inputs), dtype)
        beta = jr.normal(key_beta, (count, self.labels, self.inputs), dtype)
        beta = beta * self.masks * jnp.sqrt(self.signal)[:, None]
        noise = jr.normal(key_noise, (count, tokens, self.labels), dtype) * jnp.sqrt(self.noise)
        if not self.noisy_query:
            noise = noise.at[:, -1].set(0.0)
        y = jnp.einsum("pnd,pid->pni", x, beta) + noise
        if self.input_rotation is not None:
            x = x @ self.input_rotation.T
        if self.output_rotation is not None:
            y = y @ self.output_rotation.T
        return MultiSequences(*cut_to_length(key_length, x, y, self.contexts))

    def bayes_predict(self, sequences: MultiSequences) -> Float[Array, "*batch I"]:
        """The posterior mean of each noiseless query label."""
        plain = self._unrotated(sequences)
        each = [self.part(i).bayes_predict(plain.task(i)) for i in range(self.labels)]
        means = jnp.stack(each, -1)
        return means if self.output_rotation is None else means @ self.output_rotation.T

    def bayes_variance(self, sequences: MultiSequences) -> Float[Array, "*batch I"]:
        """The posterior variance of each query label."""
        plain = self._unrotated(sequences)
        each = [self.part(i).bayes_variance(plain.task(i)) for i in range(self.labels)]
        variances = jnp.stack(each, -1)
        # The tasks are independent, so variances mix with the squares of the rotation.
        rotation = self.output_rotation
        return variances if rotation is None else variances @ (rotation**2).T

    def _unrotated(self, sequences: MultiSequences) -> MultiSequences:
        """The sequences with their labels as they are before a rotation."""
        if self.output_rotation is None:
            return sequences
        return eqx.tree_at(
            lambda s: (s.y, s.y_query),
            sequences,
            (sequences.y @ self.output_rotation, sequences.y_query @ self.output_rotation),
        )


def checked_coordinates(coordinates) -> tuple[tuple[int, ...], ...]:
    """The coordinates that each task reads, whole numbers from 0 up."""
    if isinstance(coordinates, AbstractTask):
        raise ValueError(
            f"`coordinates` is a {type(coordinates).__name__}: must be sets of coordinates; give "
            "`task.coordinates`."
        )
    try:
        sets = tuple(tuple(read) for read in coordinates)
    except TypeError:
        raise ValueError(
            f"`coordinates` = {coordinates!r}: must be a list for each task, such as [[0, 1], [2]]."
        ) from None
    if not sets or not all(sets):
        raise ValueError(
            f"`coordinates` = {coordinates}: must hold at least one task, each with at least one "
            "coordinate."
        )
    for read in sets:
        if not all(is_whole(place) and place >= 0 for place in read) or len(set(read)) < len(read):
            raise ValueError(
                f"`coordinates` holds {list(read)}: must be whole numbers from 0 up, each listed "
                "once a task."
            )
    return tuple(tuple(int(place) for place in read) for read in sets)


def _one_each(name: str, value, count: int) -> Array:
    """One number for each task, from one for all or from a list."""
    axes = getattr(value, "ndim", int(isinstance(value, Sequence)))
    numbers = checked_array(name, value, min(axes, 1))
    if numbers.size not in (1, count):
        raise ValueError(f"`{name}` = {value}: must be one number, or {count} of them.")
    if numbers.min() < 0:
        raise ValueError(f"`{name}` = {value}: must not be negative.")
    return as_float(np.broadcast_to(numbers, (count,)))


def checked_rotation(name: str, matrix, size: int) -> Array | None:
    """An orthogonal matrix of a given size, or None."""
    if matrix is None:
        return None
    rotation = checked_array(name, matrix, 2)
    if rotation.shape != (size, size):
        raise ValueError(f"`{name}` has shape {rotation.shape}: must be ({size}, {size}).")
    # What a user who types a rotation in single precision still gets right.
    if np.max(np.abs(rotation @ rotation.T - np.eye(size))) > 1e-6:
        raise ValueError(f"`{name}` is not orthogonal: its transpose must be its inverse.")
    return as_float(rotation)

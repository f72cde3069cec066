"""Decomposable circuits in their singular values: a few numbers per head and task
(arXiv 2402.19442).

On a task where each label reads another block of coordinates, heads with key-query ω_hi·I on block
i and output-value μ_hi on label i keep this form in gradient flow, and so do their factors:
K_h = Ψ diag(k), Q_h = Ψ diag(q) with ω = kq/√E, O_hᵀ = Ξ diag(o), V_h = Ξ diag(v) with μ = ov, in
frames Ψ and Ξ that do not move. The weights here are the lengths of these factors, block by block,
so that their gradient flow is that of the factors themselves.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..tasks import check_count, check_key, check_rotation, is_whole
from ._circuits import AbstractCircuits, pad_keys, pad_values
from ._diagonal import diagonal_blocks
from ._factored import Factored


class AbstractSpectral(AbstractCircuits):
    """Heads that are ω_hi on block i and μ_hi on label i.

    **Fields:**

    - `coordinates`: the coordinates (from 0) of each block.
    - `dim`: D, the number of inputs.
    - `width`: E, the width of keys and values.
    """

    coordinates: eqx.AbstractVar[tuple[tuple[int, ...], ...]]
    width: eqx.AbstractVar[int]

    def __check_init__(self):
        check_blocks(self.coordinates, self.dim, self.width)

    @abc.abstractmethod
    def omega(self) -> Float[Array, "H I"]:
        """The singular values of key-query, one per block."""

    @abc.abstractmethod
    def mu(self) -> Float[Array, "H I"]:
        """The singular values of output-value, one per label."""

    @abc.abstractmethod
    def factors(self) -> tuple[Array, Array, Array, Array]:
        """k, q, o and v of each head and task, (H, I), per coordinate."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """d_i, the sizes of the blocks."""
        return tuple(len(read) for read in self.coordinates)

    @property
    def labels(self) -> int:
        return len(self.coordinates)

    @property
    def blind(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H I T"]:
        return pad_values(diagonal_blocks(self.mu()), self.dim)

    def kq(self) -> Float[Array, "H T D"]:
        return pad_keys(diagonal_blocks(self._per_coordinate(self.omega())), self.labels)

    def factored(
        self,
        key: PRNGKeyArray,
        input_rotation: Float[Array, "D D"] | None = None,
        output_rotation: Float[Array, "I I"] | None = None,
    ) -> Factored:
        """Full factors K, Q, V and O with these singular values, in random frames.

        **Arguments:**

        - `input_rotation`, `output_rotation`: those of the task, whose tokens hold Rx and Py.
        """
        check_key(key)
        if self.width < max(self.dim, self.labels):
            raise InputError(
                "width",
                self.width,
                f"must be at least {max(self.dim, self.labels)} for frames of {self.dim} "
                f"inputs and {self.labels} labels",
            )
        input_rotation = _rotation("input_rotation", input_rotation, self.dim)
        output_rotation = _rotation("output_rotation", output_rotation, self.labels)
        k, q, o, v = self.factors()
        frames, _ = jnp.linalg.qr(jr.normal(key, (2, self.heads, self.width, self.width), k.dtype))
        keys, values = frames[0, :, :, : self.dim], frames[1, :, :, : self.labels]
        turn = lambda factor, rotation: factor if rotation is None else factor @ rotation.T
        scale = lambda frame, lengths, rotation: turn(frame * lengths[:, None, :], rotation)
        return Factored(
            K=scale(keys, self._per_coordinate(k), input_rotation),
            Q=scale(keys, self._per_coordinate(q), input_rotation),
            V=scale(values, v, output_rotation),
            O=scale(values, o, output_rotation).swapaxes(1, 2),
        )

    def _per_coordinate(self, each: Float[Array, "H I"]) -> Float[Array, "H D"]:
        """One number per block as one per coordinate; 0 where no task reads."""
        # The column after the blocks is zero, for coordinates that are in no block.
        place = np.full(self.dim, self.labels)
        for block, read in enumerate(self.coordinates):
            place[list(read)] = block
        return jnp.pad(each, ((0, 0), (0, 1)))[:, place]


def check_blocks(coordinates: tuple[tuple[int, ...], ...], dim: int, width: int) -> None:
    """Refuses blocks that overlap, and sizes that do not fit them."""
    used = [place for read in coordinates for place in read]
    if len(set(used)) < len(used):
        allowed = "must be sets that do not overlap, one per task"
        raise InputError("coordinates", coordinates, allowed)
    if not is_whole(dim) or dim <= max(used):
        raise InputError("dim", dim, "must be a whole number, larger than every coordinate")
    check_count("width", width)


def _rotation(name: str, matrix: Array | None, size: int) -> Array | None:
    """A rotation, checked unless it is traced."""
    return matrix if isinstance(matrix, Tracer) else check_rotation(name, matrix, size)

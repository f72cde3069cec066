"""Decomposable circuits in their singular values: a few numbers per head and task
(arXiv 2402.19442).

On a task where each label reads another block of coordinates, heads with key-query ω_hi·I on block
i and output-value μ_hi on label i keep this form in gradient flow, and so do their factors:
K_h = Ψ diag(k), Q_h = Ψ diag(q) with ω = kq/√E, O_hᵀ = Ξ diag(o), V_h = Ξ diag(v) with μ = ov, in
frames Ψ and Ξ that do not move. The weights here are the lengths of these factors, block by block,
so that their gradient flow is that of the factors themselves.
"""

import abc
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import (
    check_choice,
    check_coordinates,
    check_count,
    check_key,
    check_rotation,
    is_whole,
)
from ._circuits import AbstractCircuits, pad_keys, pad_values
from ._diagonal import as_weights, diagonal_blocks
from ._factored import Factored
from ._initialise import check_scale


class AbstractSpectral(AbstractCircuits):
    """Heads that are ω_hi on block i and μ_hi on label i.

    **Fields:**

    - `coordinates`: the coordinates (from 0) of each block.
    - `dim`: D, the number of inputs.
    - `width`: E, the width of keys and values.

    **Example:**

    ```pycon
    >>> kinds = icl.Spectral, icl.BalancedSpectral
    >>> [issubclass(kind, icl.models.AbstractSpectral) for kind in kinds]
    [True, True]
    ```
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
        # Random orthonormal frames, one for keys and one for values: the circuits do not depend on
        # them, and neither does the flow.
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


Coordinates = tuple[tuple[int, ...], ...]
Signs = tuple[Coordinates, Coordinates]
SpectralScheme = Literal["random", "distinct"]


class Start(NamedTuple):
    """The blocks, sizes and singular values of decomposable heads, checked."""

    coordinates: Coordinates
    dim: int
    width: int
    omega: Float[Array, "H I"]
    mu: Float[Array, "H I"]

    @property
    def sizes(self) -> Float[Array, " I"]:
        return jnp.asarray([len(read) for read in self.coordinates], self.omega.dtype)

    @staticmethod
    def of(coordinates: Any, dim: int | None, width: int | None, omega: Any, mu: Any) -> "Start":
        """From given singular values; `dim` and `width` with their defaults."""
        sets, dim, width = _sizes(coordinates, dim, width)
        omega, mu = _finite("omega", omega), _finite("mu", mu)
        if omega.ndim != 2 or omega.shape != mu.shape or omega.shape[1] != len(sets):
            raise InputError(
                "omega",
                problem=f"has shape {omega.shape} and `mu` {mu.shape}",
                allowed=f"both must be (heads, {len(sets)})",
            )
        return Start(sets, dim, width, omega, mu)

    @staticmethod
    def draw(
        key: PRNGKeyArray,
        coordinates: Any,
        heads: int,
        omega: ScalarLike = 0.01,
        mu: ScalarLike = 0.2,
        spread: ScalarLike = 0.2,
        dim: int | None = None,
        width: int | None = None,
        scheme: SpectralScheme = "random",
    ) -> "Start":
        """A positive start: see `BalancedSpectral.init`."""
        check_key(key)
        sets, dim, width = _sizes(coordinates, dim, width)
        check_count("heads", heads)
        omega, mu, spread = (
            check_numbers(name, size, nonnegative=True)
            for name, size in (("omega", omega), ("mu", mu), ("spread", spread))
        )
        if not isinstance(spread, Tracer) and not spread < 1:
            raise InputError("spread", spread, "must be at least 0 and below 1")
        check_choice("scheme", scheme, get_args(SpectralScheme))
        shape = (heads, len(sets))
        # In the scheme "distinct" head i mod H is ahead on task i: it is not reduced by the spread.
        ahead = np.arange(heads)[:, None] == np.arange(len(sets)) % heads
        drawn = jr.uniform(key, shape, omega.dtype) if scheme == "random" else 1.0 * ~ahead
        return Start(sets, dim, width, omega * (1 - spread * drawn), jnp.broadcast_to(mu, shape))


def signs_of(omega: Array, mu: Array, given: Signs | None) -> Signs | None:
    """The signs of ω and μ; None if all are positive. Traced values count as positive."""
    seen = [np.ones(x.shape) if isinstance(x, Tracer) else np.asarray(x) for x in (omega, mu)]
    if given is None:
        if all(np.all(x >= 0) for x in seen):
            return None
        return _as_signs(seen[0] >= 0), _as_signs(seen[1] >= 0)
    both = np.asarray(given)
    if both.shape != (2, *omega.shape) or not np.all(np.abs(both) == 1):
        raise InputError(
            "signs", given, f"must be 1 or -1 for each ω, and for each μ, {omega.shape} each"
        )
    for name, values, seen_as, sign in zip(("omega", "mu"), (omega, mu), seen, both):
        if not isinstance(values, Tracer) and np.any(seen_as * sign < 0):
            raise InputError("signs", given, f"must be those of `{name}` = {seen_as.tolist()}")
    return _as_signs(both[0] > 0), _as_signs(both[1] > 0)


def _as_signs(positive: np.ndarray) -> Coordinates:
    return tuple(tuple(1 if up else -1 for up in row) for row in positive.tolist())


def check_numbers(
    name: str, value: Any, shape: tuple[int, ...] = (), *, nonnegative: bool = False
) -> Array:
    """One finite number, none below 0 if `nonnegative`, or an array of them with this shape."""
    found = _finite(name, value)
    if found.shape not in ((), shape):
        several = f", or {shape}" if shape else ""
        raise InputError(
            name, problem=f"has shape {found.shape}", allowed=f"must be one number{several}"
        )
    if nonnegative:
        check_scale(name, value)
    return as_float(found)


def _finite(name: str, value: Any) -> Array:
    """Finite numbers as an array. Traced ones have no values yet and are not checked."""
    try:
        found = as_weights(value)
    except (TypeError, ValueError):
        raise InputError(name, value, "must be numbers") from None
    if not isinstance(found, Tracer) and not np.all(np.isfinite(found)):
        raise InputError(name, np.asarray(found).tolist(), "every number must be finite")
    return found


def _sizes(coordinates: Any, dim: int | None, width: int | None) -> tuple[Coordinates, int, int]:
    sets = check_coordinates(coordinates)
    dim = 1 + max(max(read) for read in sets) if dim is None else dim
    width = dim if width is None else width
    check_blocks(sets, dim, width)
    return sets, int(dim), int(width)

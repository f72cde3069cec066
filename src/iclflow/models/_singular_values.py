"""Checked singular values, from which decomposable heads are made."""

from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import check_choice, check_coordinates, check_count, check_key
from ._decomposable import check_blocks
from ._diagonal import as_weights
from ._initialise import check_scale

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
            check_numbers(name, size, positive=True)
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
    name: str, value: Any, shape: tuple[int, ...] = (), *, positive: bool = False
) -> Array:
    """One finite number, not negative if `positive`, or an array of them with this shape."""
    found = _finite(name, value)
    if found.shape not in ((), shape):
        several = f", or {shape}" if shape else ""
        raise InputError(
            name, problem=f"has shape {found.shape}", allowed=f"must be one number{several}"
        )
    if positive:
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

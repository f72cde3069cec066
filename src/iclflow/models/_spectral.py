"""Decomposable attention with factors as weights: all four of them, or one for each pair."""

from collections.abc import Sequence
from typing import Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..precision import as_float
from ._attention import Activation
from ._base import Normaliser
from ._decomposable import AbstractSpectral
from ._initialise import check_heads, check_key, check_scale
from ._structured import as_weights

Coordinates = tuple[tuple[int, ...], ...]
SpectralScheme = Literal["random", "distinct"]


def _as_coordinates(sets) -> Coordinates:
    return tuple(tuple(int(place) for place in read) for read in sets)


class SpectralAttention(AbstractSpectral):
    """Decomposable heads by their four factors: ω = kq/√E and μ = ov.

    The weights `K` and `Q` are Frobenius norms of blocks, √d_i times k and q, with a sign.
    """

    K: Float[Array, "H I"]
    Q: Float[Array, "H I"]
    V: Float[Array, "H I"]
    O: Float[Array, "H I"]  # noqa: E741
    coordinates: Coordinates = eqx.field(static=True, converter=_as_coordinates)
    dim: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def of(
        omega,
        mu,
        coordinates: Sequence[Sequence[int]],
        dim: int | None = None,
        width: int | None = None,
        key_imbalance: ScalarLike | Float[Array, "H I"] = 0.0,
        value_imbalance: ScalarLike | Float[Array, "H I"] = 0.0,
        **options,
    ) -> "SpectralAttention":
        """Factors with given singular values. `options` are fields.

        **Arguments:**

        - `omega`, `mu`: (H, I), one number a head and task.
        - `dim`: by default just enough for `coordinates`.
        - `width`: by default D.
        - `key_imbalance`, `value_imbalance`: k² − q² and o² − v², which gradient flow keeps.
        """
        sets, dim, width, omega, mu = _checked(coordinates, dim, width, omega, mu)
        sizes = jnp.asarray([len(read) for read in sets], omega.dtype)
        k, q = _factors(width**0.5 * omega, as_float(key_imbalance))
        o, v = _factors(mu, as_float(value_imbalance))
        root = jnp.sqrt(sizes)
        return SpectralAttention(
            K=root * k, Q=root * q, V=v, O=o, coordinates=sets, dim=dim, width=width,
            **options,
        )  # fmt: skip

    def factors(self) -> tuple[Array, Array, Array, Array]:
        root = jnp.sqrt(jnp.asarray(self.sizes, self.K.dtype))
        return self.K / root, self.Q / root, self.O, self.V

    def omega(self) -> Float[Array, "H I"]:
        return self.K * self.Q / (self.width**0.5 * jnp.asarray(self.sizes, self.K.dtype))

    def mu(self) -> Float[Array, "H I"]:
        return self.O * self.V


class BalancedSpectral(AbstractSpectral):
    """Decomposable heads with k = ±q and o = ±v, which gradient flow keeps: no singular value ever
    changes its sign.

    `SpectralAttention` with one weight for each pair of factors. In exact arithmetic both move
    alike; with four factors rounding grows into an imbalance, which lets signs change.

    **Fields:**

    - `attend`, `read`: ω = ±attend²/(2d_i√E) and μ = ±read²/2.
    - `signs`: of ω, and of μ, by head and task.
    """

    attend: Float[Array, "H I"]
    read: Float[Array, "H I"]
    coordinates: Coordinates = eqx.field(static=True, converter=_as_coordinates)
    dim: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    signs: tuple[Coordinates, Coordinates] | None = eqx.field(static=True, default=None)
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def of(
        omega,
        mu,
        coordinates: Sequence[Sequence[int]],
        dim: int | None = None,
        width: int | None = None,
        **options,
    ) -> "BalancedSpectral":
        """Balanced factors with given singular values; arguments as in `SpectralAttention.of`."""
        sets, dim, width, omega, mu = _checked(coordinates, dim, width, omega, mu)
        sizes = jnp.asarray([len(read) for read in sets], omega.dtype)
        signs = None
        if bool(np.any(np.asarray(omega) < 0) or np.any(np.asarray(mu) < 0)):
            signs = _signs_of(omega), _signs_of(mu)
        return BalancedSpectral(
            attend=jnp.sqrt(2 * width**0.5 * sizes * jnp.abs(omega)),
            read=jnp.sqrt(2 * jnp.abs(mu)),
            coordinates=sets, dim=dim, width=width, signs=signs, **options,
        )  # fmt: skip

    @staticmethod
    def init(
        key: PRNGKeyArray,
        coordinates: Sequence[Sequence[int]],
        heads: int,
        omega: ScalarLike = 0.01,
        mu: ScalarLike = 0.2,
        spread: ScalarLike = 0.2,
        dim: int | None = None,
        width: int | None = None,
        scheme: SpectralScheme = "random",
        **options,
    ) -> "BalancedSpectral":
        """A positive start: ω_hi between (1 − spread) · `omega` and `omega`, every μ_hi = `mu`.

        **Arguments:**

        - `scheme`: `"random"`: every ω_hi is drawn evenly between the two; `"distinct"`: head h
          has the larger on task h mod I and the smaller on the others.
        """
        check_key(key)
        sets, dim, width = _sizes(coordinates, dim, width)
        check_heads(heads)
        for name, size in (("omega", omega), ("mu", mu), ("spread", spread)):
            check_scale(name, size)
        shape = (heads, len(sets))
        start = as_float(omega)
        if scheme not in get_args(SpectralScheme):
            words = ", ".join(get_args(SpectralScheme))
            raise ValueError(f"`scheme` = {scheme!r}: must be one of {words}.")
        ahead = np.arange(heads)[:, None] % len(sets) == np.arange(len(sets))
        drawn = jr.uniform(key, shape, start.dtype) if scheme == "random" else 1.0 * ~ahead
        each = start * (1 - as_float(spread) * drawn)
        lengths = jnp.asarray([len(read) for read in sets], each.dtype)
        return BalancedSpectral(
            attend=jnp.sqrt(2 * width**0.5 * lengths * each),
            read=jnp.broadcast_to(jnp.sqrt(2 * as_float(mu)), shape),
            coordinates=sets, dim=dim, width=width, **options,
        )  # fmt: skip

    def factors(self) -> tuple[Array, Array, Array, Array]:
        omega_sign, mu_sign = self._signs()
        k = self.attend / jnp.sqrt(2 * jnp.asarray(self.sizes, self.attend.dtype))
        o = self.read / 2**0.5
        return k, omega_sign * k, mu_sign * o, o

    def omega(self) -> Float[Array, "H I"]:
        lengths = 2 * self.width**0.5 * jnp.asarray(self.sizes, self.attend.dtype)
        return self._signs()[0] * self.attend**2 / lengths

    def mu(self) -> Float[Array, "H I"]:
        return self._signs()[1] * self.read**2 / 2

    def _signs(self) -> tuple[Array, Array]:
        if self.signs is None:
            return jnp.ones_like(self.attend), jnp.ones_like(self.read)
        of_omega, of_mu = jnp.asarray(self.signs, self.attend.dtype)
        return of_omega, of_mu


def _factors(product: Array, imbalance: Array) -> tuple[Array, Array]:
    """a ≥ 0 and b with ab = `product` and a² − b² = `imbalance`."""
    half = imbalance / 2
    larger = jnp.sqrt(jnp.abs(half) + jnp.hypot(half, product))
    smaller = jnp.abs(product) / jnp.where(larger > 0, larger, 1.0)
    first, second = jnp.where(half >= 0, larger, smaller), jnp.where(half >= 0, smaller, larger)
    return first, jnp.where(product < 0, -second, second)


def _signs_of(values: Array) -> Coordinates:
    return tuple(tuple(1 if x >= 0 else -1 for x in row) for row in np.asarray(values).tolist())


def _checked(coordinates, dim, width, omega, mu):
    """Sizes with their defaults, and the singular values as arrays of one shape."""
    sets, dim, width = _sizes(coordinates, dim, width)
    omega, mu = as_weights(omega), as_weights(mu)
    if omega.ndim != 2 or omega.shape != mu.shape or omega.shape[1] != len(sets):
        raise ValueError(
            f"`omega` has shape {omega.shape} and `mu` {mu.shape}: both must be (heads, "
            f"{len(sets)})."
        )
    return sets, dim, width, omega, mu


def _sizes(coordinates, dim: int | None, width: int | None) -> tuple[Coordinates, int, int]:
    sets = _as_coordinates(coordinates)
    if not sets or not all(sets):
        raise ValueError(
            f"`coordinates` = {coordinates}: must hold at least one task, each with at least one "
            "coordinate."
        )
    dim = 1 + max(max(read) for read in sets) if dim is None else dim
    return sets, dim, dim if width is None else width

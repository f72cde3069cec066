"""Decomposable circuits with factors as weights: all four of them, or one for each pair."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..tasks import check_coordinates
from ._decomposable import (
    AbstractSpectral,
    Coordinates,
    Signs,
    SpectralScheme,
    Start,
    check_numbers,
    signs_of,
)


class Spectral(AbstractSpectral):
    """Decomposable heads by their four factors: ω = kq/√E and μ = ov.

    The weights `K` and `Q` are Frobenius norms of blocks, √d_i times k and q, with a sign.

    **Example:**

    ```pycon
    >>> blocks = [[0, 1], [2, 3]]
    >>> model = icl.Attention.spectral(jr.key(0), blocks, heads=2, key_imbalance=0.1)
    >>> model.circuits.omega().shape, (model.circuits.K**2 - model.circuits.Q**2).round(3)
    ((2, 2), Array([[0.2, 0.2],
           [0.2, 0.2]], dtype=float64))
    ```
    """

    K: Float[Array, "H I"]
    Q: Float[Array, "H I"]
    V: Float[Array, "H I"]
    O: Float[Array, "H I"]  # noqa: E741
    coordinates: Coordinates = eqx.field(static=True, converter=check_coordinates)
    dim: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    @staticmethod
    def of(
        omega: ArrayLike | Sequence[Sequence[float]],
        mu: ArrayLike | Sequence[Sequence[float]],
        coordinates: Sequence[Sequence[int]],
        dim: int | None = None,
        width: int | None = None,
        key_imbalance: ArrayLike = 0.0,
        value_imbalance: ArrayLike = 0.0,
    ) -> "Spectral":
        """Factors with given singular values.

        **Arguments:**

        - `omega`, `mu`: (H, I), one number per head and task.
        - `dim`: by default just enough for `coordinates`.
        - `width`: by default D.
        - `key_imbalance`, `value_imbalance`: k² − q² and o² − v², which gradient flow keeps; one
          number, or (H, I).
        """
        at = Start.of(coordinates, dim, width, omega, mu)
        key_imbalance = check_numbers("key_imbalance", key_imbalance, at.omega.shape)
        value_imbalance = check_numbers("value_imbalance", value_imbalance, at.omega.shape)
        k, q = _factors(at.width**0.5 * at.omega, key_imbalance)
        o, v = _factors(at.mu, value_imbalance)
        root = jnp.sqrt(at.sizes)
        return Spectral(
            K=root * k, Q=root * q, V=v, O=o,
            coordinates=at.coordinates, dim=at.dim, width=at.width,
        )  # fmt: skip

    @staticmethod
    def init(
        key: PRNGKeyArray,
        coordinates: Sequence[Sequence[int]],
        heads: int,
        *sizes: Any,
        key_imbalance: ArrayLike = 0.0,
        value_imbalance: ArrayLike = 0.0,
        **options: Any,
    ) -> "Spectral":
        """The start of `BalancedSpectral.init`, with its arguments, as four factors with the
        imbalances of `of`."""
        at = Start.draw(key, coordinates, heads, *sizes, **options)
        return Spectral.of(
            at.omega, at.mu, at.coordinates, at.dim, at.width, key_imbalance, value_imbalance,
        )  # fmt: skip

    @property
    def heads(self) -> int:
        return self.K.shape[-2]

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

    `Spectral` with one weight for each pair of factors. In exact arithmetic both have the same
    flow; with four factors rounding grows into an imbalance, which lets signs change.

    **Fields:**

    - `attend`, `read`: ω = ±attend²/(2d_i√E) and μ = ±read²/2.
    - `signs`: of ω, and of μ, by head and task.

    **Example:**

    ```pycon
    >>> blocks = [[0, 1], [2, 3]]
    >>> model = icl.Attention.balanced(jr.key(0), blocks, heads=2, omega=0.01, mu=0.2, spread=0)
    >>> model.circuits.omega().round(3), model.circuits.mu().round(3)
    (Array([[0.01, 0.01],
           [0.01, 0.01]], dtype=float64), Array([[0.2, 0.2],
           [0.2, 0.2]], dtype=float64))
    ```
    """

    attend: Float[Array, "H I"]
    read: Float[Array, "H I"]
    coordinates: Coordinates = eqx.field(static=True, converter=check_coordinates)
    dim: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    signs: Signs | None = eqx.field(static=True, default=None)

    @staticmethod
    def of(
        omega: ArrayLike | Sequence[Sequence[float]],
        mu: ArrayLike | Sequence[Sequence[float]],
        coordinates: Sequence[Sequence[int]],
        dim: int | None = None,
        width: int | None = None,
        signs: Signs | None = None,
    ) -> "BalancedSpectral":
        """Balanced factors with given singular values; arguments as in `Spectral.of`.

        **Arguments:**

        - `signs`: 1 or −1 for every ω, and for every μ. Needed only within `jit` and `vmap`, where
          values are unknown: without it they count as positive there.
        """
        at = Start.of(coordinates, dim, width, omega, mu)
        return BalancedSpectral._from(at, signs_of(at.omega, at.mu, signs))

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
    ) -> "BalancedSpectral":
        """A positive start: ω_hi between (1 − spread) · `omega` and `omega`, every μ_hi = `mu`.

        **Arguments:**

        - `spread`: from 0 up, below 1.
        - `scheme`: `"random"`: every ω_hi is drawn evenly between the two; `"distinct"`: one head
          is ahead on each task. Task i has the larger ω in head i mod H, and the smaller in all
          others: heads beyond the number of tasks start behind everywhere.
        """
        at = Start.draw(key, coordinates, heads, omega, mu, spread, dim, width, scheme)
        return BalancedSpectral._from(at, None)

    @staticmethod
    def _from(at: Start, signs: Signs | None) -> "BalancedSpectral":
        """Heads with the absolute values of these singular values, and with `signs`."""
        return BalancedSpectral(
            attend=jnp.sqrt(2 * at.width**0.5 * at.sizes * jnp.abs(at.omega)),
            read=jnp.sqrt(2 * jnp.abs(at.mu)),
            coordinates=at.coordinates, dim=at.dim, width=at.width, signs=signs,
        )  # fmt: skip

    @property
    def heads(self) -> int:
        return self.attend.shape[-2]

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
    # The larger factor comes from a sum and the smaller one from the product: as a difference it
    # would lose its digits to cancellation.
    half = imbalance / 2
    larger = jnp.sqrt(jnp.abs(half) + jnp.hypot(half, product))
    smaller = jnp.abs(product) / jnp.where(larger > 0, larger, 1.0)
    first, second = jnp.where(half >= 0, larger, smaller), jnp.where(half >= 0, smaller, larger)
    return first, jnp.where(product < 0, -second, second)

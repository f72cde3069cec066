"""The time that a small head needs to grow without bound: one integral, by a fixed rule.

Outwards from any point of its motion (see `_idle_head`) the squared speed of a head is
V(x) = V₀ + Σ_d [g_d (exp(2 e_d x) − 1) + s_d (exp(−2 e_d x) − 1)], and the time to infinity is
R = ∫₀^∞ dx/√V. It is a Gauss–Legendre sum in the time of the quadratic approximation of V at x = 0,
which takes out the square-root singularity of a turning point and the peak of a near miss, and
leaves a smooth integrand. Everything is batched and jittable.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Gauss–Legendre nodes: enough for rounding accuracy, since the chart leaves a smooth integrand.
NODES = 32
# R is integrated up to where V has grown by this factor; the rest is its asymptote.
_REACH = 1e18
# Keeps divisions finite for heads that are exactly zero.
TINY = 1e-280


def _rule(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on (0, 1), and weights of the integrals from a node to 1."""
    points, weights = np.polynomial.legendre.leggauss(count)
    orders = np.arange(count)
    values = np.polynomial.legendre.legvander(points, count)
    to_series = (2 * orders[:, None] + 1) / 2 * values[:, :-1].T * weights
    # ∫ P_n from x to 1 is (P_{n−1}(x) − P_{n+1}(x)) / (2n + 1), with P_{−1} = 1 for n = 0.
    before = np.concatenate([np.ones((count, 1)), values[:, :-2]], axis=1)
    integrals = (before - values[:, 1:]) / (2 * orders + 1)
    return (points + 1) / 2, weights / 2, integrals @ to_series / 2


POINTS, _WEIGHTS, _TO_END = _rule(NODES)


class Leg(NamedTuple):
    """Outward motion from a point: V₀ (`square`), g (`grow`) and s (`shrink`) of V(x)."""

    square: Float[Array, "*H"]
    grow: Float[Array, "*H D"]
    shrink: Float[Array, "*H D"]

    def reversed(self) -> "Leg":
        """The same point, moving the other way."""
        return Leg(self.square, self.shrink, self.grow)

    def at(self, e: Array, x: Array) -> "Leg":
        """The leg from the point that is a distance x further out."""
        growth = jnp.expm1(2 * e * x[..., None])
        square = self.square + jnp.sum(growth * (self.grow - self.shrink / (1 + growth)), -1)
        return Leg(square, self.grow * (1 + growth), self.shrink / (1 + growth))


class Chart(NamedTuple):
    """x = a sinh z + b (cosh z − 1), motion in the quadratic approximation; z = 0 … `end`."""

    a: Float[Array, "*H"]
    b: Float[Array, "*H"]
    end: Float[Array, "*H"]

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """x and dx/dz."""
        extra = z.ndim - self.a.ndim
        a, b = (c.reshape(c.shape + (1,) * extra) for c in (self.a, self.b))
        up = jnp.exp(z)
        sinh, versine = (up - 1 / up) / 2, (up - 1) ** 2 / (2 * up)
        return a * sinh + b * versine, a * (1 + versine) + b * sinh


class Journey(NamedTuple):
    """How long a leg takes to infinity: `time` = Σ weights · `pace` over the nodes + `tail`."""

    time: Float[Array, "*H"]
    chart: Chart
    pace: Float[Array, "*H nodes"]
    tail: Float[Array, "*H"]

    def left_at_nodes(self) -> Float[Array, "*H nodes"]:
        """The time that is left at each node of the chart."""
        return jnp.sum(self.pace[..., None, :] * _TO_END, -1) + self.tail[..., None]


def journey(leg: Leg, e: Float[Array, " D"]) -> Journey:
    """The time R from the start of a leg to infinity; infinite where nothing grows."""
    curvature = 2 * jnp.sum(e**2 * (leg.grow + leg.shrink), -1) + TINY
    slope = 2 * jnp.sum(e * (leg.grow - leg.shrink), -1)
    a, b = jnp.sqrt(leg.square / curvature), slope / (2 * curvature)
    grows = (leg.grow > 0) & (e > 0)
    scale = _REACH * (leg.square + jnp.sum(leg.grow + leg.shrink, -1))
    ratio = scale[..., None] / jnp.where(grows, leg.grow, 1.0)
    reach = jnp.min(jnp.where(grows, jnp.log(ratio) / (2 * e), jnp.inf), -1)
    ever = jnp.isfinite(reach)
    reach = jnp.where(ever, reach, 1.0)
    end = jnp.log((b + reach + jnp.sqrt((reach + b) ** 2 + a**2 - b**2)) / (a + b))
    chart = Chart(a, b, end)
    x, dx = chart(end[..., None] * POINTS)
    growth = jnp.expm1(2 * e * x[..., None])
    grow, shrink = leg.grow[..., None, :], leg.shrink[..., None, :]
    square = leg.square[..., None] + jnp.sum(growth * (grow - shrink / (1 + growth)), -1)
    pace = end[..., None] * dx / jnp.sqrt(square)
    last = leg.at(e, reach)
    tail = jnp.sqrt(last.square) / jnp.sum(e * (last.grow - last.shrink), -1)
    # A sum, not a product of matrices: XLA sends those to other threads, which costs more.
    time = jnp.where(ever, jnp.sum(pace * _WEIGHTS, -1) + tail, jnp.inf)
    return Journey(time, chart, pace, tail)

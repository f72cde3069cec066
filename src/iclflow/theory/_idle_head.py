"""The exact motion of a head that has not learned anything yet, from any weights.

While a head is small, it feels a constant diagonal drive e_d: the growth rates of the components
that are not learned yet. With η = ∫ v dt/τ its weights are k_d ± q_d = (k_d ± q_d)₀ exp(±e_d η) and
v² = V(η), a convex function:

    V(η) = v₀² + Σ_d [g_d (exp(2 e_d η) − 1) + s_d (exp(−2 e_d η) − 1)],   4g, 4s = (k ± q)₀².

So η moves like a particle with speed √V: it passes the minimum of V or, where V has a zero, turns
there (v changes sign), and reaches infinity at a finite time T. Derived in docs/theory/linear.md.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from ..errors import Refusal
from ..runtime.precision import require_float64
from ._idle_time import NODES, POINTS, TINY, Journey, Leg, journey

# Newton steps to the minimum and to the zero of V: in logarithms both are nearly linear problems.
_STEPS = 8
# Relative to the scale of V: a minimum below −_TURN is a turning point, and a head that just passes
# keeps at least _PASS of it as squared speed. In between V is zero up to rounding.
_TURN, _PASS = 1e-13, 1e-15
# Relative weight of parts that are zero, so that the logarithm of a ratio exists.
_FLOOR = 1e-24


def idle_head_weights(
    eta: float,
    v: float,
    k: Float[ArrayLike, " D"],
    q: Float[ArrayLike, " D"],
    drive: Float[ArrayLike, " D"],
) -> tuple[float, Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """v² = V(η), k and q of an idle head when ∫ v dt/τ = η, in closed form.

    **Arguments:**

    - `v`, `k`, `q`: weights at η = 0, in the eigenbasis.
    - `drive`: e_d, the growth rate of each component, 0 where it is learned.

    **Example:**

    ```pycon
    >>> k, q, drive = np.array([[0.01, 0.02], [0.01, -0.01], [1.0, 0.5]])
    >>> v_squared, k, q = icl.theory.idle_head_weights(2.0, 0.01, k, q, drive)
    >>> round(v_squared, 5), k.round(4), q.round(4)
    (0.00542, array([0.0739, 0.0191]), array([0.0739, 0.0081]))
    >>> # Gradient flow conserves v² − |k|², here 0.01² − 0.01² − 0.02².
    >>> round(float(v_squared - k @ k), 6)
    -0.0004
    ```
    """
    k, q, e = (np.asarray(x, dtype=np.float64) for x in (k, q, drive))
    cosh, sinh = np.cosh(e * eta), np.sinh(e * eta)
    added = (k**2 + q**2) / 2 * (np.cosh(2 * e * eta) - 1) + k * q * np.sinh(2 * e * eta)
    return float(v**2 + np.sum(added)), k * cosh + q * sinh, q * cosh + k * sinh


def blow_up_times(
    v: Float[ArrayLike, " H"],
    k: Float[ArrayLike, "H D"],
    q: Float[ArrayLike, "H D"],
    drive: Float[ArrayLike, " D"],
    tau: float = 1.0,
) -> Float[np.ndarray, " H"]:
    """T = τ ∫ dη/√V(η) of each idle head: when it would be infinite if it never saturated.

    Balanced and aligned: τ/(e v). From v = 0 with k = q of size κ: πτ/(2eκ). Infinite for a head
    that never grows. Arguments as in `idle_heads_after`.

    **Example:**

    ```pycon
    >>> v, k = np.array([0.01, 0.0]), np.array([[0.01, 0.0], [0.02, 0.0]])
    >>> icl.theory.blow_up_times(v, k, k, drive=np.array([0.5, 0.2])).round(2)
    array([200.  , 157.08])
    >>> # τ/(e v) for the balanced head, πτ/(2eκ) for the other.
    >>> 1 / (0.5 * 0.01), round(np.pi / (2 * 0.5 * 0.02), 2)
    (200.0, 157.08)
    ```
    """
    return tau * np.asarray(_path(*_arrays(v, k, q, drive)).time)


def idle_heads_after(
    elapsed: float,
    v: Float[ArrayLike, " H"],
    k: Float[ArrayLike, "H D"],
    q: Float[ArrayLike, "H D"],
    drive: Float[ArrayLike, " D"],
    tau: float = 1.0,
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H D"], Float[np.ndarray, "H D"]]:
    """The weights of idle heads after a time `elapsed`, where ∫ dη/√V(η) = `elapsed`/τ.

    NaN from a head's blow-up time on.

    **Arguments:**

    - `v`, `k`, `q`: weights at time 0, in the eigenbasis.
    - `drive`: e_d, the growth rate of each component, 0 where it is learned.

    **Example:**

    ```pycon
    >>> v, k, drive = np.array([0.013]), np.array([[0.013, 0.0]]), np.array([0.5, 0.2])
    >>> v, k, q = icl.theory.idle_heads_after(100.0, v, k, k, drive)
    >>> v.round(5), k.round(5)
    (array([0.03714]), array([[0.03714, 0.     ]]))
    >>> # A balanced aligned head is v₀/(1 − e v₀ t).
    >>> round(0.013 / (1 - 0.5 * 0.013 * 100), 5)
    0.03714
    ```
    """
    if not elapsed >= 0:
        raise Refusal(f"`elapsed` = {elapsed}: must not be negative.")
    v, k, q = _after(elapsed / tau, *_arrays(v, k, q, drive))
    return np.asarray(v), np.asarray(k), np.asarray(q)


def as_rank_one(
    K: Float[ArrayLike, "H D R"], Q: Float[ArrayLike, "H D R"]
) -> tuple[Float[np.ndarray, "H D"], Float[np.ndarray, "H D"]]:
    """k and q of heads of rank one whose v moves as that of idle heads of rank R.

    V(η) depends on the keys and queries along component d only through |k_d ± q_d|, lengths over
    the R columns.

    **Arguments:**

    - `K`, `Q`: weights at time 0, in the eigenbasis.

    **Example:**

    ```pycon
    >>> K, Q = jr.normal(jr.key(0), (2, 3, 4, 2))
    >>> k, q = icl.theory.as_rank_one(K, Q)
    >>> k.shape, q.shape
    ((3, 4), (3, 4))
    >>> bool(np.allclose(k + q, np.linalg.norm(K + Q, axis=-1)))
    True
    ```
    """
    K, Q = (np.asarray(x, dtype=np.float64) for x in (K, Q))
    plus, minus = (np.linalg.norm(x, axis=-1) for x in (K + Q, K - Q))
    return (plus + minus) / 2, (plus - minus) / 2


def _arrays(*weights) -> tuple[Array, ...]:
    require_float64("The motion of an idle head")
    return tuple(jnp.asarray(w, dtype=jnp.float64) for w in weights)


@jax.jit
def _path(v, k, q, e):
    return path(v, k, q, e)


@jax.jit
def _after(elapsed, v, k, q, e):
    p = path(v, k, q, e)
    return tuple(_choose(elapsed < p.time, w, jnp.nan) for w in advance(p, v, k, q, e, elapsed))


class Path(NamedTuple):
    """The whole motion of a head: inwards for a time, then outwards to infinity.

    - `sign`: of dη/dt at the start; 0 for a head that never moves.
    - `inwards`: whether it first approaches the minimum of V; `turns`: whether it comes back.
    - `base`: distance in η to the innermost point; `inner`: the leg from there back towards the
      start, `outer`: onwards; `inner_journey`, `outer_journey`: how long these take to infinity.
    - `behind`: time to infinity from the start, moving backwards.
    - `lead`: time to the innermost point; `time`: blow-up time T/τ, infinite if never.
    """

    sign: Float[Array, " H"]
    inwards: Array
    turns: Array
    base: Float[Array, " H"]
    inner: Leg
    outer: Leg
    behind: Float[Array, " H"]
    lead: Float[Array, " H"]
    time: Float[Array, " H"]
    inner_journey: Journey
    outer_journey: Journey


def path(v: Array, k: Array, q: Array, e: Array) -> Path:
    """The motion of each head under the drive e (learned components have e_d = 0)."""
    plus, minus = (k + q) ** 2 / 4, (k - q) ** 2 / 4
    push = jnp.sum(e * (plus - minus), -1)
    sign = jnp.sign(jnp.where(v != 0, v, push))
    ahead = Leg(v**2, *_swap(sign < 0, plus, minus))
    inwards = (sign * push < 0) & (v != 0)
    scale = ahead.square + jnp.sum(plus + minus, -1)
    lowest = _minimum(ahead, e)
    turns = inwards & (ahead.at(e, lowest).square < -_TURN * scale)
    base = jnp.where(inwards, jnp.where(turns, _zero(ahead, e, lowest), lowest), 0.0)
    innermost = ahead.at(e, base)
    # At a turning point V is zero; a head that passes has a positive speed, whatever the rounding.
    floor = jnp.where(turns, 0.0, _PASS * scale)
    square = jnp.where(inwards, jnp.maximum(innermost.square, floor), ahead.square)
    inner = Leg(square, innermost.shrink, innermost.grow)
    outer = Leg(square, *_swap(turns, innermost.grow, innermost.shrink))
    legs = jax.tree.map(lambda *x: jnp.stack(x), outer, inner, ahead.reversed())
    trips = journey(legs, e)
    lead = jnp.where(inwards, trips.time[1] - trips.time[2], 0.0)
    time = jnp.where(sign == 0, jnp.inf, lead + trips.time[0])
    outer_trip, inner_trip = (jax.tree.map(lambda x: x[i], trips) for i in (0, 1))
    return Path(
        sign, inwards, turns, base, inner, outer, trips.time[2], lead, time, inner_trip, outer_trip
    )


def advance(
    p: Path, v: Array, k: Array, q: Array, e: Array, elapsed: Array, steps: int = 2
) -> tuple[Array, Array, Array]:
    """The weights of each head after a time `elapsed` < T (in units of τ).

    The time left to infinity is tabulated along the path. Newton's method on its logarithm, kept
    inside the bracket from the table, finds the place with the right time left.
    """
    inside = p.inwards & (elapsed < p.lead)
    left = jnp.where(inside, p.behind + elapsed, p.time - elapsed)
    leg = jax.tree.map(lambda x, y: _choose(inside, x, y), p.inner, p.outer)
    trip = jax.tree.map(lambda x, y: _choose(inside, x, y), p.inner_journey, p.outer_journey)
    drifts = ~jnp.isfinite(trip.time)
    left = jnp.where(drifts, 1.0, left)
    start, end = jnp.zeros_like(v)[:, None], trip.chart.end[:, None]
    places = jnp.concatenate([start, end * POINTS, end], 1)
    times = jnp.concatenate([trip.time[:, None], trip.left_at_nodes(), trip.tail[:, None]], 1)
    logs, goal = jnp.log(jnp.where(drifts[:, None], 1.0, times)), jnp.log(left)
    bracket = jnp.clip(jnp.sum(logs > goal[:, None], 1) - 1, 0, NODES)[:, None]
    low, high = (jnp.take_along_axis(places, bracket + i, 1)[:, 0] for i in (0, 1))
    log_low, log_high = (jnp.take_along_axis(logs, bracket + i, 1)[:, 0] for i in (0, 1))
    high = jnp.where(bracket[:, 0] == NODES, jnp.inf, high)
    width = jnp.take_along_axis(places, bracket + 1, 1)[:, 0] - low
    fraction = (log_low - goal) / jnp.where(log_low > log_high, log_low - log_high, 1.0)

    def improve(_, z):
        x, dx = trip.chart(z)
        here = leg.at(e, x)
        time = journey(here, e).time
        better = z + jnp.log(time / left) * time * jnp.sqrt(here.square) / dx
        return jnp.clip(jnp.where(jnp.isfinite(better), better, z), low, high)

    z = lax.fori_loop(0, steps, improve, low + width * fraction)
    x = jnp.where(drifts, jnp.sqrt(leg.square) * (elapsed - p.lead), trip.chart(z)[0])
    x = jnp.where(p.sign == 0, 0.0, x)
    returns = inside | p.turns
    eta = p.sign * jnp.where(returns, p.base - x, p.base + x)
    direction = jnp.where(p.turns & ~inside, -p.sign, p.sign)
    speed = jnp.sqrt(jnp.maximum(leg.at(e, x).square, 0.0))
    stretch = jnp.exp(e * eta[:, None])
    plus, minus = (k + q) * stretch, (k - q) / stretch
    return direction * speed, (plus + minus) / 2, (plus - minus) / 2


def _swap(where: Array, first: Array, second: Array) -> tuple[Array, Array]:
    return _choose(where, second, first), _choose(where, first, second)


def _choose(where: Array, yes: Array, no: Array | float) -> Array:
    return jnp.where(where.reshape(where.shape + (1,) * (yes.ndim - where.ndim)), yes, no)


def _minimum(leg: Leg, e: Array) -> Array:
    """The distance to the minimum of V: Newton on the logarithm of the ratio of its two slopes."""
    floor = _FLOOR * jnp.sum(e * (leg.grow + leg.shrink), -1, keepdims=True) + TINY
    grow, shrink = (e * (part + floor) for part in (leg.grow, leg.shrink))

    def improve(_, x):
        stretch = jnp.exp(2 * e * x[:, None])
        up, down = grow * stretch, shrink / stretch
        all_up, all_down = jnp.sum(up, -1), jnp.sum(down, -1)
        slope = jnp.sum(e * up, -1) / all_up + jnp.sum(e * down, -1) / all_down
        return jnp.maximum(x - jnp.log(all_up / all_down) / (2 * slope), 0.0)

    return lax.fori_loop(0, _STEPS, improve, jnp.zeros_like(leg.square))


def _zero(leg: Leg, e: Array, lowest: Array) -> Array:
    """The distance to the first zero of V, for legs that have one before `lowest`.

    V is a sum of exponentials minus a constant: their logarithm is convex and nearly straight.
    """
    active = e > 0
    grow, shrink = (jnp.where(active, part, 0.0) for part in (leg.grow, leg.shrink))
    constant = jnp.sum(grow + shrink, -1) - leg.square

    def improve(_, x):
        stretch = jnp.exp(2 * e * x[:, None])
        up, down = grow * stretch, shrink / stretch
        total = jnp.sum(up + down, -1)
        slope = 2 * jnp.sum(e * (up - down), -1) / total
        step = jnp.log(total / constant) / slope
        return jnp.clip(jnp.where(jnp.isfinite(step), x - step, x), 0.0, lowest)

    return lax.fori_loop(0, _STEPS, improve, jnp.zeros_like(leg.square))

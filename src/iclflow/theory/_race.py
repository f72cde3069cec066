"""The race of small heads for the components of a task, and the impulse of each drop on the others.

While a head learns component c, it is not quite aligned: it carries a little of every unlearned
component d, k_d = q_d = δ_d a^⅓ U^r for small U = v/a^⅓, with r = e_d/e_c and a the strength of c.
So the force E is for a while not diagonal, and its impulse turns the small heads:

    ∫ E_cd dt/τ = −δ_d a^−⅓ (λ_d/λ_c) S_q,    ∫ E_dc dt/τ = −δ_d a^−⅓ (C_d/C_c) S_k.

The misalignment obeys a linear equation in θ = ln(s/(1 − s)), s = U³,

    3 k′ = r q − s (C_d/C_c) k,   3 q′ = r k − s (λ_d/λ_c) q,   k, q → exp(rθ/3) as θ → −∞,

and S_k, S_q = ⅓ ∫ s^⅓ (k, q) dθ. They depend on the task alone. This is the leading correction to
treating a drop as a switch: relative order s·s^(1−r) in the initial size s, where switching
smoothly matters at order s². Derived in docs/theory/linear.md.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..runtime import quick_options
from ._idle_head import advance, path

# Runge–Kutta steps in θ, and the end of the interval on both sides: e^−25 is below rounding.
_STEPS = 200
_RANGE = 25.0
# Weights below this share of a head's largest are rounding: exactly aligned heads stay aligned.
_ALIGNED = 1e-10
# A mirror shorter than rounding (squared) has no direction.
_NO_MIRROR = 1e-28


class Impulses(NamedTuple):
    """Row c, column d: −∫ E_dc dt and −∫ E_cd dt per δ_d when c is learned; 0 where d is no
    smaller component than c."""

    key: Float[np.ndarray, "J J"]
    query: Float[np.ndarray, "J J"]


def impulses(
    rates: np.ndarray, eigenvalues: np.ndarray, second_moments: np.ndarray, sizes: np.ndarray
) -> Impulses:
    """The impulses of every drop on every smaller component.

    **Arguments:**

    - `rates`, `eigenvalues`, `second_moments`: e_d, λ_d and C_d of each component.
    - `sizes`: a_d^⅓.
    """
    r, left, right = (x[None, :] / x[:, None] for x in (rates, second_moments, eigenvalues))
    smaller = (r < 1) & (left * right > r**2)
    # Harmless numbers in the entries that are set to zero at the end.
    r = np.where(smaller, r, 0.5)
    left, right = np.where(smaller, left, 1), np.where(smaller, right, 1)

    def slope(theta, state):
        s = 1 / (1 + np.exp(-theta))
        k, q = state[:2]
        turn = [r * q - left * s * k, r * k - right * s * q]
        return np.stack([*turn, s ** (1 / 3) * k, s ** (1 / 3) * q]) / 3

    # Before −_RANGE the start is exact to rounding; after +_RANGE the equation has constant
    # coefficients and its integral is a 2×2 solve.
    begin = np.exp(-r * _RANGE / 3)
    so_far = np.exp(-(1 + r) * _RANGE / 3) / (1 + r)
    state = np.stack([begin, begin, so_far, so_far])
    h = 2 * _RANGE / _STEPS
    for theta in -_RANGE + h * np.arange(_STEPS):
        one = slope(theta, state)
        two = slope(theta + h / 2, state + h / 2 * one)
        three = slope(theta + h / 2, state + h / 2 * two)
        four = slope(theta + h, state + h * three)
        state = state + h / 6 * (one + 2 * two + 2 * three + four)
    k, q, sum_k, sum_q = state
    determinant = left * right - r**2
    sum_k = sum_k + (right * k + r * q) / determinant
    sum_q = sum_q + (r * k + left * q) / determinant
    scale = np.where(smaller, 1 / sizes[:, None], 0.0)
    return Impulses(scale * left * sum_k, scale * right * sum_q)


class RaceConstants(NamedTuple):
    """The numbers of a task that a race depends on: arrays on the device."""

    basis: Float[Array, "D J"]
    rates: Float[Array, " J"]
    sizes: Float[Array, " J"]
    key_impulse: Float[Array, "J J"]
    query_impulse: Float[Array, "J J"]


def race(v: np.ndarray, K: np.ndarray, Q: np.ndarray, task: RaceConstants, drops: int) -> Array:
    """Blow-up time, component and head of each drop, as rows of one array."""
    return compiled_race()(v, K, Q, task, drops)


@functools.cache
def compiled_race() -> Callable[..., Array]:
    # A race takes a fraction of a millisecond, optimised or not; to optimise it takes two seconds.
    options = quick_options(optimise=False) if jax.default_backend() == "cpu" else None
    return jax.jit(_race, static_argnames="drops", compiler_options=options)


def _race(v: Array, K: Array, Q: Array, task: RaceConstants, drops: int) -> Array:
    count = task.rates.shape[0]
    components, heads = jnp.arange(count), jnp.arange(v.shape[0])

    def stage(carry, _):
        v, k, q, learned, done, now = carry
        e = jnp.where(learned, 0.0, task.rates)
        way = path(v, k, q, e)
        finish = jnp.where(done, jnp.inf, way.time)
        winner = jnp.argmin(finish)
        happens = jnp.isfinite(finish[winner])
        outwards = jnp.where(way.turns, -way.sign, way.sign)[winner]
        growing = k[winner] + outwards * q[winner]
        rate = jnp.max(jnp.where(growing != 0, e, 0.0))
        tied = (e == rate) & ~learned
        c = jnp.argmax(tied)
        width = 1 / (task.rates[c] * task.sizes[c])
        elapsed = jnp.where(happens, jnp.maximum(finish[winner] - width, 0.0), 0.0)
        v, k, q = advance(way, v, k, q, e, elapsed)
        # Equal rates leave the basis open: the winner's own direction becomes component c.
        axis = (components == c).astype(k.dtype)
        heading = jnp.where(tied, growing, 0.0)
        mirror = heading / jnp.linalg.norm(heading) - axis
        growing, k, q = (_reflect(x, mirror) for x in (growing, k, q))
        delta = jnp.clip(_misalignment(growing, axis, e, task.sizes[c]), -1.0, 1.0)
        hit = _strike(v, k, q, axis, -delta * task.key_impulse[c], -delta * task.query_impulse[c])
        learned, done = learned | (components == c) & happens, done | (heads == winner)
        carry = (*hit, learned, done, now + elapsed)
        return carry, jnp.stack([now + finish[winner], c, winner])

    k, q = K[..., 0] @ task.basis, Q[..., 0] @ task.basis
    k, q = _without_rounding(k, q)
    start = (v, k, q, components < 0, heads < 0, jnp.zeros(()))
    return lax.scan(stage, start, None, length=drops)[1].T


def _reflect(x: Array, mirror: Array) -> Array:
    """Householder's reflection along `mirror`; nothing for a mirror of length zero."""
    square = jnp.sum(mirror**2)
    scale = jnp.where(square > _NO_MIRROR, 2 / jnp.where(square > 0, square, 1.0), 0.0)
    return x - scale * jnp.sum(x * mirror, -1, keepdims=True) * mirror


def _without_rounding(k: Array, q: Array) -> tuple[Array, Array]:
    """k and q with k ± q set to zero where rotating into the eigenbasis left only rounding."""
    plus, minus = k + q, k - q
    size = jnp.max(jnp.maximum(jnp.abs(plus), jnp.abs(minus)), -1, keepdims=True)
    plus, minus = (jnp.where(jnp.abs(x) > _ALIGNED * size, x, 0.0) for x in (plus, minus))
    return (plus + minus) / 2, (plus - minus) / 2


def _misalignment(growing: Array, axis: Array, e: Array, size: Array) -> Array:
    """δ_d of the head that learns a component.

    **Arguments:**

    - `growing`: its k ± q, whichever grows, at any time while it is small.
    - `axis`: 1 at the component that it learns, 0 elsewhere; `size`: a^⅓ of that component.
    """
    top = jnp.sum(axis * growing)
    r = e / jnp.sum(axis * e)
    delta = jnp.sign(top) * growing / 2 * (2 / jnp.abs(top)) ** r * size ** (r - 1)
    return jnp.where((axis == 0) & (e > 0), delta, 0.0)


def _strike(v: Array, k: Array, q: Array, axis: Array, to_key: Array, to_query: Array):
    """The weights of small heads after the impulse matrix axis to_queryᵀ + to_key axisᵀ.

    One midpoint step: the impulse is small, and its square is beyond the order of the cascade.
    """

    def slope(state):
        v, k, q = state
        force_q = _along(q, to_query) * axis + _along(q, axis) * to_key
        force_k = _along(k, to_key) * axis + _along(k, axis) * to_query
        return jnp.sum(k * force_q, -1), v[:, None] * force_q, v[:, None] * force_k

    def move(state, step, by):
        return jax.tree.map(lambda x, dx: x + step * dx, state, by)

    state = (v, k, q)
    middle = move(state, 0.5, slope(state))
    return move(state, 1.0, slope(middle))


def _along(x: Array, direction: Array) -> Array:
    return jnp.sum(x * direction, -1, keepdims=True)

"""What a drop does to the heads that are still small.

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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_STEPS = 200
_RANGE = 25.0


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
    r, left, right = (
        np.where(smaller, r, 0.5),
        np.where(smaller, left, 1),
        np.where(smaller, right, 1),
    )

    def slope(theta, state):
        s = 1 / (1 + np.exp(-theta))
        k, q = state[:2]
        return (
            np.stack(
                [r * q - left * s * k, r * k - right * s * q, s ** (1 / 3) * k, s ** (1 / 3) * q]
            )
            / 3
        )

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


def misalignment(growing: Array, axis: Array, e: Array, size: Array) -> Array:
    """δ_d of the head that learns a component.

    **Arguments:**

    - `growing`: its k ± q, whichever grows, at any time while it is small.
    - `axis`: 1 at the component that it learns, 0 elsewhere; `size`: a^⅓ of that component.
    """
    top = jnp.sum(axis * growing)
    r = e / jnp.sum(axis * e)
    delta = jnp.sign(top) * growing / 2 * (2 / jnp.abs(top)) ** r * size ** (r - 1)
    return jnp.where((axis == 0) & (e > 0), delta, 0.0)


def struck(v: Array, k: Array, q: Array, axis: Array, to_key: Array, to_query: Array):
    """The weights of small heads after the impulse matrix axis to_queryᵀ + to_key axisᵀ."""

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

"""The smallest risk that a stack of scalar layers can reach on white inputs.

Of a polynomial p with p(0) = 1, a stack's, the risk without noise is Σ_k weights·p(nodes)².
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# As many halvings as tell apart all numbers of one size, and some more for small ones.
_HALVINGS = 100


def smallest_of_steps(
    nodes: Float[Array, " K"], weights: Float[Array, " K"], depth: int
) -> Float[Array, ""]:
    """min over polynomials of degree L: Christoffel's function at 0, 1/Σ_{j≤L} π_j(0)².

    π_j are the orthonormal polynomials. The best p has the zeros of a Gauss rule, which are real,
    so that layers reach it. Each π_{j+1} is s·π_j made orthogonal to all before it, twice, and
    takes its value at 0 from what that takes off.
    """
    total = jnp.sum(weights)
    basis = jnp.zeros((depth + 1, len(nodes))).at[0].set(jnp.sqrt(weights / total))
    at_zero = jnp.zeros(depth + 1).at[0].set(1 / jnp.sqrt(total))

    def extend(j: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        basis, at_zero = found
        new = nodes * basis[j]
        first = basis @ new
        new = new - first @ basis
        second = basis @ new
        new = new - second @ basis
        size = jnp.linalg.norm(new)
        value = -(first + second) @ at_zero / size
        return basis.at[j + 1].set(new / size), at_zero.at[j + 1].set(value)

    _, at_zero = jax.lax.fori_loop(0, depth, extend, (basis, at_zero))
    return 1 / jnp.sum(at_zero**2)


def smallest_of_loop(
    nodes: Float[Array, " K"], weights: Float[Array, " K"], depth: int
) -> Float[Array, ""]:
    """min over γ of the risk of p = (1 − γs)^L: convex, so that its slope changes sign once."""

    def falls(gamma: Array) -> Array:
        return weights @ (nodes * (1 - gamma * nodes) ** (2 * depth - 1)) > 0

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        below = falls(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    # Beyond 1/(the smallest node) every term of the slope is positive.
    smallest = jnp.min(jnp.where(nodes > 0, nodes, jnp.inf))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(smallest), 1 / smallest))
    return weights @ (1 - (low + high) / 2 * nodes) ** (2 * depth)


def smallest_of_one(
    nodes: Float[Array, " K"], weights: Float[Array, " K"], noise: Float[Array, " K"]
) -> Float[Array, ""]:
    """min over γ of one layer, a parabola; with noise Σ noise·γ² on top."""
    return jnp.sum(weights) - (weights @ nodes) ** 2 / (weights @ nodes**2 + jnp.sum(noise))

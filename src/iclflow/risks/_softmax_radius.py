"""Averages over the length r of a query x_q ~ N(0, I_D), by rules that know the weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammainccinv, gammaincinv, gammaln

# Up to which |ω| each of the rules below serves.
_REACH = (0.22, 0.5, 2.0)


def radius_nodes(
    omega: Float[Array, " H"], dim: int, digits: int
) -> tuple[Float[Array, " R"], Float[Array, " R"]]:
    """Nodes r and their probabilities; a node without weight need not be looked at.

    All averages are analytic in ω²r² but for the negative axis, where they are singular at 0
    already, if only by exp(−const/ω²r²). Gauss–Laguerre nodes in r²/2 are the fewest as long as
    ωr is small; beyond, Gauss–Legendre nodes between quantiles of r, which crowd towards 0.
    """
    nodes, weights = (jnp.asarray(table) for table in _rules(dim, digits))
    # Which rule is used must not enter derivatives.
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(omega)))
    rule = jnp.searchsorted(jnp.asarray(_REACH), largest)
    return nodes[rule], weights[rule]


@functools.cache
def _rules(dim: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """The rules for growing |ω|, a row each, filled up with nodes of weight zero."""
    counts = [round(share * digits) for share in (0.9, 2.4, 4.0, 6.3)]
    rules = [gauss_radius(dim, digits, n) for n in counts[:2]]
    rules += [legendre_radius(dim, n, digits) for n in counts[2:]]
    size = max(len(nodes) for nodes, _ in rules)
    # Equal lengths make the choice among rules a lookup in one array.
    fill = lambda row, value: np.pad(row, (0, size - len(row)), constant_values=value)
    return (
        np.stack([fill(nodes, 1.0) for nodes, _ in rules]),
        np.stack([fill(weights, 0.0) for _, weights in rules]),
    )


def gauss_radius(dim: int, digits: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes for t = r²/2, which has density t^(D/2−1) exp(−t), by Golub and Welsch."""
    k, power = np.arange(count), dim / 2 - 1
    off = np.sqrt(k[1:] * (k[1:] + power))
    values, vectors = np.linalg.eigh(
        np.diag(2 * k + power + 1) + np.diag(off, 1) + np.diag(off, -1)
    )
    weights = vectors[0] ** 2
    # r² is the fastest that an integrand grows.
    kept = weights * (1 + 2 * values) > 10.0 ** -(digits + 3)
    return np.sqrt(2 * values[kept]), weights[kept]


def legendre_radius(dim: int, count: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    rest = 10.0 ** -(digits + 3)
    low, high = np.sqrt(2 * gammaincinv(dim / 2, rest)), np.sqrt(2 * gammainccinv(dim / 2, rest))
    x, weights = np.polynomial.legendre.leggauss(count)
    r = low + (high - low) * (x + 1) / 2
    log_density = (dim - 1) * np.log(r) - r**2 / 2 - gammaln(dim / 2) - (dim / 2 - 1) * np.log(2)
    return r, weights * (high - low) / 2 * np.exp(log_density)

"""Averages over the norms of the blocks of a query x_q ~ N(0, I): one block, or several."""

import functools
import itertools
from math import comb
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

# The largest |ω| for the first, second and third rule below; the fourth serves beyond (measured).
_REACH = (0.22, 0.5, 2.0)
# Up to so many blocks a product of rules needs fewer points than a Sobol sequence.
_PRODUCT = 3
# Degrees of polynomials to make exact, and how many points each polynomial needs: with fewer, the
# weights would become uneven or negative.
_DEGREES, _POINTS = (5, 4, 3, 2, 1), 8
# Points are kept this far from 0 and 1, whose quantiles are 0 and infinite.
_EDGE = 1e-15


def radius_nodes(
    omega: Float[Array, " H"], dim: int, digits: int
) -> tuple[Float[Array, " R"], Float[Array, " R"]]:
    """Nodes r and their probabilities; nodes of weight zero can be skipped.

    All averages are analytic in ω²r² but for the negative axis, where they are singular at 0
    already, if only by exp(−const/ω²r²). Gauss–Laguerre nodes in r²/2 are the fewest as long as
    ωr is small; beyond, Gauss–Legendre nodes between quantiles of r, which crowd towards 0.
    """
    nodes, weights = (jnp.asarray(table) for table in _rules(dim, digits))
    # The choice of a rule is not differentiated.
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(omega)))
    rule = jnp.searchsorted(jnp.asarray(_REACH), largest)
    return nodes[rule], weights[rule]


@functools.cache
def _rules(dim: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """The rules for growing |ω|, one per row, filled up with nodes of weight zero."""
    # Nodes per digit of each rule (measured).
    counts = [round(share * digits) for share in (0.9, 2.4, 4.0, 6.3)]
    rules = [gauss_radius(dim, digits, n) for n in counts[:2]]
    rules += [legendre_radius(dim, n, digits) for n in counts[2:]]
    size = max(len(nodes) for nodes, _ in rules)
    # With equal lengths the choice of a rule is a lookup in one array.
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
    # No integrand grows faster than r²: what is dropped is below the error of the rule.
    kept = weights * (1 + 2 * values) > 10.0 ** -(digits + 3)
    return np.sqrt(2 * values[kept]), weights[kept]


def legendre_radius(dim: int, count: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes between two quantiles of r, weighted with its density."""
    rest = 10.0 ** -(digits + 3)
    squares = scipy.special.gammaincinv(dim / 2, rest), scipy.special.gammainccinv(dim / 2, rest)
    low, high = np.sqrt(2 * squares[0]), np.sqrt(2 * squares[1])
    x, weights = np.polynomial.legendre.leggauss(count)
    r = low + (high - low) * (x + 1) / 2
    log_gamma = scipy.special.gammaln(dim / 2)
    log_density = (dim - 1) * np.log(r) - r**2 / 2 - log_gamma - (dim / 2 - 1) * np.log(2)
    return r, weights * (high - low) / 2 * np.exp(log_density)


class BlockNorms(NamedTuple):
    """Points (r_1, …, r_I) and their probabilities."""

    radii: Float[Array, "R I"]
    weights: Float[Array, " R"]


def block_norms(sizes: tuple[int, ...], digits: int) -> BlockNorms:
    """A rule for means over the norms of independent normal vectors of these dimensions."""
    radii, weights = _rule(sizes, digits)
    return BlockNorms(jnp.asarray(radii), jnp.asarray(weights))


@functools.lru_cache(maxsize=32)
def _rule(sizes: tuple[int, ...], digits: int) -> tuple[np.ndarray, np.ndarray]:
    if len(sizes) > _PRODUCT:
        return _sobol_rule(sizes, digits)
    # One more digit along each norm, since the errors of the factors add up.
    each = [gauss_radius(size, digits + 1, digits + 2) for size in sizes]
    radii = np.stack([g.ravel() for g in np.meshgrid(*(r for r, _ in each), indexing="ij")], 1)
    weights = functools.reduce(np.multiply.outer, [w for _, w in each]).ravel()
    # An integrand grows as r²: what is dropped is far below the error of the rule.
    kept = weights * (1 + np.sum(radii**2, 1)) > 10.0 ** -(digits + 3) * sum(sizes)
    return radii[kept], weights[kept]


def _sobol_rule(sizes: tuple[int, ...], digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Sobol points, the same at every call, with weights that make polynomials in r_i² exact."""
    from scipy.stats.qmc import Sobol  # loads all of scipy.stats: a third of starting up

    # A fixed shift by irrational numbers takes the points off the edges of the cube.
    shift = np.sqrt(np.arange(2, len(sizes) + 2) + 0.5)
    points = (Sobol(len(sizes), scramble=False).random_base2(digits + 5) + shift) % 1
    shapes = np.asarray(sizes) / 2
    halves = scipy.special.gammaincinv(shapes, np.clip(points, _EDGE, 1 - _EDGE))
    return np.sqrt(2 * halves), _exact_for_polynomials(halves, shapes)


def _exact_for_polynomials(halves: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Weights, as even as possible, that integrate polynomials in t_i = r_i²/2 exactly under the
    Gamma distributions, up to the degree that so many points allow."""
    count, dim = halves.shape
    degree = next(k for k in _DEGREES if k == 1 or comb(dim + k, k) <= count // _POINTS)
    orders = [
        tuple(chosen.count(i) for i in range(dim))
        for k in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), k)
    ]
    # Laguerre polynomials are orthogonal, so that the system is well-conditioned; all but the
    # constant have mean zero.
    tables = [
        [scipy.special.eval_genlaguerre(k, shape - 1, t) for k in range(degree + 1)]
        for shape, t in zip(shapes, halves.T)
    ]
    rows = np.stack([np.prod([tables[i][k] for i, k in enumerate(o)], axis=0) for o in orders])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    even = np.full(count, 1 / count)
    wanted = np.array([0.0 if sum(order) else rows[0, 0] for order in orders])
    return even + np.linalg.lstsq(rows, wanted - rows @ even, rcond=None)[0]

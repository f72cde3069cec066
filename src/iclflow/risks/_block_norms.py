"""Averages over the norms of the blocks of a query x_q ~ N(0, I)."""

import functools
import itertools
from math import comb
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import eval_genlaguerre, gammaincinv

from ._softmax_radius import gauss_radius

# Up to so many blocks a product of rules is cheaper than points spread over all of them.
_PRODUCT = 3
# Degrees of polynomials that are made exact, and points per polynomial that keep weights even.
_DEGREES, _POINTS = (5, 4, 3, 2, 1), 8
# Quantiles at 0 and 1 would be infinite.
_EDGE = 1e-15


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
    # One digit more along each norm, since errors of the factors add up.
    each = [gauss_radius(size, digits + 1, digits + 2) for size in sizes]
    radii = np.stack([g.ravel() for g in np.meshgrid(*(r for r, _ in each), indexing="ij")], 1)
    weights = functools.reduce(np.multiply.outer, [w for _, w in each]).ravel()
    # What is left out is far below the error of the rule; an integrand grows as r².
    kept = weights * (1 + np.sum(radii**2, 1)) > 10.0 ** -(digits + 3) * sum(sizes)
    return radii[kept], weights[kept]


def _sobol_rule(sizes: tuple[int, ...], digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Sobol points, the same at every call, with weights that make polynomials in r_i² exact."""
    from scipy.stats.qmc import Sobol  # loads all of scipy.stats: a third of starting up

    # A fixed shift by irrational numbers takes the points off the edges of the cube.
    shift = np.sqrt(np.arange(2, len(sizes) + 2) + 0.5)
    points = (Sobol(len(sizes), scramble=False).random_base2(digits + 5) + shift) % 1
    shapes = np.asarray(sizes) / 2
    halves = gammaincinv(shapes, np.clip(points, _EDGE, 1 - _EDGE))
    return np.sqrt(2 * halves), _exact_for_polynomials(halves, shapes)


def _exact_for_polynomials(halves: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Weights close to even ones whose mean of every polynomial in t_i = r_i²/2, up to the degree
    that so many points allow, is that of the Gamma distributions."""
    count, dim = halves.shape
    degree = next(k for k in _DEGREES if k == 1 or comb(dim + k, k) <= count // _POINTS)
    orders = [
        tuple(chosen.count(i) for i in range(dim))
        for k in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), k)
    ]
    # Laguerre polynomials, each with mean zero but for the constant, are far from dependent.
    tables = [
        [eval_genlaguerre(k, shape - 1, t) for k in range(degree + 1)]
        for shape, t in zip(shapes, halves.T)
    ]
    rows = np.stack([np.prod([tables[i][k] for i, k in enumerate(o)], axis=0) for o in orders])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    even = np.full(count, 1 / count)
    wanted = np.array([0.0 if sum(order) else rows[0, 0] for order in orders])
    return even + np.linalg.lstsq(rows, wanted - rows @ even, rcond=None)[0]

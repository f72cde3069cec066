"""Averages over one normal variable at the nodes of a grid, the parts of exact softmax risks.

With e = exp(−exp(x + as)) and e′ the same of b and x′, every integral needs averages
⟨sⁿ e⁽ⁱ⁾ e′⁽ʲ⁾⟩ over s ~ N(0, 1) on a grid of (x, x′). A plan is a few numbers: where the nodes of a
grid lie, which follows from the weights, without the values at these nodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ._softmax_grids import (
    LEAST_SLOPE,
    Accuracy,
    Axis,
    GapGrid,
    NormalGrid,
    Scalar,
    ScoreGrid,
    normal_density,
)

# exp(−exp(8)) is zero in float64: larger arguments would only overflow.
_LARGEST = 8.0
# How far beyond its usual score the first of two steep heads often is.
_ROOM = 8.0

# Which average ⟨sⁿ e⁽ⁱ⁾ e′⁽ʲ⁾⟩: (n, i, j).
Index = tuple[int, int, int]


class Sizes(NamedTuple):
    """The number of nodes of a block along each axis. There are as many blocks as needed."""

    first: int
    second: int
    normal: int


class LinePlan(NamedTuple):
    """A head with itself: 1/Z² = ∫ t exp(−tZ) dt leaves one integral."""

    score: ScoreGrid
    normal: NormalGrid

    @staticmethod
    def of(a: Scalar, length: Scalar, accuracy: Accuracy) -> "LinePlan":
        return LinePlan(
            ScoreGrid.of(a, length, accuracy, wide=True), NormalGrid.of(a, length, accuracy)
        )

    def blocks(self, sizes: Sizes) -> Int[Array, ""]:
        return self.score.axis.blocks(sizes.first)

    def averages(self, slopes: list[Scalar], sizes: Sizes, index: Array | int, wanted: list[Index]):
        """The weights of a block of the grid, and the wanted averages at its nodes."""
        x, weight = self.score.place(*self.score.axis.block(index, sizes.first))

        def block(s: Array, step: Scalar) -> dict[int, Array]:
            table = _survival(x[:, None] + slopes[0] * s)
            density = step * normal_density(s)
            return _products(wanted, 1, lambda n, i, j: density[None] * s**n, table)

        return weight, _over_blocks(self.normal.axis, sizes.normal, block, wanted, 1)


class ProductPlan(NamedTuple):
    """Two heads on a grid in x times one in x′: for slopes up to about 2."""

    first: ScoreGrid
    second: ScoreGrid
    normal: NormalGrid

    @staticmethod
    def of(a: Scalar, b: Scalar, length: Scalar, accuracy: Accuracy) -> "ProductPlan":
        return ProductPlan(
            ScoreGrid.of(a, length, accuracy, wide=False),
            ScoreGrid.of(b, length, accuracy, wide=False),
            NormalGrid.of(jnp.maximum(jnp.abs(a), jnp.abs(b)), length, accuracy),
        )

    def blocks(self, sizes: Sizes) -> Int[Array, ""]:
        return self.first.axis.blocks(sizes.first) * self.second.axis.blocks(sizes.second)

    def averages(self, slopes: list[Scalar], sizes: Sizes, index: Array | int, wanted: list[Index]):
        """The weights of a block of the grid, and the wanted averages at its nodes."""
        a, b = slopes
        (x, weight), (y, other) = _blocks(self.first, self.second, sizes, index)

        def block(s: Array, step: Scalar) -> dict[int, Array]:
            left, right = _survival(x[:, None] + a * s), _survival(y[:, None] + b * s)
            density = step * normal_density(s)
            return _products(wanted, 2, lambda n, i, j: left(i) * (density * s**n), right)

        averages = _over_blocks(self.normal.axis, sizes.normal, block, wanted, 2)
        return weight[:, None] * other, averages


class RidgePlan(NamedTuple):
    """Two heads of which the first is steep, |a| ≥ |b|, on a grid x = −a m, x′ = −z − b m.

    The density of the two largest scores is a ridge along m: across it, it has structure of
    order 1 whatever the slopes; along it, it varies as slowly as a normal density. A step along
    m only moves s, so that all averages are products of a table φ(m + y) and tables in (z, y).
    """

    first: ScoreGrid
    second: GapGrid
    normal: NormalGrid

    @staticmethod
    def of(a: Scalar, b: Scalar, length: Scalar, accuracy: Accuracy) -> "RidgePlan":
        a, b = jnp.maximum(jnp.abs(a), LEAST_SLOPE), jnp.where(a < 0, -b, b)
        return RidgePlan(
            # At a gap z < 0 the second head is where it usually is when the first is beyond.
            ScoreGrid.of(a, length, accuracy, wide=True, even=b < 0, room=_ROOM),
            GapGrid.of(a, b, length, accuracy),
            NormalGrid.shifted(a, length, accuracy),
        )

    def blocks(self, sizes: Sizes) -> Int[Array, ""]:
        return self.first.axis.blocks(sizes.first) * self.second.axis.blocks(sizes.second)

    def averages(self, slopes: list[Scalar], sizes: Sizes, index: Array | int, wanted: list[Index]):
        """The weights of a block of the grid, and the wanted averages at its nodes."""
        sign = jnp.where(slopes[0] < 0, -1.0, 1.0)
        a, b = (sign * slope for slope in slopes)
        (x, weight), (z, other) = _blocks(self.first, self.second, sizes, index)
        m = -x / a

        def block(y: Array, step: Scalar) -> dict[int, Array]:
            s = m[:, None] + y
            density = step * normal_density(s)
            left, right = _survival(a * y), _survival(b * y - z[:, None])
            shared = lambda n: density * (sign * s) ** n
            return _products(wanted, 0, lambda n, i, j: left(i) * right(j), shared)

        averages = _over_blocks(self.normal.axis, sizes.normal, block, wanted, 0)
        return other[:, None] * weight, averages


Plan = LinePlan | ProductPlan | RidgePlan


def _blocks(first: ScoreGrid, second: ScoreGrid | GapGrid, sizes: Sizes, index: Array | int):
    """The nodes along both axes of one block of a grid, and their weights."""
    row, column = jnp.divmod(index, second.axis.blocks(sizes.second))
    return (
        first.place(*first.axis.block(row, sizes.first)),
        second.place(*second.axis.block(column, sizes.second)),
    )


def _survival(v: Array) -> Callable[[int], Array]:
    """The derivatives of exp(−exp(v)): polynomials in ρ = exp(v), times exp(−ρ)."""
    rate = jnp.exp(jnp.minimum(v, _LARGEST))
    # Without a barrier XLA would compute these tables again for every product.
    rate, survive = jax.lax.optimization_barrier((rate, jnp.exp(-rate)))

    def derivative(order: int) -> Array:
        polynomial = np.polynomial.Polynomial([1.0])
        for _ in range(order):
            polynomial = (polynomial.deriv() - polynomial) * np.polynomial.Polynomial([0.0, 1.0])
        total = jnp.zeros_like(rate)
        for coefficient in polynomial.coef[::-1]:
            total = total * rate + coefficient
        return total * survive

    return derivative


def _products(
    wanted: list[Index], place: int, own: Callable, shared: Callable[[int], Array]
) -> dict[int, Array]:
    """own(n, i, j) @ shared(k)ᵀ for all wanted (n, i, j), where k is the index at `place`. Those
    with the same k are one large product, which is faster."""
    return {
        k: jnp.concatenate([own(*index) for index in group]) @ shared(k).T
        for k, group in _groups(wanted, place).items()
    }


def _groups(wanted: list[Index], place: int) -> dict[int, list[Index]]:
    keys = sorted({index[place] for index in wanted})
    return {k: [index for index in wanted if index[place] == k] for k in keys}


def _over_blocks(
    axis: Axis, size: int, block: Callable, wanted: list[Index], place: int
) -> dict[Index, Array]:
    """Sums of `_products` over the nodes of `axis`, each under its index."""
    sums = sum_of(lambda index: block(*axis.block(index, size)), axis.blocks(size))
    found = {}
    for k, group in _groups(wanted, place).items():
        found |= zip(group, jnp.split(sums[k], len(group)))
    return found


def sum_of(part: Callable[[Array | int], Any], count: Array | int) -> Any:
    """The sum of `part(index)` over `count` indices."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(part, 0))
    add = lambda index, sums: jax.tree.map(jnp.add, sums, part(index))
    return jax.lax.fori_loop(0, count, add, zeros)

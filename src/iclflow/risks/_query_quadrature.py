"""Softmax attention of two heads on random tokens, averaged exactly.

Two heads with score vectors v and v′ attend to L tokens z ~ N(0, I) with p = softmax(z·v) and
p′ = softmax(z·v′). Their outputs m = Σ p_l z_l and m′ have, by repeated use of Stein's identity,

  E m = (1 − E|p|²) v,
  E[m m′ᵀ] = E[p·p′] I + A v v′ᵀ + B v vᵀ + C v′ vᵀ + D v′ v′ᵀ,

  A = E[(1 − |p|²)(1 − |p′|²)],          B = 2 E[|p|² p·p′ − Σ p²p′],
  C = E[p·p′ + (p·p′)² − Σ p²p′ − Σ pp′²],   D = 2 E[|p′|² p·p′ − Σ pp′²],

so that a few numbers suffice, and no direction is ever singular. With 1/Zⁿ = ∫ tⁿ⁻¹e^{−tZ}dt/Γ(n)
each of them is an integral over two variables x = log t, x′ = log t′ of powers of brackets
⟨g_n g′_m⟩ over one token, g_n = exp(n(x + z·v) − exp(x + z·v)). A token enters through two
correlated normal scores; the second is smoothed over what the first does not fix, in one table.
Derived in docs/theory/softmax.md.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._softmax_grids import typical_score

# Added to variances of scores: the square root of zero has no gradient.
_TINY = 1e-12
# Added to brackets: the logarithm of one that underflows would be infinite.
_LEAST = 1e-300
# How many integrals are computed at a time, which bounds the memory.
_TOGETHER = 16
# Candidates for the right end of the scores: a coarse choice wastes few nodes.
_CANDIDATES = 48
# Normal scores beyond so many standard deviations do not lengthen the stretch of a head.
_FARTHEST = 7


class Resolution(NamedTuple):
    """Nodes along log t and along a normal score; exp(−tail) is neglected at the ends.

    With the defaults errors are about 1e-7 for scores with standard deviations up to 3.

    **Example:**

    ```pycon
    >>> icl.risks.Resolution()
    Resolution(nodes=40, normal_nodes=60, tail=20.0)
    ```
    """

    nodes: int = 40
    normal_nodes: int = 60
    tail: float = 20.0


class HeadMoments(NamedTuple):
    """E|p|², E Σp³ and E|p|⁴."""

    square: Array
    cube: Array
    fourth: Array

    @property
    def mean(self) -> Array:
        """E m in units of v."""
        return 1 - self.square

    @property
    def along(self) -> Array:
        """The coefficient of v vᵀ in E[m mᵀ]; that of I is E|p|²."""
        return 1 - self.square - 6 * self.cube + 6 * self.fourth


class PairMoments(NamedTuple):
    """The expectations of p·p′, |p|²|p′|², Σp²p′, Σpp′², (p·p′)², |p|² p·p′ and |p′|² p·p′."""

    overlap: Array
    squares: Array
    first_twice: Array
    second_twice: Array
    overlap_square: Array
    first_square: Array
    second_square: Array

    def coefficients(self, first: HeadMoments, second: HeadMoments) -> Float[Array, "4 *batch"]:
        """A, B, C and D."""
        return jnp.stack(
            [
                1 - first.square - second.square + self.squares,
                2 * (self.first_square - self.first_twice),
                self.overlap + self.overlap_square - self.first_twice - self.second_twice,
                2 * (self.second_square - self.second_twice),
            ]
        )


def head_moments(
    variance: Float[Array, "*#batch"], length: Float[Array, "*#batch"], resolution: Resolution
) -> HeadMoments:
    """The moments of heads whose scores have these variances, on contexts of these lengths.

    **Example:**

    ```pycon
    >>> one = jnp.ones(1)
    >>> moments = icl.risks.head_moments(0 * one, 40 * one, icl.risks.Resolution())
    >>> moments.square.round(3)
    Array([0.025], dtype=float64)
    ```
    """
    one = lambda variance, length: _one_head(variance, length, resolution)
    return HeadMoments(*_each(one, variance, length))


def pair_moments(
    first: Float[Array, "*#batch"],
    second: Float[Array, "*#batch"],
    product: Float[Array, "*#batch"],
    length: Float[Array, "*#batch"],
    resolution: Resolution,
) -> PairMoments:
    """The moments of pairs of heads whose scores have these variances and this covariance."""
    one = lambda *pair: _one_pair(*pair, resolution=resolution)
    return PairMoments(*_each(one, first, second, product, length))


class Averages(NamedTuple):
    """Moments of the outputs of heads with given scores, averaged over contexts and lengths.

    **Fields:**

    - `first`, `second`: the pairs of heads, each once.
    - `square`, `centre`, `along`: of each head E|p|², and the coefficients of v in E m and of
      v vᵀ in E[m mᵀ].
    - `overlap`, `coefficients`: E[p·p′], and A, B, C and D, of each pair.
    """

    first: np.ndarray
    second: np.ndarray
    square: Float[Array, "P H"]
    centre: Float[Array, "P H"]
    along: Float[Array, "P H"]
    overlap: Float[Array, "P pairs"]
    coefficients: Float[Array, "4 P pairs"]

    @staticmethod
    def of(
        scores: Float[Array, "P H D"],
        lengths: Float[Array, " K"],
        probabilities: Float[Array, " K"],
        resolution: Resolution,
    ) -> "Averages":
        """**Arguments:**

        - `scores`: v, at each of P queries and of each head.
        """
        norms = jnp.sum(scores**2, -1)
        first, second = np.triu_indices(norms.shape[1], 1)
        product = jnp.sum(scores[:, first] * scores[:, second], -1)
        single = head_moments(norms[..., None], lengths, resolution)
        pair = pair_moments(
            norms[:, first, None], norms[:, second, None], product[..., None], lengths, resolution
        )
        pick = lambda index: HeadMoments(*(moment[:, index] for moment in single))
        mean = lambda moments: moments @ probabilities
        return Averages(
            first,
            second,
            square=mean(single.square),
            centre=mean(single.mean),
            along=mean(single.along),
            overlap=mean(pair.overlap),
            coefficients=mean(pair.coefficients(pick(first), pick(second))),
        )


def _each(function: Callable[..., tuple[Array, ...]], *arguments: Array) -> Array:
    """Applies `function` to each element; its numbers are along a new first axis."""
    shape = jnp.broadcast_shapes(*(argument.shape for argument in arguments))
    flat = tuple(jnp.broadcast_to(argument, shape).reshape(-1) for argument in arguments)
    # The last batch is filled up with ones: one of another size would be compiled again.
    fill = -flat[0].size % _TOGETHER
    flat = tuple(jnp.pad(argument, (0, fill), constant_values=1.0) for argument in flat)
    # Recomputed on the backward pass, so that the tables of one batch are in memory at a time.
    one = jax.checkpoint(lambda of: jnp.stack(function(*of)))
    found = jax.lax.map(one, flat, batch_size=_TOGETHER)
    return found[: len(found) - fill].T.reshape(found.shape[1], *shape)


def _one_head(variance: Array, length: Array, resolution: Resolution) -> tuple[Array, ...]:
    slope = jnp.sqrt(variance + _TINY)
    x, dx = _score_nodes(slope, length, resolution)
    z, weight = _normal_nodes(length, resolution)
    e, g1, g2, g3, g4 = (table @ weight for table in _tables(x[:, None] + slope * z, 4))
    once, twice = _powers(e, length)
    one = jnp.sum(dx * once * g1)  # 1 up to the error of the grid, which the ratios cancel
    square = jnp.sum(dx * once * g2)
    cube = jnp.sum(dx * once * g3) / 2
    fourth = jnp.sum(dx * (once * g4 + twice * g2**2)) / 6
    return square / one, cube / one, fourth / one


def _one_pair(
    first: Array, second: Array, product: Array, length: Array, resolution: Resolution
) -> tuple[Array, ...]:
    a = jnp.sqrt(first + _TINY)
    shared = product / a
    own = jnp.sqrt(jnp.maximum(second - shared**2, 0.0) + _TINY)
    x, dx = _score_nodes(a, length, resolution)
    y, dy = _score_nodes(jnp.sqrt(second + _TINY), length, resolution)
    z, weight = _normal_nodes(length, resolution)
    left = [weight * table for table in _tables(x[:, None] + a * z, 3)]
    scores = y[:, None, None] + shared * z[:, None] + own * z
    right = [table @ weight for table in _tables(scores, 3)]
    bracket = lambda n, m: left[n] @ right[m].T
    once, twice = _powers(bracket(0, 0), length)
    over = lambda table: dx @ table @ dy
    both, g22 = bracket(1, 1), bracket(2, 2)
    left_twice, right_twice = bracket(2, 0), bracket(0, 2)
    return (
        over(once * both),
        over(once * g22 + twice * left_twice * right_twice),
        over(once * bracket(2, 1)),
        over(once * bracket(1, 2)),
        over(once * g22 + twice * both**2),
        over(once * bracket(3, 1) + twice * left_twice * both) / 2,
        over(once * bracket(1, 3) + twice * right_twice * both) / 2,
    )


def _score_nodes(slope: Array, length: Array, resolution: Resolution) -> tuple[Array, Array]:
    """Nodes along x and their weights.

    x = knee + ξ − exp(−ξ − stretch): left of the knee, where the integrand is a tail exp(x), steps
    grow. A saturated head, whose largest score dominates, is flat for a stretch before that.
    """
    # Moving the nodes changes an integral by its error alone, which needs no gradient.
    slope = jax.lax.stop_gradient(slope)
    freezing, typical = jnp.sqrt(2 * jnp.log(length)), typical_score(slope, length)
    stretch = jnp.clip(slope**2 - slope * freezing, 0, slope * jnp.maximum(_FARTHEST - freezing, 0))
    # The right end is the first candidate where P(all scores are below) has fallen to exp(−tail).
    z, weight = _normal_nodes(length, resolution)
    far = jnp.maximum(slope * z[-1] + math.log(resolution.tail) + typical, 1.0)
    candidates = jnp.linspace(0, 1, _CANDIDATES) * far
    bracket = jnp.exp(-jnp.exp(candidates[:, None] - typical + slope * z)) @ weight
    left = (length - 1) * jnp.log(bracket + _LEAST) > -resolution.tail
    last = candidates[jnp.minimum(jnp.sum(left), len(candidates) - 1)]
    first = -math.log(resolution.tail) - stretch
    xi = first + (last - first) * jnp.linspace(0, 1, resolution.nodes)
    fall = jnp.exp(-xi - stretch)
    return xi - fall - typical, (1 + fall) * (xi[1] - xi[0])


def _normal_nodes(length: Array, resolution: Resolution) -> tuple[Array, Array]:
    """Nodes along z ~ N(0, 1), as far as the largest of so many may lie, and their weights."""
    far = jnp.sqrt(2 * (resolution.tail + jnp.log(length)))
    z = far * jnp.linspace(-1, 1, resolution.normal_nodes)
    return z, (z[1] - z[0]) * jnp.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _tables(scores: Array, most: int) -> list[Array]:
    """exp(nv − exp v) at all scores v, for n = 0 … `most`."""
    grown = jnp.exp(scores)
    tables = [jnp.exp(-grown)]
    for _ in range(most):
        tables.append(tables[-1] * grown)
    return tables


def _powers(bracket: Array, length: Array) -> tuple[Array, Array]:
    """L·bracket^(L−1) and L(L−1)·bracket^(L−2): the factors of one token, and of two different."""
    log = jnp.log(bracket + _LEAST)
    return length * jnp.exp((length - 1) * log), length * (length - 1) * jnp.exp((length - 2) * log)

"""Where the integrands of exact softmax risks live: the grids, chosen from the weights.

A head of slope a gives token ℓ the score a s_ℓ + G_ℓ with s ~ N(0, 1) and G a Gumbel variable, and
attends to the token whose score is the largest. Integrals are over largest scores A = −x (and
B = −x′ of a second head), by the trapezoidal rule in a variable ξ in which the integrand is
analytic and falls off fast: then the error falls off as exp(−2πδ/h), with h the step and δ the
half-width of the strip in which it is analytic. Derived in docs/theory/softmax.md.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Scalar = Float[Array, ""]
Boolean = Bool[Array, ""] | bool
Nodes = Float[Array, " n"]

# Half-widths of strips: of exp(−exp(x)), and of the same after the map x = ξ − exp(−ξ).
_STRIP = math.pi / 2
_MAPPED_STRIP = 0.83
# Smaller slopes count as this one: grids would become infinitely wide.
LEAST_SLOPE = 1e-3
# From this gap on, steps widen from the scale of a Gumbel variable to that of the slope.
_WIDEN = 5.0


class Accuracy(NamedTuple):
    """How accurate a grid is: exp(−tail) is neglected, and steps leave errors of that size."""

    tail: Scalar

    @property
    def step(self) -> Scalar:
        return 2 * math.pi * _STRIP / self.tail

    @property
    def mapped_step(self) -> Scalar:
        return 2 * math.pi * _MAPPED_STRIP / self.tail

    def farthest(self, length: Scalar) -> Scalar:
        """A size that none of `length` normal variables exceeds, up to exp(−tail)."""
        return jnp.sqrt(2 * (self.tail + jnp.log(length)))


class Axis(NamedTuple):
    """An integration variable: its ends, and the number of nodes that it needs."""

    low: Scalar
    high: Scalar
    needed: Scalar

    @staticmethod
    def of(low: Scalar, high: Scalar, step: Scalar) -> "Axis":
        return Axis(low, high, jnp.ceil((high - low) / step) + 1)

    def blocks(self, size: int) -> Int[Array, ""]:
        """The number of blocks of this size that hold the nodes."""
        return jnp.ceil(self.needed / size).astype(int)

    def block(self, index: Array | int, size: int) -> tuple[Nodes, Scalar]:
        """The nodes of one block, and their distance."""
        step = (self.high - self.low) / (self.blocks(size) * size - 1)
        return self.low + step * (index * size + jnp.arange(size)), step


def ends(slope: Scalar, length: Scalar, accuracy: Accuracy) -> tuple[Scalar, Scalar]:
    """The ends of x = −A, A the largest score of a head, up to exp(−tail)."""
    tail, a = accuracy.tail, jnp.abs(slope)
    # Above: L P(a s + G > A) falls as exp(−A²/2a²) up to A = a², then as exp(−A).
    far = tail + jnp.log(length)
    low = -jnp.where(2 * far <= a**2, a * jnp.sqrt(2 * far), far + a**2 / 2)
    # Below, three bounds of P(all scores < A) = ⟨e⟩^L, e = exp(−exp(x + as)): the best is taken.
    # log ⟨e⟩ is at most the largest exponent, −s²/2 − exp(x + as), over s.
    share = tail / jnp.maximum(length - 1, 1e-9)
    ratio = 2 * share / (1 + jnp.sqrt(1 + 2 * share * a**2))
    saddle = jnp.log(ratio) + a**2 * ratio
    # 1 − ⟨e⟩ ≥ (1 − 1/e) P(s > −x/a), and P(s > u) ≈ ½ exp(−0.717 u − 0.416 u²) for u ≥ 0.
    odds = jnp.log(0.316 / share)
    quantile = jnp.sqrt(0.743 + 2.404 * jnp.maximum(odds, 0)) - 0.862
    bulk = jnp.where(odds > 0, -a * quantile, jnp.inf)
    # No score is below a times the smallest s.
    single = a * accuracy.farthest(length) + jnp.log(tail)
    return low, jnp.minimum(jnp.minimum(saddle, bulk), single)


class NormalGrid(NamedTuple):
    """Nodes along s ~ N(0, 1), or along s less a shift."""

    axis: Axis

    @staticmethod
    def of(slope: Scalar, length: Scalar, accuracy: Accuracy) -> "NormalGrid":
        """Nodes that resolve a function of `slope` · s."""
        # The transform of the normal density alone is exp(−2π²/h²).
        widest = math.pi * jnp.sqrt(2 / accuracy.tail)
        step = jnp.minimum(accuracy.step / jnp.maximum(jnp.abs(slope), LEAST_SLOPE), widest)
        far = accuracy.farthest(length)
        return NormalGrid(Axis.of(-far, far, step))

    @staticmethod
    def shifted(slope: Scalar, length: Scalar, accuracy: Accuracy) -> "NormalGrid":
        """Nodes along y = s − A/a, for all A at once; past y = log(tail)/a no token survives."""
        a, far = jnp.maximum(jnp.abs(slope), LEAST_SLOPE), accuracy.farthest(length)
        low, high = (x / a for x in ends(a, length, accuracy))
        last = jnp.minimum(jnp.log(accuracy.tail) / a, far + high)
        return NormalGrid(Axis.of(low - far, last, accuracy.step / a))


class ScoreGrid(NamedTuple):
    """Nodes along x = knee + width (ξ − stretch · exp(−ξ)): with `stretch` 1 they make long steps
    left of the knee, where only a tail exp(x) is left."""

    axis: Axis
    knee: Scalar
    width: Scalar
    stretch: Scalar

    @staticmethod
    def of(
        slope: Scalar,
        length: Scalar,
        accuracy: Accuracy,
        wide: bool,
        even: Boolean = False,
        room: float = 0.0,
    ) -> "ScoreGrid":
        """**Arguments:**

        - `wide`: whether steps may grow with the slope: they may where the integrand has been
          smoothed by the normal density, not where it is a function of x + as.
        - `even`: whether nodes are equidistant.
        - `room`: how far from the usual scores long steps begin.
        """
        a = jnp.abs(slope)
        low, high = ends(a, length, accuracy)
        width = _width(a, length) if wide else jnp.ones_like(a)
        knee = -jnp.minimum(jnp.maximum(typical_score(a, length) + room, a**2), -low)
        first = jnp.where(even, low - knee, -jnp.log1p((knee - low) / width) * width) / width
        # A fifth less than the strip allows: an even grid serves a tail on both its sides.
        step = jnp.where(even, 0.8 * accuracy.step, accuracy.mapped_step)
        axis = Axis.of(first, (high - knee) / width, step)
        return ScoreGrid(axis, knee, width, jnp.where(even, 0.0, 1.0))

    def place(self, xi: Nodes, step: Scalar) -> tuple[Nodes, Nodes]:
        """x and its weights."""
        fall = self.stretch * jnp.exp(-xi)
        return self.knee + self.width * (xi - fall), self.width * (1 + fall) * step


class GapGrid(NamedTuple):
    """Nodes along z = B − (b/a) A, for slopes a > 0 and b, |b| ≤ a.

    Slopes of one sign: both heads attend to the same few tokens, so that z is a difference of
    Gumbel variables, G′ − (b/a) G, with tails exp(−z) and exp(z a/b). Slopes of opposite sign:
    the heads attend to opposite ends of the sample; z is |b| times the distance of these ends,
    plus Gumbel variables. Steps are then of order 1 near z = 0, where the ends meet, and grow to
    the order of the slope.
    """

    axis: Axis
    width: Scalar
    upper: Scalar
    rise: Scalar
    lower: Scalar
    fall: Scalar

    @staticmethod
    def of(a: Scalar, b: Scalar, length: Scalar, accuracy: Accuracy) -> "GapGrid":
        ties = _gap_of_ties(a, jnp.maximum(b, 0), length, accuracy)
        opposites = _gap_of_opposites(a, b, length, accuracy)
        return jax.tree.map(lambda x, y: jnp.where(b < 0, x, y), opposites, ties)

    def place(self, xi: Nodes, step: Scalar) -> tuple[Nodes, Nodes]:
        """z and its weights."""
        rise = self.rise * jnp.exp(xi - self.upper)
        fall = self.fall * jnp.exp(self.lower - xi)
        z = xi + (self.width - 1) * jax.nn.softplus(xi - _WIDEN) + rise - fall
        return z, (1 + (self.width - 1) * jax.nn.sigmoid(xi - _WIDEN) + rise + fall) * step


def _gap_of_ties(a: Scalar, b: Scalar, length: Scalar, accuracy: Accuracy) -> GapGrid:
    tail, ratio, log = accuracy.tail, b / a, jnp.log(length)
    (a_low, a_high), (b_low, b_high) = (ends(slope, length, accuracy) for slope in (a, b))
    # L P(G′ − ratio · G beyond z), or what the ends of A and B leave.
    low = jnp.maximum(-ratio * (tail + log) - jnp.log(tail), ratio * a_low - b_high)
    high = jnp.minimum(tail + log, ratio * a_high - b_low)
    lower, upper = -ratio * log, log
    stretched = lower - jnp.log1p(jnp.maximum(lower - low, 0) / jnp.maximum(ratio, 1e-30))
    last = upper + jnp.log1p(jnp.maximum(high - upper, 0))
    axis = Axis.of(jnp.maximum(low, stretched), last, accuracy.mapped_step)
    return GapGrid(axis, jnp.ones_like(a), upper, jnp.ones_like(a), lower, ratio)


def _gap_of_opposites(a: Scalar, b: Scalar, length: Scalar, accuracy: Accuracy) -> GapGrid:
    tail, slope, ratio = accuracy.tail, jnp.abs(b), jnp.abs(b) / a
    (a_low, a_high), (b_low, b_high) = (ends(each, length, accuracy) for each in (a, b))
    # The Chernoff bound of L² P(|b|(s − s′) + Gumbel variables > z).
    far = tail + 2 * jnp.log(length)
    high = jnp.where(far <= slope**2, 2 * slope * jnp.sqrt(far), far + slope**2)
    high = jnp.minimum(high, -b_low - ratio * a_low)
    low = jnp.maximum(-(1 + ratio) * jnp.log(tail), -b_high - ratio * a_high)
    width = _width(slope, length)
    usual = ratio * typical_score(a, length) + typical_score(slope, length)
    turn = jnp.maximum(2 * slope**2, usual)
    narrow = lambda z: jnp.where(z < _WIDEN, z, _WIDEN + (z - _WIDEN) / width)
    knee = narrow(turn)
    last = jnp.minimum(narrow(high), knee + jnp.log1p(jnp.maximum(high - turn, 0) / width))
    step = jnp.where(far <= slope**2, 0.8, 0.65) * accuracy.step
    # `narrow` inverts the widening but for at most log 2.
    axis = Axis.of(narrow(low) - 0.7, last, step)
    return GapGrid(axis, width, knee, width, jnp.zeros_like(a), jnp.zeros_like(a))


def normal_density(s: Array) -> Array:
    return jnp.exp(-(s**2) / 2) / math.sqrt(2 * math.pi)


def typical_score(slope: Scalar, length: Scalar) -> Scalar:
    """The usual log Σ exp(a s): log L + a²/2, and a √(2 log L) once one token dominates."""
    freezing = jnp.sqrt(2 * jnp.log(length))
    return jnp.where(slope < freezing, jnp.log(length) + slope**2 / 2, slope * freezing)


def _width(slope: Scalar, length: Scalar) -> Scalar:
    """The scale on which the density of a largest score varies: 1, or its share of the slope."""
    return jnp.maximum(1.0, slope / jnp.sqrt(2 * jnp.log(length) + 2.5))

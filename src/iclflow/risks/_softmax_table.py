"""The exact softmax risk of many models: all of its integrals in one table.

The risk of heads (ω_h, μ_h) is constant − 2 Σ_h μ_h b(ω_h) + Σ_hk μ_h μ_k Q(ω_h, ω_k) with one
function b and one function Q, whatever the number of heads. Both are smooth. As sums of products
of Chebyshev polynomials t_k, they make the risk a quadratic form of the vector Σ_h μ_h t(ω_h).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InputError
from ..models import AbstractModel
from ..runtime import usable_cores
from ._base import AbstractCoefficientRisk
from ._chebyshev import StretchedAxis, coefficients, count_significant, polynomials
from ._head_task import Isotropic
from ._query_norms import legendre_radius
from ._softmax_quadrature import pair_moments

# The scale of slopes on which moments of two heads vary; that of ω is this over √D. Found by
# trying: twice or half of it takes a few more polynomials.
_SCALE = 0.6
# The most polynomials of a table: the smaller number is tried first. And the slope, relative to the
# largest, on which their number is tried.
_MOST, _PROBED = (96, 192), 0.37
# Nodes along |x_q| per digit: averages over r then lose no digits (measured).
_RADII_PER_DIGIT = 12
# Integrals in one call, and random pairs of slopes on which a table is tested.
_CHUNK, _TESTS = 64, 64
# The most digits of integrals, and of tables, which reproduce them to one digit less.
_MOST_DIGITS = 12
BEST_DIGITS = 11
# How far rounding may put ω beyond the ends of the interval.
_ROUNDING = 1e-12

Report = Callable[[float], object]


class TabulatedSoftmaxRisk(AbstractCoefficientRisk):
    """The exact softmax risk for |ω| ≤ `reach`; beyond it, NaN. Made by
    `ExactSoftmaxRisk.tabulate`.

    **Fields:**

    - `reach`, `scale`: of the axis of ω, for white inputs.
    - `linear`, `square`: b, which is odd, and Q, which is even when both ω turn round: even and odd
      polynomials never meet.
    - `error`: losses differ from those of the exact risk by about this times Σ|μ| + (Σ|μ|)² at
      most.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> risk = icl.risk(task, pair, digits=6)
    >>> table = risk.tabulate(reach=0.5)
    >>> bool(abs(table(pair) - risk(pair)) < 1e-3)
    True
    ```
    """

    kind: ClassVar[str] = "exact"
    stiff: ClassVar[bool] = True

    task: Isotropic
    reach: Float[Array, ""]
    scale: Float[Array, ""]
    constant: Float[Array, ""]
    linear: Float[Array, "2 K"]
    square: Float[Array, "2 K K"]
    error: Float[Array, ""]

    def coefficients_of(self, model: AbstractModel) -> Float[Array, "2 K"]:
        """Σ_h μ_h t(ω_h): first the even polynomials, then the odd ones."""
        omega, mu = self.task.heads(model)
        place = jnp.arcsinh(omega / self.scale) / jnp.arcsinh(self.reach / self.scale)
        # Beyond its interval a polynomial is nonsense.
        place = jnp.where(jnp.abs(place) <= 1 + _ROUNDING, place, jnp.nan)
        return (mu @ polynomials(place, self.linear.size)).reshape(-1, 2).T

    def table_used(self, model: AbstractModel) -> Float[Array, ""]:
        omega, _ = self.task.heads(model)
        return jnp.max(jnp.abs(omega)) / self.reach

    def of_coefficients(self, coefficients: Float[Array, "2 K"]) -> Float[Array, ""]:
        return self.constant + jnp.sum(
            coefficients * (self._multiply_square(coefficients) - 2 * self.linear)
        )

    def slope(self, coefficients: Float[Array, "2 K"]) -> Float[Array, "2 K"]:
        return 2 * (self._multiply_square(coefficients) - self.linear)

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        return self.constant

    def _multiply_square(self, coefficients: Float[Array, "2 K"]) -> Float[Array, "2 K"]:
        return jnp.einsum("pij,pj->pi", self.square, coefficients)


class _Moments(NamedTuple):
    """E[p·p′] and E[(p·s)(p′·s)] of two heads with slopes on `axis`, and their errors.

    **Fields:**

    - `errors`: of both.
    - `own_error`: of E|p|² of one head, times its slope: what makes b wrong.
    """

    axis: StretchedAxis
    overlap: Float[np.ndarray, "n n"]
    product: Float[np.ndarray, "n n"]
    errors: Float[np.ndarray, "2"]
    own_error: float


def tabulate(
    task: Isotropic, reach: float, digits: int, report: Report | None = None
) -> TabulatedSoftmaxRisk:
    """The table of a task.

    **Arguments:**

    - `reach`: the largest |ω|, in units of the model.
    - `digits`: of precision, as of the exact risk.
    - `report`: called with the finished share, between 0 and 1.
    """
    if not (np.isfinite(reach) and reach > 0):
        raise InputError("reach", reach, "must be a finite number above 0")
    digits = min(digits, BEST_DIGITS)
    radii, weights = legendre_radius(task.dim, _RADII_PER_DIGIT * digits, digits)
    white = float(reach * task.input_variance)
    found = _moments(task, white * radii[-1], digits, report or (lambda share: None))
    share = float(task.signal * (1 - 1 / task.dim) + task.noise)
    parts = np.asarray([share, float(task.signal) / task.dim])
    axis = StretchedAxis(white, _SCALE / task.dim**0.5)
    # As many nodes as polynomials at most; polynomials that are not needed are dropped below.
    omega = axis.nodes(_MOST[-1])
    tables = found.axis.polynomials(omega[:, None] * radii, len(found.overlap))
    flat = tables.reshape(len(omega), -1)
    overlaps, products = tables @ found.overlap, tables @ found.product
    overlap, product = (
        (weights[:, None] * half).reshape(len(omega), -1) @ flat.T for half in (overlaps, products)
    )
    own = np.sum(overlaps * tables, -1)
    gain = float(task.signal) * omega * ((1 - own) @ (weights * radii**2)) / task.dim
    linear = coefficients(gain)
    square = coefficients(coefficients(parts[0] * overlap + parts[1] * product).T)
    # In units of the signal: what is small beside a hundredth of it is rounding.
    unit = float(task.signal) + share
    both = np.stack([np.abs(linear), np.max(np.abs(square), 1)], 1) / unit
    size = count_significant(both, _tail(digits))
    assert size <= _MOST[-1]  # an average over r is smoother than what is averaged
    # Even and odd polynomials are stored as pairs.
    size += size % 2
    rest = [np.sum(np.abs(part)) for part in (linear[size:], square[size:], square[:size, size:])]
    square = (square + square.T)[:size, :size] / 2
    miss = float(parts @ found.errors)
    if not miss <= 10.0**-digits * unit:
        raise InputError(
            "reach",
            reach,
            f"the table misses integrals by {miss:.2g}, more than its {digits} digits "
            "allow. Choose a smaller one, or fewer `digits`",
        )
    # Averages end at some r: the rest is about the probability beyond times the last integrand.
    beyond = 1 - np.stack([radii**0, radii**2 / task.dim]) @ weights
    ends = np.max([own[:, -1], np.sum(products[:, -1] * tables[:, -1], -1)], 1)
    miss += float(parts @ ends * beyond[0] + rest[1] + rest[2])
    # b is an average of r · ωr (1 − E|p|²)/D, with E r ≤ √D.
    slip = found.own_error / task.dim**0.5 + np.max(omega * (1 - own[:, -1])) * beyond[1]
    slip = float(task.signal * slip + rest[0])
    number = lambda x: jnp.asarray(x, float)
    return TabulatedSoftmaxRisk(
        task,
        number(white),
        number(axis.scale),
        number(task.query_noise + task.signal),
        number(linear[:size].reshape(-1, 2).T),
        number(np.stack([square[half::2, half::2] for half in (0, 1)])),
        number(max(miss, 2 * slip)),
    )


def _tail(digits: int) -> float:
    return 10.0 ** -(digits + 2)


def _moments(task: Isotropic, reach: float, digits: int, report: Report) -> _Moments:
    """Moments for slopes up to `reach`, averaged over the context lengths of the task."""
    axis = StretchedAxis(reach, _SCALE)
    degree = _degree(task, axis, digits, report)
    slopes = axis.nodes(degree)
    # Both moments are symmetric in the heads, and even when both slopes change their signs.
    first, second = np.meshgrid(np.arange(degree + 1), np.arange(degree + 1), indexing="ij")
    distinct = (first <= second) & (first + second <= degree)
    first, second = first[distinct], second[distinct]
    grid = _values(task, slopes[first], slopes[second], digits, _stage(report, 0.1, 0.97))
    values = np.zeros((degree + 1, degree + 1, 2))
    for i, j in ((first, second), (degree - first, degree - second)):
        values[i, j] = values[j, i] = grid
    halves = coefficients(values)
    tables = coefficients(halves.swapaxes(0, 1))
    # Tested evenly along the stretched axis, small slopes and large ones alike, on finer grids.
    places = np.random.default_rng(0).uniform(-1, 1, (2, _TESTS))
    a, b = axis.scale * np.sinh(axis.length * places)
    a, b = np.append(a, a), np.append(b, a)  # also heads with themselves
    tests = _values(task, a, b, digits + 1, _stage(report, 0.97, 1.0))
    left, right = (axis.polynomials(x, degree + 1) for x in (a, b))
    misses = np.abs(np.einsum("ta,abm,tb->tm", left, tables, right) - tests)
    own = float(np.max(np.abs(a) * misses[:, 0], where=a == b, initial=0))
    return _Moments(axis, tables[..., 0], tables[..., 1], np.max(misses, 0), own)


def _stage(report: Report, first: float, last: float) -> Report:
    """Reports the share of one stage as one of the whole, which goes from `first` to `last`."""
    return lambda share: report(first + (last - first) * share)


def _degree(task: Isotropic, axis: StretchedAxis, digits: int, report: Report) -> int:
    """The number of polynomials that moments need, tried with the second head at one slope."""
    ends = np.linspace(0, 0.1, len(_MOST) + 1)
    for most, first, last in zip(_MOST, ends, ends[1:]):
        slopes = axis.nodes(most)
        other = np.full_like(slopes, _PROBED * axis.reach)
        row = _values(task, slopes, other, digits, _stage(report, float(first), float(last)))
        count = count_significant(coefficients(row), _tail(digits))
        if count <= most:
            return count + count % 2
    raise InputError(
        "reach",
        problem=f"is so far that slopes of attention come to {axis.reach:.3g}",
        allowed="too steep for a table of this precision. Choose a smaller one, or fewer `digits`",
    )


def _values(
    task: Isotropic, a: np.ndarray, b: np.ndarray, digits: int, report: Report
) -> Float[np.ndarray, "n 2"]:
    """The moments of two heads with these slopes, on all cores."""
    lengths, probabilities = np.asarray(task.lengths), np.asarray(task.probabilities)
    processor = _processor()

    def compute(where: tuple[int, int]) -> np.ndarray:
        start, length = where
        # On the processor even if there is a GPU: these are thousands of small loops.
        with jax.default_device(processor):
            first, second = (jnp.asarray(x[start : start + _CHUNK], float) for x in (a, b))
            same = jnp.ones_like(first)
            most = min(digits + 1, _MOST_DIGITS)
            found = pair_moments(first, second, lengths[length] * same, same, most)
            return probabilities[length] * np.asarray(found)

    starts = range(0, len(a), _CHUNK)
    wanted = [(start, length) for start in starts for length in range(len(lengths))]
    found = np.zeros((len(a), 2))
    compute(wanted[0])  # compiled once, not once per thread
    with ThreadPoolExecutor(usable_cores()) as pool:
        running = [pool.submit(compute, where) for where in wanted]
        try:
            for i, (where, part) in enumerate(zip(wanted, running)):
                found[where[0] : where[0] + _CHUNK] += part.result()
                report((i + 1) / len(wanted))
        # An interrupt must not wait for the whole queue.
        except BaseException:
            for part in running:
                part.cancel()
            raise
    return found


def _processor():
    """The processor as a device; None where this process may not compute on it."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # the variable JAX_PLATFORMS can rule it out
        return None

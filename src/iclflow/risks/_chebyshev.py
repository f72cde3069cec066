"""Functions on an interval around 0 as sums of Chebyshev polynomials, few of them."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# A column with smaller coefficients counts as this large: relative to itself it is all rounding.
_FLOOR = 0.01


class StretchedAxis(NamedTuple):
    """The interval |x| ≤ `reach`, as x = `scale` · sinh(u) with polynomials in u.

    A function that varies on the scale of `scale` near 0, and of x itself farther out, needs few
    polynomials: their number grows with the logarithm of `reach`.
    """

    reach: float
    scale: float

    @property
    def length(self) -> float:
        return float(np.arcsinh(self.reach / self.scale))

    def nodes(self, degree: int) -> Float[np.ndarray, " n"]:
        """The `degree` + 1 points that fix a polynomial: from `reach` down to −`reach`."""
        return self.scale * np.sinh(self.length * np.cos(np.pi * np.arange(degree + 1) / degree))

    def polynomials(self, x: np.ndarray, count: int) -> np.ndarray:
        """T_0 … T_(count−1) at `x`, along a new last axis."""
        place = np.clip(np.arcsinh(x / self.scale) / self.length, -1, 1)
        return np.cos(np.arange(count) * np.arccos(place)[..., None])


def coefficients(values: np.ndarray) -> np.ndarray:
    """Of the polynomial with these values at the nodes, along the first axis."""
    degree = len(values) - 1
    k = np.arange(degree + 1)
    ends = np.where((k == 0) | (k == degree), 0.5, 1.0)
    matrix = 2 / degree * ends[:, None] * np.cos(np.pi * np.outer(k, k) / degree) * ends
    return np.tensordot(matrix, values, 1)


def count_significant(found: np.ndarray, tail: float) -> int:
    """The number of coefficients along the first axis up to the last that is larger than `tail`
    times the largest of its column."""
    sizes = np.abs(found).reshape(len(found), -1)
    large = np.any(sizes > tail * np.maximum(np.max(sizes, 0), _FLOOR), 1)
    return int(np.flatnonzero(large)[-1]) + 1 if np.any(large) else 1


def polynomials(place: Float[Array, "*n"], count: int) -> Float[Array, "*n k"]:
    """T_0 … T_(count−1) at `place`. Their number doubles in every step, for a small program."""
    found = jnp.stack([jnp.ones_like(place), place], -1)
    while found.shape[-1] < count:
        top = found.shape[-1] - 1  # T_(top+j) = 2 T_top T_j − T_(top−j)
        more = 2 * found[..., -1:] * found[..., 1:] - found[..., top - 1 :: -1]
        found = jnp.concatenate([found, more], -1)
    return found[..., :count]

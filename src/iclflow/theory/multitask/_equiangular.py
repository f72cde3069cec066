"""Equiangular heads: their total share, how to make them, and how they approach the bound.

Heads are equiangular (arXiv 2402.19442, definition 2) when their scores have the Gram matrix
⟨h, k⟩ = Σ_j d_j ω_hj ω_kj with a on the diagonal and b off it. Small heads around their own mean
make every set of shares with Σ x_i = H − 1: that is how `lower_bound` is approached. Derived in
docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_whole
from ._blocks import Blocks, Tasks
from ._check import HeadsLike, check_heads, check_number, check_numbers
from ._loss import Heads
from ._solutions import lower_bound

# The smallest size of heads: here rounding in E⁻¹ moves the loss by 2e-8 of it, as the size does.
_SMALLEST = 1e-8


class Angles(NamedTuple):
    """How close heads are to equiangular ones.

    - `variance`: a, the mean variance of a head's scores.
    - `covariance`: b, the mean covariance of the scores of two heads; a for one head.
    - `deviation`: the largest distance of an entry of the Gram matrix from these, over a.
    """

    variance: float
    covariance: float
    deviation: float


def total_share(variance: float, covariance: float, heads: int) -> float:
    """Σ_i x_i of H equiangular heads, in closed form, wherever they point.

    (H − 1)(a − b)/(e^a − e^b) + (a + (H − 1)b)/(e^a + (H − 1)e^b). At a = b all heads are equal,
    and count as one: a e^−a.
    """
    alone, together = _eigenvalues(variance, covariance, heads)
    kernel = np.exp(variance) + (heads - 1) * np.exp(covariance)
    total = together / kernel
    if alone > 0:
        # (e^a − e^b)/(a − b), which does not cancel for small differences.
        total += (heads - 1) * alone / (np.exp(covariance) * np.expm1(alone))
    return float(total)


def equiangular_heads(
    task: Tasks, variance: float, covariance: float, heads: int, frame: HeadsLike | None = None
) -> Heads:
    """ω of heads with a given variance a and covariance b of scores.

    **Arguments:**

    - `variance`, `covariance`: a and b, with a ≥ b and a + (H − 1)b ≥ 0.
    - `frame`: an orthogonal matrix that turns them among the tasks; as they come without one. Its
      first row is what the mean of all heads attends to, where there is one.
    """
    blocks = Blocks.of(task)
    alone, together = _eigenvalues(variance, covariance, heads)
    count = blocks.count
    parts = [np.full((heads, int(together > 0)), np.sqrt(together / heads))]
    parts.append(np.sqrt(alone) * around_mean(heads)[:, : heads * int(alone > 0)])
    shape = np.hstack(parts)
    if shape.shape[1] > count:
        raise Refusal(
            f"`heads` = {heads} with a = {variance:g} and b = {covariance:g} span "
            f"{shape.shape[1]} dimensions: must be at most {count}, the number of tasks."
        )
    frame = check_numbers("frame", np.eye(count) if frame is None else frame, 2, (count, count))
    if np.max(np.abs(frame @ frame.T - np.eye(count))) > 1e-10:
        raise Refusal("`frame` must be orthogonal: its rows have other products than 0 and 1.")
    return shape @ frame[: shape.shape[1]] / np.sqrt(blocks.sizes)


def angles(task: Tasks, omega: HeadsLike) -> Angles:
    """The variance and covariance of scores of given heads, and how equal they are."""
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    gram = (omega * blocks.sizes) @ omega.T
    same = np.eye(len(omega), dtype=bool)
    variance = float(np.mean(gram[same]))
    covariance = float(np.mean(gram[~same])) if len(omega) > 1 else variance
    gap = np.max(np.abs(gram - np.where(same, variance, covariance)))
    return Angles(variance, covariance, float(gap / variance) if variance > 0 else 0.0)


def approach(task: Tasks, heads: int, size: float = 1e-4) -> Heads:
    """ω of heads whose loss, with `best_mu`, tends to `lower_bound` as `size` → 0.

    They are equiangular with a = size·(1 − 1/H) and b = −size/H, so that they add up to nothing,
    and turned so that task i gets the share that water-filling gives it. From I + 2 heads on the
    rest are idle. The one head of H = 1 needs no limit: it attains `single_head` as it is.

    **Arguments:**

    - `size`: from 1e-8 up. The loss is above the bound by a share of about `size`; rounding adds
      2e-16/`size`, to either side.
    """
    blocks = Blocks.of(task)
    wanted = lower_bound(blocks, heads).shares
    if heads == 1:
        return np.sqrt(np.e * wanted / blocks.sizes)[None]
    allowed = f"finite and at least {_SMALLEST:g}; rounding takes over below"
    size = check_number("size", size, allowed, lambda x: _SMALLEST <= x < np.inf)
    busy = min(heads, len(wanted) + 1)
    omega = np.sqrt(size / blocks.sizes) * (around_mean(busy) @ rows_with(wanted))
    return np.vstack([omega, np.zeros((heads - busy, len(wanted)))])


def around_mean(heads: int) -> Float[np.ndarray, "H H-1"]:
    """Orthonormal columns that add up to zero: a simplex of H points around its centre."""
    return scipy.linalg.helmert(heads).T


def rows_with(diagonal: Float[np.ndarray, " I"]) -> Float[np.ndarray, "r I"]:
    """Orthonormal rows R with a given diagonal of RᵀR: numbers in [0, 1] with a whole sum r.

    Horn's construction: begin with r ones and zeros, and turn pairs of columns, one for each wanted
    entry from the largest on. What is left to turn stays diagonal.
    """
    rank = round(float(np.sum(diagonal)))
    rows = np.eye(rank, len(diagonal))
    left = {j: float(j < rank) for j in range(len(diagonal))}
    place = {}
    order = np.argsort(-diagonal)
    for i in order[:-1]:
        # Neighbours around the wanted value, among what is left.
        falling = sorted(left, key=lambda j: -left[j])
        at = max(sum(1 for j in falling if left[j] >= diagonal[i]), 1)
        above, below = falling[at - 1], falling[min(at, len(falling) - 1)]
        if above == below:
            above = falling[-2]
        gap = left[above] - left[below]
        # Sums that are whole up to rounding may ask for slightly more than 1.
        cos2 = np.clip((diagonal[i] - left[below]) / gap, 0, 1) if gap > 0 else 1.0
        turn = np.array([[cos2**0.5, -((1 - cos2) ** 0.5)], [(1 - cos2) ** 0.5, cos2**0.5]])
        rows[:, [above, below]] = rows[:, [above, below]] @ turn
        left[below] += left.pop(above) - float(diagonal[i])
        place[i] = above
    (place[order[-1]],) = left
    return rows[:, [place[i] for i in range(len(diagonal))]]


def _eigenvalues(variance: float, covariance: float, heads: int) -> tuple[float, float]:
    """a − b and a + (H − 1)b, the eigenvalues of the Gram matrix, checked."""
    check_whole("heads", heads)
    for name, value in (("variance", variance), ("covariance", covariance)):
        check_number(name, value, "a number", lambda x: True)
    alone = variance - covariance if heads > 1 else 0.0
    together = variance + (heads - 1) * covariance
    # A simplex around zero has b = −a/(H − 1), which is not a number of the computer.
    if abs(together) < 1e-14 * abs(variance):
        together = 0.0
    if not (np.isfinite([variance, covariance]).all() and alone >= 0 and together >= 0):
        raise Refusal(
            f"`variance` = {variance} and `covariance` = {covariance}: must be finite with a ≥ b "
            f"and a + {heads - 1}b ≥ 0 for H = {heads}."
        )
    return alone, together

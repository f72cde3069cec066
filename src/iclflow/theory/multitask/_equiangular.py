"""Heads that attain or approach the bounds: equiangular softmax heads, and linear attention.

Heads are equiangular (arXiv 2402.19442, definition 2) when their scores have the Gram matrix
⟨h, k⟩ = Σ_j d_j ω_hj ω_kj with a on the diagonal and b off it. Small heads around their own mean
can have every set of shares with Σ x_i = H − 1: that is how `lower_bound` is approached.

Linear attention is ŷ_i = (1/L) Σ_h μ_hi Σ_ℓ (Σ_j ω_hj x_jℓ·q_j) y_iℓ. Its loss is that of softmax
heads with ⟨h, k⟩ in place of e^{⟨h, k⟩}. So its shares are the diagonal of a projection of rank at
most min(H, I): a budget of H, where softmax has H − 1, and one head has 1 instead of 1/e. H + 1
small softmax heads around their mean do the same as H linear heads. Derived in
docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from .._check import (
    HeadsLike,
    check_heads,
    check_number,
    check_numbers,
    check_positive,
    check_whole,
)
from ._blocks import Blocks, Tasks
from ._loss import Heads
from ._solutions import Solution, fill_shares, loss_of_shares, lower_bound

# The smallest size of heads: there rounding in E⁻¹ moves the loss by 2e-8 of it, as the size does.
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

    **Example:**

    ```pycon
    >>> round(icl.theory.multitask.total_share(1.0, 0.0, heads=3), 4)
    1.3759
    >>> task = icl.theory.multitask.Blocks([10, 10, 10], [0.1] * 3, [0.1] * 3, length=50)
    >>> omega = icl.theory.multitask.equiangular_heads(task, 1.0, 0.0, heads=3)
    >>> round(float(icl.theory.multitask.shares(task, omega).sum()), 4)
    1.3759
    ```
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
    """ω of heads whose scores have variance a and covariance b: Σ_j d_j ω_hj ω_kj = a or b.

    **Arguments:**

    - `variance`, `covariance`: a and b, with a ≥ b and a + (H − 1)b ≥ 0.
    - `frame`: an orthogonal matrix that turns them among the tasks, by default the identity. Its
      first row is the direction of the mean of all heads, unless that mean is zero.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10, 10], [0.1] * 3, [0.1] * 3, length=50)
    >>> omega = icl.theory.multitask.equiangular_heads(task, 1.234, 0.345, heads=3)
    >>> omega.shape
    (3, 3)
    >>> found = icl.theory.multitask.angles(task, omega)
    >>> round(found.variance, 4), round(found.covariance, 4)
    (1.234, 0.345)
    ```
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
    """The mean a and b of the Gram matrix Σ_j d_j ω_hj ω_kj of given heads, and its deviation.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> found = icl.theory.multitask.angles(task, [[0.31, 0.05], [0.02, 0.33]])
    >>> round(found.variance, 4), round(found.covariance, 4), round(found.deviation, 4)
    (1.0395, 0.227, 0.0515)
    ```
    """
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

    They are equiangular with a = size·(1 − 1/H) and b = −size/H, so that they add up to zero, and
    turned so that each task has its share by water-filling. From I + 2 heads on the rest are idle.
    One head needs no limit: it attains `single_head`.

    **Arguments:**

    - `size`: from 1e-8 up. The loss is above the bound by a share of about `size`; rounding moves
      it by 2e-16/`size` either way.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> for size in (1e-1, 1e-2, 1e-4):
    ...     omega = icl.theory.multitask.approach(task, heads=3, size=size)
    ...     mu = icl.theory.multitask.best_mu(task, omega)
    ...     print(round(float(icl.theory.multitask.loss(task, omega, mu).sum()), 4))
    ...
    0.3657
    0.3611
    0.3607
    >>> round(icl.theory.multitask.lower_bound(task, heads=3).loss, 4)
    0.3607
    ```
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

    Horn's construction: begin with r ones and zeros on the diagonal, and rotate pairs of columns,
    one pair for each wanted entry from the largest on. The columns that are left stay diagonal.
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
        # A sum that is whole only up to rounding may need slightly more than 1.
        cos2 = np.clip((diagonal[i] - left[below]) / gap, 0, 1) if gap > 0 else 1.0
        turn = np.array([[cos2**0.5, -((1 - cos2) ** 0.5)], [(1 - cos2) ** 0.5, cos2**0.5]])
        rows[:, [above, below]] = rows[:, [above, below]] @ turn
        left[below] += left.pop(above) - float(diagonal[i])
        place[i] = above
    (place[order[-1]],) = left
    return rows[:, [place[i] for i in range(len(diagonal))]]


def linear_loss(
    task: Tasks, omega: HeadsLike, mu: HeadsLike, finite: bool = False
) -> Float[np.ndarray, " I"]:
    """λ_i d_i [(1 − μ_i·ω_i)² + (φ_i/L) Σ_hk μ_hi ⟨h, k⟩ μ_ki], the loss of linear attention.

    **Arguments:**

    - `finite`: exact at every d_i and L, which adds (μ_i·ω_i)²/L to the bracket; without it to
      leading order for large blocks, as `loss` is.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([4], [0.25], [0.1], length=40)
    >>> icl.theory.multitask.linear_loss(task, [[0.5]], [[1.6]], finite=True).round(4)
    array([0.1264])
    >>> # One head takes a gradient step of the size ωμ.
    >>> step = icl.theory.gradient_step_risk(icl.isotropic(dim=4, context=40, noise=0.1), 0.5 * 1.6)
    >>> round(step - 0.1, 4)
    0.1264
    ```
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    step = mu.T @ omega
    own = np.diag(step)
    spread = blocks.phi * np.sum(blocks.sizes * step**2, 1) + finite * own**2
    return blocks.power * ((1 - own) ** 2 + spread / blocks.length)


def linear_shares(task: Tasks, omega: HeadsLike) -> Float[np.ndarray, " I"]:
    """x_i of linear heads at their best μ: the diagonal of the projection onto their span.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> icl.theory.multitask.linear_shares(task, [[0.1, 0.0]]).round(3)
    array([1., 0.])
    >>> icl.theory.multitask.linear_shares(task, [[0.1, 0.1]]).round(3)
    array([0.5, 0.5])
    ```
    """
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    scaled = omega * np.sqrt(blocks.sizes)
    return np.diag(np.linalg.pinv(scaled) @ scaled).copy()


def linear_bound(task: Tasks, heads: int) -> Solution:
    """The smallest loss of H linear heads, Σ x_i = min(H, I) by water-filling; large blocks.

    `linear_heads` attains it.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> [round(icl.theory.multitask.linear_bound(task, heads).loss, 4) for heads in (1, 2)]
    [0.6111, 0.3607]
    >>> # Softmax needs one head more.
    >>> [round(icl.theory.multitask.lower_bound(task, heads).loss, 4) for heads in (2, 3)]
    [0.6111, 0.3607]
    ```
    """
    blocks = Blocks.of(task)
    budget = min(check_whole("heads", heads), blocks.count)
    return loss_of_shares(fill_shares(budget, blocks), blocks)


def linear_heads(task: Tasks, heads: int) -> tuple[Heads, Heads]:
    """ω and μ of H linear heads with the loss of `linear_bound`; those beyond I are idle.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega, mu = icl.theory.multitask.linear_heads(task, heads=1)
    >>> icl.theory.multitask.linear_loss(task, omega, mu).round(4)
    array([0.3056, 0.3056])
    >>> icl.theory.multitask.linear_bound(task, heads=1).losses.round(4)
    array([0.3056, 0.3056])
    ```
    """
    blocks = Blocks.of(task)
    shares = linear_bound(blocks, heads).shares
    rows = rows_with(shares)
    omega = rows / np.sqrt(blocks.sizes)
    # Rows are orthonormal, so the overlaps are the identity, and μ needs no solve.
    mu = omega * blocks.sizes * blocks.samples / (1 + blocks.samples * shares)
    idle = np.zeros((heads - len(rows), len(shares)))
    return np.vstack([omega, idle]), np.vstack([mu, idle])


def as_softmax(omega: HeadsLike, mu: HeadsLike, size: float) -> tuple[Heads, Heads]:
    """H + 1 softmax heads that act as H linear heads, exactly so as `size` → 0.

    They are size·Cω with the weights Cμ/size, where C has H orthonormal columns that add up to
    zero: the mean of labels drops out, and with it every first-order effect of the softmax.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> linear = icl.theory.multitask.linear_heads(task, heads=2)
    >>> omega, mu = icl.theory.multitask.as_softmax(*linear, size=1e-4)
    >>> omega.shape
    (3, 2)
    >>> icl.theory.multitask.loss(task, omega, mu).round(4)
    array([0.1803, 0.1803])
    >>> icl.theory.multitask.linear_loss(task, *linear).round(4)
    array([0.1803, 0.1803])
    ```
    """
    size = check_positive("size", size)
    omega = check_numbers("omega", omega, 2)
    mu = check_numbers("mu", mu, 2, omega.shape)
    centred = around_mean(len(omega) + 1)
    return size * centred @ omega, centred @ mu / size


def _eigenvalues(variance: float, covariance: float, heads: int) -> tuple[float, float]:
    """a − b and a + (H − 1)b, the eigenvalues of the Gram matrix, checked."""
    check_whole("heads", heads)
    for name, value in (("variance", variance), ("covariance", covariance)):
        check_number(name, value, "a number", lambda x: True)
    alone = variance - covariance if heads > 1 else 0.0
    together = variance + (heads - 1) * covariance
    # A simplex around zero has b = −a/(H − 1), which floats hold only up to rounding.
    if abs(together) < 1e-14 * abs(variance):
        together = 0.0
    if not (np.isfinite([variance, covariance]).all() and alone >= 0 and together >= 0):
        raise Refusal(
            f"`variance` = {variance} and `covariance` = {covariance}: must be finite with a ≥ b "
            f"and a + {heads - 1}b ≥ 0 for H = {heads}."
        )
    return alone, together

"""The same heads without softmax: linear attention, and how softmax heads become it.

ŷ_i = (1/L) Σ_h μ_hi Σ_ℓ (Σ_j ω_hj x_jℓ·q_j) y_iℓ. Its loss is that of softmax heads with ⟨h, k⟩ in
place of e^{⟨h, k⟩}. So its shares are the diagonal of a projection of rank at most min(H, I): a
budget of H, where softmax has H − 1, and one head has 1 instead of 1/e. H + 1 small softmax heads
around their mean do what H linear heads do. Derived in docs/theory/multitask.md.
"""

import numpy as np
from jaxtyping import Float

from .._check import check_whole
from ._blocks import Blocks, Tasks
from ._check import HeadsLike, check_heads, check_number, check_numbers
from ._equiangular import around_mean, rows_with
from ._loss import Heads
from ._solutions import Solution, fill_shares, loss_of_shares


def linear_loss(
    task: Tasks, omega: HeadsLike, mu: HeadsLike, finite: bool = False
) -> Float[np.ndarray, " I"]:
    """The loss of linear attention on each task.

    **Arguments:**

    - `finite`: exact at every d_i and L, which adds (μ_i·ω_i)²/L to the bracket; without it to
      leading order for large blocks, as `loss` is.
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    step = mu.T @ omega
    own = np.diag(step)
    spread = blocks.phi * np.sum(blocks.sizes * step**2, 1) + finite * own**2
    return blocks.power * ((1 - own) ** 2 + spread / blocks.length)


def linear_shares(task: Tasks, omega: HeadsLike) -> Float[np.ndarray, " I"]:
    """x_i of linear heads at their best μ: how much of the direction of task i they span."""
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    scaled = omega * np.sqrt(blocks.sizes)
    return np.diag(np.linalg.pinv(scaled) @ scaled).copy()


def linear_bound(task: Tasks, heads: int) -> Solution:
    """The best that H linear heads can do, and attain (`linear_heads`); large blocks."""
    blocks = Blocks.of(task)
    budget = min(check_whole("heads", heads), blocks.count)
    return loss_of_shares(fill_shares(budget, blocks), blocks)


def linear_heads(task: Tasks, heads: int) -> tuple[Heads, Heads]:
    """ω and μ of H linear heads with the loss of `linear_bound`; those beyond I are idle."""
    blocks = Blocks.of(task)
    shares = linear_bound(blocks, heads).shares
    rows = rows_with(shares)
    omega = rows / np.sqrt(blocks.sizes)
    # Rows are orthonormal, so that the overlaps are the identity and need no solving.
    mu = omega * blocks.sizes * blocks.samples / (1 + blocks.samples * shares)
    idle = np.zeros((heads - len(rows), len(shares)))
    return np.vstack([omega, idle]), np.vstack([mu, idle])


def as_softmax(omega: HeadsLike, mu: HeadsLike, size: float) -> tuple[Heads, Heads]:
    """H + 1 softmax heads that do what H linear heads do, the better the smaller `size` is.

    They are size·Cω with the weights Cμ/size, where C has H orthonormal columns that add up to
    zero: the mean of labels drops out, and with it all that softmax adds to first order.
    """
    size = check_number("size", size, "finite and positive", lambda x: 0 < x < np.inf)
    omega = check_numbers("omega", omega, 2)
    mu = check_numbers("mu", mu, 2, omega.shape)
    centred = around_mean(len(omega) + 1)
    return size * centred @ omega, centred @ mu / size

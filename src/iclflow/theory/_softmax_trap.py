"""One head shared by all: where heads of one sign end, and stay.

Heads with one common ω and any μ_h of the right sum are one head. At the best single head they form
a set of stationary points of every loss of structured heads. By the large-context loss its Hessian
has one negative direction for each μ_h < 0, none if all are positive: then the set is a **local
minimum**, above the pair by the whole gain of debiasing. Derived in docs/theory/softmax.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ._check import check_whole
from ._softmax_large_context import large_context_one_head
from ._softmax_setting import Isotropic, Setting, check_softmax_heads


def one_sign_share(heads: int) -> float:
    """2^{1−H}, the share of random small starts whose H heads all have growing parts of one sign.

    They end as one head if L ≫ Hd. At shorter contexts the zero-sum term turns some small heads
    round in time, so that this is an upper bound on the share that is lost.
    """
    return 2.0 ** (1 - check_whole("heads", heads))


def shared_head_curvature(task: Isotropic, mu: Float[ArrayLike, " H"]) -> Float[np.ndarray, " H"]:
    """κ_h with L̃ = L̃* + Σ κ_hε_h² for ω_h = d^−½ + ε_h around the shared head, where Σ μ_hε_h = 0.

    κ_h = e(1 + σ²)d/L · M · μ_h, with M = Σμ the value of the best single head.

    **Arguments:**

    - `mu`: how the heads share M; scaled to that sum, which must be positive.
    """
    at = Setting.of(task)
    shares, _ = check_softmax_heads(mu, mu)
    if not shares.sum() > 0:
        raise Refusal(f"`mu` = {mu}: must have a positive sum, that of the shared head.")
    total = large_context_one_head(at).mu
    return np.e * at.spread * at.dim * total**2 * shares / shares.sum()


def shared_head_index(mu: Float[ArrayLike, " H"]) -> int:
    """The number of negative directions of the Hessian of L̃ at the shared head: that of μ_h < 0."""
    shares, _ = check_softmax_heads(mu, mu)
    return int(np.sum(shares * np.sign(shares.sum()) < 0))

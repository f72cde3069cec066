"""Ridge regression and Bayes on each block: what attention is compared with.

Ridge on task i minimises Σ_ℓ (y_iℓ − w·x_iℓ)² + ρ|w|² over its own d_i coordinates. Beyond the
noise of the query's label it pays λρ²T₂ + σ²(T₁ − ρT₂), T_k = E tr(XXᵀ + ρI)⁻ᵏ. Papers write the
penalty in two ways, which must be named: ρ itself, or ρ/L. Derived in docs/theory/multitask.md.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_whole
from .._softmax_limits import proportional_risks, ridge_risk_limit
from .._softmax_setting import Setting
from .._softmax_wishart import bayes_risk_isotropic, resolvent_traces
from ._blocks import Blocks, Tasks
from ._check import check_number

Counted = Literal["once", "per sample"]
Losses = Float[np.ndarray, " I"]


def ridge(task: Tasks, penalty: float, counted: Counted) -> Losses:
    """The loss of ridge regression on each task, exact at finite d_i and L.

    **Arguments:**

    - `counted`: `"once"` for Σ_ℓ (y − w·x)² + penalty·|w|²; `"per sample"` for
      Σ_ℓ [(y − w·x)² + penalty·|w|²], that is ρ = penalty·L.
    """
    blocks, penalty = Blocks.of(task), _check_penalty(penalty)
    length = check_whole("blocks.length", blocks.length)
    strength = penalty * _multiple(counted, blocks)

    def one(size: float, signal: float, noise: float) -> float:
        size = check_whole("blocks.sizes", size)
        first, second = resolvent_traces(size, length, strength)
        return signal * strength**2 * second + noise * (first - strength * second)

    return _each(one, blocks)


def ridge_limit(task: Tasks, penalty: float, counted: Counted) -> Losses:
    """The same for d_i, L → ∞ at given d_i/L, by the Marchenko–Pastur law; any real sizes."""
    blocks, penalty = Blocks.of(task), _check_penalty(penalty)
    per_sample = penalty * _multiple(counted, blocks) / blocks.length

    def one(size: float, signal: float, noise: float) -> float:
        power = signal * size
        relative = noise / power
        risk = ridge_risk_limit(per_sample, size / blocks.length, relative)
        return power * (risk - relative)

    return _each(one, blocks)


def bayes(task: Tasks) -> Losses:
    """The smallest loss of any predictor on each task (MMSE), exact: ridge with ρ = σ_i²/λ_i."""
    blocks = Blocks.of(task)
    length = check_whole("blocks.length", blocks.length)

    def one(size: float, signal: float, noise: float) -> float:
        power, size = signal * size, check_whole("blocks.sizes", size)
        relative = noise / power
        return power * (bayes_risk_isotropic(Setting(size, length, relative)) - relative)

    return _each(one, blocks)


def bayes_limit(task: Tasks) -> Losses:
    """The same for d_i, L → ∞ at given d_i/L."""
    blocks = Blocks.of(task)

    def one(size: float, signal: float, noise: float) -> float:
        power = signal * size
        relative = noise / power
        return power * (proportional_risks(size / blocks.length, relative).bayes - relative)

    return _each(one, blocks)


def _check_penalty(penalty: float) -> float:
    return check_number("penalty", penalty, "finite and positive", lambda x: 0 < x < np.inf)


def _multiple(counted: Counted, blocks: Blocks) -> float:
    if counted not in ("once", "per sample"):
        raise Refusal(f"`counted` = {counted!r}: must be 'once' or 'per sample'.")
    return blocks.length if counted == "per sample" else 1.0


def _each(one, blocks: Blocks) -> Losses:
    """`one` of the size, signal and noise of every task."""
    return np.array(
        [one(*map(float, task)) for task in zip(blocks.sizes, blocks.signal, blocks.noise)]
    )

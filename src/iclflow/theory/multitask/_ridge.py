"""Ridge regression and Bayes on each block: references for attention.

Ridge on task i minimises Σ_ℓ (y_iℓ − w·x_iℓ)² + ρ|w|² over its own d_i coordinates. Beyond the
noise of the query's label its loss is λρ²T₂ + σ²(T₁ − ρT₂), T_k = E tr(XXᵀ + ρI)⁻ᵏ. Papers write
the penalty in two ways, which must be named: ρ itself, or ρ/L. Derived in docs/theory/multitask.md.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_positive, check_whole
from .._softmax_ridge import bayes_risk_isotropic, proportional_risks, ridge_risk, ridge_risk_limit
from .._softmax_setting import Setting
from ._blocks import Blocks, Tasks

Counted = Literal["once", "per sample"]
Losses = Float[np.ndarray, " I"]


def ridge(task: Tasks, penalty: float, counted: Counted) -> Losses:
    """λρ²T₂ + σ²(T₁ − ρT₂), the loss of ridge regression on each task, exact at finite d_i and L.

    **Arguments:**

    - `counted`: `"once"` for Σ_ℓ (y − w·x)² + penalty·|w|²; `"per sample"` for
      Σ_ℓ [(y − w·x)² + penalty·|w|²], that is ρ = penalty·L.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([4, 4], [0.25, 0.25], [0.1, 0.2], length=40)
    >>> icl.theory.multitask.ridge(task, penalty=0.4, counted="once").round(4)
    array([0.0113, 0.0224])
    >>> icl.theory.multitask.ridge(task, penalty=0.01, counted="per sample").round(4)
    array([0.0113, 0.0224])
    >>> icl.theory.multitask.bayes(task).round(4)
    array([0.0113, 0.0223])
    ```
    """
    blocks = Blocks.of(task)
    strength = _strength(penalty, counted, blocks)
    return _each(blocks, lambda size, noise: ridge_risk(_whole(blocks, size, noise), strength))


def ridge_limit(task: Tasks, penalty: float, counted: Counted) -> Losses:
    """`ridge` for d_i, L → ∞ at given d_i/L, by `ridge_risk_limit`; any real sizes.

    **Example:**

    ```pycon
    >>> small = icl.theory.multitask.Blocks([4], [0.25], [0.1], length=40)
    >>> large = icl.theory.multitask.Blocks([100], [0.01], [0.1], length=1000)
    >>> for task in (small, large):
    ...     exact = icl.theory.multitask.ridge(task, 0.1, "per sample")
    ...     limit = icl.theory.multitask.ridge_limit(task, 0.1, "per sample")
    ...     print(exact.round(4), limit.round(4))
    ...
    [0.0204] [0.0195]
    [0.0195] [0.0195]
    ```
    """
    blocks = Blocks.of(task)
    per_sample = _strength(penalty, counted, blocks) / blocks.length
    return _each(
        blocks, lambda size, noise: ridge_risk_limit(per_sample, size / blocks.length, noise)
    )


def bayes(task: Tasks) -> Losses:
    """The smallest loss of any predictor on each task (MMSE), exact: ridge with ρ = σ_i²/λ_i.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([4], [0.25], [0.1], length=40)
    >>> icl.theory.multitask.bayes(task).round(4)
    array([0.0113])
    >>> # Ridge with the penalty σ²/λ.
    >>> icl.theory.multitask.ridge(task, penalty=0.1 / 0.25, counted="once").round(4)
    array([0.0113])
    ```
    """
    blocks = Blocks.of(task)
    return _each(blocks, lambda size, noise: bayes_risk_isotropic(_whole(blocks, size, noise)))


def bayes_limit(task: Tasks) -> Losses:
    """`bayes` for d_i, L → ∞ at given d_i/L, by `proportional_risks`.

    **Example:**

    ```pycon
    >>> small = icl.theory.multitask.Blocks([4], [0.25], [0.1], length=40)
    >>> large = icl.theory.multitask.Blocks([100], [0.01], [0.1], length=1000)
    >>> for task in (small, large):
    ...     exact = icl.theory.multitask.bayes(task)
    ...     print(exact.round(5), icl.theory.multitask.bayes_limit(task).round(5))
    ...
    [0.01128] [0.01098]
    [0.01099] [0.01098]
    ```
    """
    blocks = Blocks.of(task)
    return _each(blocks, lambda size, noise: proportional_risks(size / blocks.length, noise).bayes)


def _strength(penalty: float, counted: Counted, blocks: Blocks) -> float:
    """ρ of a penalty that is counted once or per sample."""
    penalty = check_positive("penalty", penalty)
    if counted not in ("once", "per sample"):
        raise Refusal(f"`counted` = {counted!r}: must be 'once' or 'per sample'.")
    return penalty * (blocks.length if counted == "per sample" else 1.0)


def _whole(blocks: Blocks, size: float, noise: float) -> Setting:
    """One task, whose size and length must be whole numbers: exact traces exist for these only."""
    length = check_whole("blocks.length", blocks.length)
    return Setting(check_whole("blocks.sizes", size), length, noise)


def _each(blocks: Blocks, risk: Callable[[float, float], float]) -> Losses:
    """λd(risk − σ²/λd) of every task: `risk` is in units of the signal λd, with that noise."""
    noise = blocks.noise / blocks.power
    risks = [risk(float(size), float(relative)) for size, relative in zip(blocks.sizes, noise)]
    return blocks.power * (np.array(risks) - noise)

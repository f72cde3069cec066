"""How many tasks are enough for a single layer: limits of the statics, and the threshold K ~ d.

White inputs x ~ N(0, I) and unit label power. With q = d(1 + σ²)/N and c = 1 + 1/N, K random unit
tasks cost q²/(c + q)³·(d − 1)/K more on fresh tasks than infinitely many, to leading order in 1/K,
and gain as much on their own. A power law, no transition (derived in docs/theory/diversity.md).
"""

import numpy as np

from ...tasks import LinearRegression
from .._check import check_positive, check_whole
from .._moments import moments
from .._softmax_setting import Isotropic, Setting
from ._components import components, roots


def few_tasks_excess(task: Isotropic, count: int) -> float:
    """L_ICL(K) − L_∞ ≃ L_∞ − L_IDG(K) ≃ q²/(c + q)³·(d − 1)/K, for K random unit tasks.

    ```pycon
    >>> task = icl.theory.Setting(dim=10, length=20, noise=0.1)
    >>> round(icl.theory.diversity.few_tasks_excess(task, 200), 6)
    0.003323

    ```
    """
    at = Setting.of(task)
    return _coefficient(at) * (at.dim - 1) / check_whole("count", count)


def diversity_threshold(task: Isotropic, excess: float) -> float:
    """K_ε: from how many tasks on fresh ones cost at most `excess` more than infinitely many do.

    (d − 1)q²/((c + q)³ε): proportional to d, and to N⁻² for long contexts.

    ```pycon
    >>> task = icl.theory.Setting(dim=10, length=20, noise=0.1)
    >>> round(icl.theory.diversity.diversity_threshold(task, 0.01), 2)
    66.47

    ```
    """
    at = Setting.of(task)
    return _coefficient(at) * (at.dim - 1) / check_positive("excess", excess)


def infinite_context_loss(task: LinearRegression, test: LinearRegression) -> float:
    """σ_q² + tr[M̂_t(I − P)]: the test loss as N → ∞ of a layer trained on `task`, with as long
    contexts.

    P projects on the span of the tasks; for isotropic tests and K generic tasks of unit power on
    white inputs it is σ² + (1 − K/d)₊.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> one = icl.theory.diversity.with_tasks(task, [[0.0, 0.6, 0.8, 0.0]])
    >>> fresh = icl.theory.diversity.with_second_moment(task, np.eye(4) / 4)
    >>> round(icl.theory.diversity.infinite_context_loss(one, fresh), 6)
    0.85

    ```
    """
    u, at = components(task).directions, moments(test)
    # At N → ∞ every component of the span is read with ΛA = Λ^½ P Λ^−½.
    root, inverse = roots(np.asarray(task.covariance, dtype=np.float64))
    left = np.eye(task.dim) - root @ u @ u.T @ inverse
    missed = np.sum(at.weight_second_moment * (left @ at.covariance @ left.T))
    return float(missed + test.query_noise)


def _coefficient(at: Setting) -> float:
    ratio = at.dim * (1 + at.noise) / at.length
    return ratio**2 / (1 + 1 / at.length + ratio) ** 3

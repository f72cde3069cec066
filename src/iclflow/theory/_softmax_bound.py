"""A lower bound on the loss of any number of structured heads.

Heads with W_h = ω_h I and μ_h see the context through s_l = x_l·q/|q| alone, and weigh labels by
some c(|q|, s). The best c of all, whether heads can make it or not, is proportional to s. Derived
in docs/theory/softmax.md. It bounds structured heads only: for free key-query matrices only the
Bayes risk is a bound.
"""

from dataclasses import replace

import numpy as np
import scipy.integrate

from ._softmax_setting import Isotropic, Setting
from ._softmax_steps import gradient_step_optimum


def any_heads_bound(task: Isotropic) -> float:
    """σ² + E[B/(χ²_L + B)], B = d − 1 + dσ²: below the loss of every set of structured heads."""
    at = Setting.of(task)
    rest = at.dim * at.across
    if rest == 0:
        return at.noise

    # 1/(χ² + B) as a Laplace integral, with E e^{−tχ²} = (1 + 2t)^{−L/2}.
    def integrand(u: float) -> float:
        return float(np.exp(-u - at.length / 2 * np.log1p(2 * u / rest)))

    # The integrand falls on the scale 1/(1 + L/B): the break keeps long contexts in sight.
    scale = 40 / (1 + at.length / rest)
    near, _ = scipy.integrate.quad(integrand, 0, scale, epsabs=1e-14, epsrel=1e-13, limit=200)
    far, _ = scipy.integrate.quad(integrand, scale, np.inf, epsabs=1e-14, epsrel=1e-10, limit=200)
    return at.noise + near + far


def linear_over_softmax_bound(task: Isotropic) -> float:
    """The most by which structured softmax heads can beat linear attention, as a ratio of losses.

    (risk of the best gradient step)/(risk of any heads) ≤ this at every noise and in any units,
    whether or not the noise of the query is counted: it is the ratio at σ = 0, whatever the noise
    of `task`. A table that shows a larger ratio is not of structured heads on this task. For d = 1
    there is no bound: the value is infinite.
    """
    noiseless = replace(Setting.of(task), noise=0.0)
    bound = any_heads_bound(noiseless)
    return np.inf if bound == 0 else gradient_step_optimum(noiseless).risk / bound

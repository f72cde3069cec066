"""One softmax head, exactly: kernel regression with the kernel exp(ω x·q), scaled by μ.

It returns μ Σ y_l e^{ω x_l·q}/Σ e^{ω x_l·q}, the Nadaraya–Watson estimator for μ = 1. Its risk at
finite L and d needs one-dimensional integrals alone (`attention_powers`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize

from ..errors import Refusal
from ._softmax_large_context import BestHead
from ._softmax_powers import STEEPEST, attention_powers, chi_rule
from ._softmax_setting import Isotropic, Setting


class OneHeadForm(NamedTuple):
    """The loss of one head as σ² + 1 − 2μb + μ²c."""

    b: float
    c: float
    noise: float

    def loss(self, mu: float) -> float:
        return float(self.noise + 1 - 2 * mu * self.b + mu**2 * self.c)

    @property
    def best_mu(self) -> float:
        return self.b / self.c


def kernel_regression_risk(task: Isotropic, omega: float, mu: float = 1.0) -> float:
    """Risk of μ Σ y_l e^{ω x_l·q}/Σ e^{ω x_l·q}, exact; the loss of one head (ω, μ)."""
    return _form(omega, Setting.of(task)).loss(mu)


def one_head_optimum(task: Isotropic) -> BestHead:
    """The best single head at finite d and L: ω, μ and the exact loss."""
    at = Setting.of(task, shortest=2)
    return _best(at, lambda form: form.best_mu)


def kernel_regression_optimum(task: Isotropic) -> BestHead:
    """The Nadaraya–Watson estimator (μ = 1) with its best ω, and its exact risk."""
    at = Setting.of(task, shortest=2)
    return _best(at, lambda form: 1.0)


def _form(omega: float, at: Setting) -> OneHeadForm:
    b = c = 0.0
    for r, weight in zip(*chi_rule(at.dim)):
        powers = attention_powers(omega * r, at.length)
        b += weight * omega * r**2 * (1 - powers.second) / at.dim
        c += weight * (powers.signal(omega * r) / at.dim + at.across * powers.second)
    return OneHeadForm(float(b), float(c), at.noise)


def _best(at: Setting, mu_of: Callable[[OneHeadForm], float]) -> BestHead:
    def head(log_omega: float) -> BestHead:
        form = _form(float(np.exp(log_omega)), at)
        mu = mu_of(form)
        return BestHead(float(np.exp(log_omega)), mu, form.loss(mu))

    # One valley in log ω in every case looked at; the bracket is wide around ω = d^−½.
    low = -np.log(at.dim) / 2 - 4
    high = min(low + 6.5, np.log(STEEPEST / chi_rule(at.dim)[0][-1]))
    found = scipy.optimize.minimize_scalar(
        lambda log_omega: head(log_omega).loss,
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9},
    )
    best = float(found.x)  # pyright: ignore[reportAttributeAccessIssue]
    if min(best - low, high - best) < 1e-4:
        raise Refusal(
            f"d = {at.dim:g}, L = {at.length:g}, σ² = {at.noise:g}: no best ω between "
            f"{np.exp(low):.3g} and {np.exp(high):.3g}; with so few samples the best head may be "
            "one that picks single points."
        )
    return head(best)

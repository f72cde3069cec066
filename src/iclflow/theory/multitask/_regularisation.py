"""Implicit regularisation: softmax attention shrinks as ridge does, and stays spread out.

One head a task returns k_i = 1/(1 + c_i) of the signal, c_i = eφ_i d_i/L. Ridge and early-stopped
gradient flow on the context return some part too, so each has a strength that is the same. And
scores have the variance dω² = 1 at the optimum whatever the noise, in the closed form; the exact
loss at finite L moves it. Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from .._softmax_one_head import one_head_optimum
from .._softmax_powers import attention_powers, chi_rule
from .._softmax_setting import Isotropic, Setting
from ._blocks import Blocks, Tasks


class Shrinkage(NamedTuple):
    """What returns the same part of the signal, on average, as one head a task does.

    - `step`: k_i, that part; one gradient step from zero of this size returns it too.
    - `penalty`: z_i of ridge, counted per sample: c_i(1 − γ_i k_i), γ_i = d_i/L.
    - `time`: s_i of gradient flow on the context's mean squared error/2, stopped.

    The last two for d_i, L → ∞ at given γ_i.
    """

    step: Float[np.ndarray, " I"]
    penalty: Float[np.ndarray, " I"]
    time: Float[np.ndarray, " I"]


class Spread(NamedTuple):
    """The best single head at finite d and L, and how spread out its attention is.

    - `score_variance`: dω²; 1 in the closed form, at every noise.
    - `concentration`: E|p|², averaged over queries; its inverse counts the samples in use.
    - `loss`: the exact loss, with the noise of the query's label.
    """

    score_variance: float
    concentration: float
    loss: float


def same_shrinkage(task: Tasks) -> Shrinkage:
    """The ridge penalty and the stopping time that shrink as `gradient_flow_limit` does."""
    blocks = Blocks.of(task)
    odds = np.e / blocks.samples
    step, ratio = 1 / (1 + odds), blocks.sizes / blocks.length
    times = np.array([_stopping_time(k, gamma) for k, gamma in zip(step, ratio)])
    return Shrinkage(step, odds * (1 - ratio * step), times)


def best_head_spread(task: Isotropic) -> Spread:
    """How spread out the attention of the best head is on an isotropic task, exactly."""
    at = Setting.of(task)
    best = one_head_optimum(at)
    radii, weights = chi_rule(at.dim)
    powers = [attention_powers(best.omega * r, at.length).second for r in radii]
    return Spread(at.dim * best.omega**2, float(weights @ np.array(powers)), best.loss)


def _stopping_time(step: float, ratio: float) -> float:
    """The time s with E(1 − e^{−sx}) = k over eigenvalues x of the context's covariance."""
    # Marchenko–Pastur in x = 1 + γ + 2√γ cos θ, without its part at zero, by Gauss–Chebyshev.
    unit, weight = scipy.special.roots_chebyu(400)
    x = 1 + ratio + 2 * np.sqrt(ratio) * unit
    weight = weight * 2 / (np.pi * x)
    missing = lambda log: float(weight @ -np.expm1(-np.exp(log) * x)) - step
    found = scipy.optimize.brentq(missing, -40.0, 40.0)
    return float(np.exp(float(found)))  # pyright: ignore[reportArgumentType]

"""Experiments on the exact risk of structured softmax heads, each computed once and shared.

Every number here comes from one compiled program: the exact risk of two heads and its gradient, at
any context length. One head is a pair whose second head reads nothing; more heads are put together
from pairs, since the loss is quadratic in μ.
"""

import functools
import itertools
from typing import NamedTuple

import equinox as eqx
import numpy as np
import scipy.integrate
import scipy.optimize

from ... import theory
from ...risks import ExactSoftmaxRisk, exact_softmax_risk
from .. import Lab, once
from .runs import CONTEXT, DIM, NOISE, paper_task, structured_heads

# Where the flow of the pair starts, when it is looked at, and a moment after its end.
START = 0.1
TIMES = (1e1, 1e2, 1e3, 1e4, 1e5)
FOREVER = 3e7
# Trained values that are reported for two heads.
REPORTED = (0.13, 3.45)


class Point(NamedTuple):
    """The exact loss at some weights, and its slopes."""

    loss: float
    omega: np.ndarray
    mu: np.ndarray


class Path(NamedTuple):
    """Weights along a gradient flow of the exact loss."""

    times: np.ndarray
    omega: np.ndarray
    mu: np.ndarray
    loss: np.ndarray


class LossMap(NamedTuple):
    """Losses of the pair with the best μ by the large-context loss: a row a length L, a column a
    width ω."""

    ratios: np.ndarray  # L/d
    widths: np.ndarray  # ω√d
    exact: np.ndarray
    large_context: np.ndarray
    first_order: np.ndarray


class Form(NamedTuple):
    """The exact loss of heads with given ω: σ² + 1 − 2b·μ + μᵀQμ."""

    b: np.ndarray
    Q: np.ndarray

    def best_loss(self, heads: list[int]) -> float:
        """The smallest loss with these heads alone."""
        b, Q = self.b[heads], self.Q[np.ix_(heads, heads)]
        return NOISE + 1 - float(b @ np.linalg.solve(Q, b))


def note_exact(lab: Lab, **settings) -> None:
    """Records the paper's setting, in which exact losses are computed, and what is added."""
    lab.note(dim=DIM, context=CONTEXT, noise=NOISE, risk="exact", **settings)


def exact_point(omega, mu, length: float = CONTEXT) -> Point:
    """The exact loss of two heads at d = 5, σ² = 0.1, and its slopes."""
    loss, *slopes = _point(_risk(float(length)), np.asarray(omega, float), np.asarray(mu, float))
    return Point(float(loss), *map(np.asarray, slopes))


def pair_loss(omega: float, mu: float, length: float = CONTEXT) -> float:
    """The exact loss of the heads (ω, μ) and (−ω, −μ)."""
    return exact_point([omega, -omega], [mu, -mu], length).loss


def one_head_loss(omega: float, mu: float, length: float = CONTEXT) -> float:
    """The exact loss of one head."""
    return exact_point([omega, 0.0], [mu, 0.0], length).loss


def exact_flow(omega, mu, times) -> Path:
    """Gradient flow of the exact loss of two heads, from t = 0.

    Two time scales that differ by 10⁷, and four numbers: an implicit method with differences for
    its Jacobian needs nothing but the gradient that is compiled anyway.
    """

    def velocity(_, state):
        point = exact_point(state[:2], state[2:])
        return -0.5 * np.concatenate([point.omega, point.mu])

    times = np.asarray(times, float)
    found = scipy.integrate.solve_ivp(
        velocity, (0.0, times[-1]), [*omega, *mu], "BDF", t_eval=times, rtol=1e-5, atol=1e-7
    )
    if not found.success:
        raise RuntimeError(f"The exact flow could not be integrated: {found.message}")
    losses = np.array([exact_point(state[:2], state[2:]).loss for state in found.y.T])
    return Path(times, found.y[:2].T, found.y[2:].T, losses)


@once
def pair_path(lab: Lab) -> Path:
    """The flow of the pair from (0.1, 0.1) to its end."""
    start = [START, -START]
    return exact_flow(start, start, (0.0, *TIMES, FOREVER))


@once
def best_single_head(lab: Lab) -> tuple[float, float, float]:
    """ω, μ and loss of the best single head, by minimisation of the exact risk."""

    def loss(weights):
        point = exact_point([weights[0], 0.0], [weights[1], 0.0])
        return point.loss, np.array([point.omega[0], point.mu[0]])

    found = scipy.optimize.minimize(loss, (0.4, 1.0), jac=True, options={"gtol": 1e-9})
    return float(found.x[0]), float(found.x[1]), float(found.fun)


@once
def loss_map(lab: Lab) -> LossMap:
    """Exact and approximate losses of the pair over L/d and ω√d."""
    ratios = np.array([2.0, 8.0, 40.0, 200.0, 1000.0])
    widths = np.array([0.1, 0.3, 0.6, 1.0])
    rows = []
    for ratio, width in itertools.product(ratios, widths):
        omega, length = width * DIM**-0.5, ratio * DIM
        omegas = np.array([omega, -omega])
        task = paper_task(int(length))
        mus = theory.optimal_mu(task, omegas)
        rows.append(
            (
                exact_point(omegas, mus, length).loss,
                theory.softmax_large_context_loss(task, omegas, mus),
                theory.softmax_first_order_loss(task, omegas, mus),
            )
        )
    losses = np.array(rows).reshape(len(ratios), len(widths), 3)
    return LossMap(ratios, widths, *np.moveaxis(losses, 2, 0))


@once
def head_form(lab: Lab, omega: tuple[float, ...]) -> Form:
    """The exact loss of many heads as a quadratic form in μ, from the losses of pairs."""
    count = len(omega)
    b, Q = np.zeros(count), np.zeros((count, count))
    for pair in itertools.combinations(range(count), 2):
        omegas = [omega[h] for h in pair]
        at_zero, *at_one = (exact_point(omegas, mu).mu for mu in ([0, 0], [1, 0], [0, 1]))
        b[list(pair)] = -at_zero / 2
        Q[np.ix_(pair, pair)] = (np.stack(at_one) - at_zero) / 2
    return Form(b, Q)


def hessian(omega, mu, step: float = 1e-4) -> np.ndarray:
    """The Hessian of the exact loss of two heads in (ω, μ), by differences of its gradient."""
    state = np.concatenate([omega, mu]).astype(float)
    columns = []
    for i in range(4):
        sides = []
        for sign in (1, -1):
            moved = state + sign * step * (np.arange(4) == i)
            point = exact_point(moved[:2], moved[2:])
            sides.append(np.concatenate([point.omega, point.mu]))
        columns.append((sides[0] - sides[1]) / (2 * step))
    matrix = np.stack(columns, 1)
    return (matrix + matrix.T) / 2


@functools.cache
def _risk(length: float) -> ExactSoftmaxRisk:
    # Eight digits leave errors of a few 1e-9 at the weights here, and cost half as much as ten.
    return exact_softmax_risk(paper_task(), digits=8).at_length(length)


@eqx.filter_jit
def _point(risk: ExactSoftmaxRisk, omega, mu):
    loss, slope = risk.value_and_gradient(structured_heads(omega, mu))
    return loss, slope.circuits.omega, slope.circuits.mu[:, 0]

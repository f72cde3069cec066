"""Experiments on exact risks, of structured softmax heads and of linear attention.

Every number about softmax heads comes from one compiled program: the exact risk of two heads and
its gradient, at any context length. One head is a pair whose second head reads nothing; more heads
are put together from pairs, since the loss is quadratic in μ.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.optimize
from jaxtyping import ScalarLike

from ... import theory
from ...models import Attention, Merged
from ...risks import ExactSoftmaxRisk, exact_softmax_risk, risk
from ...tasks import isotropic
from ...trajectory import Trajectory
from .. import Lab, find_study, once
from .runs import CONTEXT, DIM, NOISE, SETTING, SIGNS, paper_task, structured_heads

# Where the flow of the pair starts, when it is looked at, and a moment after its end.
START = find_study("softmax/pair-exact").data["model"]["scale"]
TIMES = (1e1, 1e2, 1e3, 1e4, 1e5)
FOREVER = 3e7
# Other moments of the same flow, for figures.
_BETWEEN = np.geomspace(0.05, 1e7, 145)
# Trained values that are reported for two heads.
REPORTED = (0.13, 3.45)
# Context lengths at which models of L = 40 are tested.
LENGTHS = (10, 20, 40, 100, 1000, 10_000)


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

    def at(self, chosen: np.ndarray) -> "Path":
        """The path at some of its moments."""
        return Path(*(field[chosen] for field in self))

    def as_run(self) -> Trajectory:
        """The same as a run, such as claims are checked on."""
        return Trajectory(self.times, self.loss, jax.vmap(structured_heads)(self.omega, self.mu))


class LossMap(NamedTuple):
    """Losses of the pair with the best μ by the large-context loss: one row per length L, one
    column per width ω."""

    ratios: np.ndarray  # L/d
    widths: np.ndarray  # ω√d
    exact: np.ndarray
    large_context: np.ndarray
    first_order: np.ndarray


def note_exact(lab: Lab, **settings: Any) -> None:
    """Records the paper's setting, in which exact losses are computed, and what is added."""
    lab.note(**SETTING, risk="exact", **settings)


def exact_point(omega: Any, mu: Any, length: ScalarLike = CONTEXT) -> Point:
    """The exact loss of two heads at d = 5, σ² = 0.1, and its slopes."""
    loss, *slopes = _point(
        _risk(float(np.asarray(length))), np.asarray(omega, float), np.asarray(mu, float)
    )
    return Point(float(loss), *map(np.asarray, slopes))


def pair_loss(omega: float, mu: float, length: ScalarLike = CONTEXT) -> float:
    """The exact loss of the heads (ω, μ) and (−ω, −μ)."""
    return exact_point([omega, -omega], [mu, -mu], length).loss


def one_head_loss(omega: float, mu: float, length: ScalarLike = CONTEXT) -> float:
    """The exact loss of one head."""
    return exact_point([omega, 0.0], [mu, 0.0], length).loss


def exact_flow(omega: Any, mu: Any, times: Any) -> Path:
    """Gradient flow of the exact loss of two heads, from t = 0.

    Two time scales that differ by 10⁷, and four numbers: an implicit method with differences for
    its Jacobian needs nothing but the gradient that is compiled anyway.
    """

    def velocity(_, state):
        point = exact_point(state[:2], state[2:])
        # The flow is that of half the loss.
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
def _whole_path(lab: Lab) -> Path:
    """The flow of the pair from (0.1, 0.1) to its end, at all moments that anybody looks at."""
    times = np.unique([0.0, *TIMES, *_BETWEEN, FOREVER])
    return exact_flow(START * SIGNS, START * SIGNS, times)


def pair_path(lab: Lab) -> Path:
    """The flow of the pair from (0.1, 0.1) to its end, at the moments of the claims."""
    path = _whole_path(lab)
    return path.at(np.isin(path.times, (0.0, *TIMES, FOREVER)))


def pair_curve(lab: Lab) -> Path:
    """The same flow as a curve, far into the slow manifold."""
    path = _whole_path(lab)
    end = {"smoke": 1e3, "default": 1e6, "paper": 1e7}[lab.tier]
    return path.at(path.times <= end)


@once
def best_single_head(lab: Lab) -> tuple[float, float, float]:
    """ω, μ and loss of the best single head, by minimisation of the exact risk."""

    def loss(weights):
        point = exact_point([weights[0], 0.0], [weights[1], 0.0])
        return point.loss, np.array([point.omega[0], point.mu[0]])

    # From near the optimum at (0.52, 1.50), as far as the accuracy of the quadrature allows.
    found = scipy.optimize.minimize(loss, (0.4, 1.0), jac=True, options={"gtol": 1e-9})
    return float(found.x[0]), float(found.x[1]), float(found.fun)


@once
def loss_map(lab: Lab) -> LossMap:
    """Exact and approximate losses of the pair over L/d and ω√d."""
    ratios = np.array([2.0, 8.0, 40.0, 200.0, 1000.0])
    widths = np.array([0.1, 0.3, 0.6, 1.0])
    rows = []
    for ratio, width in itertools.product(ratios, widths):
        length, omega = ratio * DIM, width * DIM**-0.5 * SIGNS
        task = paper_task(int(length))
        mu = theory.optimal_mu(task, omega)
        exact = exact_point(omega, mu, length).loss
        large = theory.softmax_large_context_loss(task, omega, mu)
        rows.append((exact, large, theory.softmax_first_order_loss(task, omega, mu)))
    losses = np.array(rows).reshape(len(ratios), len(widths), 3)
    return LossMap(ratios, widths, *np.moveaxis(losses, 2, 0))


@once
def best_loss(lab: Lab, omega: tuple[float, ...]) -> float:
    """The exact loss of many heads with these ω and the best μ.

    It is the smallest value of σ² + 1 − 2b·μ + μᵀQμ, where pairs of heads give b and Q.
    """
    count = len(omega)
    b, Q = np.zeros(count), np.zeros((count, count))
    for pair in itertools.combinations(range(count), 2):
        omegas = [omega[h] for h in pair]
        at_zero, *at_one = (exact_point(omegas, mu).mu for mu in ([0, 0], [1, 0], [0, 1]))
        b[list(pair)] = -at_zero / 2
        Q[np.ix_(pair, pair)] = (np.stack(at_one) - at_zero) / 2
    return NOISE + 1 - float(b @ np.linalg.solve(Q, b))


def hessian(omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """The Hessian of the exact loss of two heads in (ω, μ), by differences of its gradient."""
    # Errors of the gradient, 1e-9, over this step stay below 1e-4 of a curvature.
    state, step = np.concatenate([omega, mu]).astype(float), 1e-4

    def gradient(state: np.ndarray) -> np.ndarray:
        point = exact_point(state[:2], state[2:])
        return np.concatenate([point.omega, point.mu])

    moves = step * np.eye(4)
    sides = [(gradient(state + move), gradient(state - move)) for move in moves]
    matrix = np.stack([(above - below) / (2 * step) for above, below in sides], 1)
    return (matrix + matrix.T) / 2


@functools.cache
def _risk(length: float) -> ExactSoftmaxRisk:
    # Eight digits leave errors of a few 1e-9 at the weights here, and cost half as much as ten.
    return exact_softmax_risk(paper_task(), digits=8).at_length(length)


@eqx.filter_jit
def _point(risk: ExactSoftmaxRisk, omega, mu):
    loss, slope = risk.value_and_gradient(structured_heads(omega, mu))
    return loss, slope.circuits.omega, slope.circuits.mu[:, 0]


def exact_map(omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """The exact loss of pairs at every (μ, ω): at each ω it is 1 + σ² − 2bμ + cμ², so that one loss
    and its slope give all."""
    rows = []
    for w in omega:
        at = 1 / (2 * w)  # near the best μ, where a step is about one
        point = exact_point(w * SIGNS, at * SIGNS)
        rise, slope = point.loss - 1 - NOISE, float(point.mu @ SIGNS)
        square = (at * slope - rise) / at**2
        rows.append(1 + NOISE + (slope - 2 * square * at) * mu + square * mu**2)
    return np.stack(rows, 1)


def plain_step(size: float, dim: int = DIM) -> Attention:
    """Linear attention that is a plain gradient step of this size."""
    return Attention(Merged.of(jnp.ones(1), size * jnp.eye(dim)[None]))


def best_linear(dim: int, context: int) -> Attention:
    """Linear attention with the smallest exact risk, a plain step: the slope of the risk in the
    size of the step is a line."""

    with_step = functools.partial(plain_step, dim=dim)
    exact = risk(isotropic(dim, context, NOISE), with_step(1.0), "exact")
    # The slope in v at v = 1 is the size of the step times the slope in it.
    slope = lambda size: float(exact.value_and_gradient(with_step(size))[1].circuits.v[0]) / size
    at_one, at_two = slope(1.0), slope(2.0)
    return with_step(1 - at_one / (at_two - at_one))


def linear_lengths(
    model: Attention, trained_at: int, divided: bool, lengths: Sequence[int] = LENGTHS
) -> np.ndarray:
    """Exact losses at other lengths of linear attention trained at one."""
    if not divided:
        # The same function at the length of training: the weights hold the division instead.
        circuits = Merged.of(model.circuits.v / trained_at, model.circuits.U)
        model = Attention(circuits, normaliser="none")
    tasks = [isotropic(model.dim, length, NOISE) for length in lengths]
    return np.array([float(risk(task, model, "exact")(model)) for task in tasks])

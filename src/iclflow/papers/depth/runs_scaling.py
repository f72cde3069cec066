"""Losses of power-law spectra by plain numerics, which know no theory: λ_k = k^−ν, λ_kω_k ∝
k^−(νβ+1), as arXiv 2510.01098 has them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.integrate
import scipy.optimize
from jaxtyping import Float

from .. import Lab, once


class PowerLaw(NamedTuple):
    """ν, β and how many modes there are."""

    nu: float
    beta: float
    modes: int

    @property
    def values(self) -> Float[np.ndarray, " K"]:
        return np.arange(1.0, self.modes + 1) ** -self.nu

    @property
    def weights(self) -> Float[np.ndarray, " K"]:
        raw = np.arange(1.0, self.modes + 1) ** (-self.nu * self.beta - 1)
        return raw / raw.sum()


class Curve(NamedTuple):
    """Losses over a resource: time, layers, width, context."""

    x: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, " T"]

    @property
    def exponent(self) -> float:
        """−slope of ln loss over ln x, by least squares."""
        return -float(np.polynomial.polynomial.polyfit(np.log(self.x), np.log(self.losses), 1)[1])


@once
def flow_curve(lab: Lab, nu: float, beta: float, layers: int) -> Curve:
    """Untied flow from zero at infinite context, where each mode flows alone.

    Mode k has the loss λωΠ_l r_l², r_l = 1 − λγ_l; equal layers from zero stay equal, and in units
    of ωλ³ t all modes have the same flow ṙ = −r^{2L−1}, here solved and not known.
    """
    law = PowerLaw(nu, beta, 10**6)
    clock = np.geomspace(1e-9, 1e13, 2000)
    slope = lambda log_time, r: -np.exp(log_time) * r ** (2 * layers - 1)
    found = scipy.integrate.solve_ivp(
        slope, np.log(clock[[0, -1]]), [1.0], "LSODA", np.log(clock), rtol=1e-9, atol=1e-60
    )
    left = 2 * layers * np.log(np.maximum(found.y[0], 1e-40))
    # Times at which directions from the hundredth to the ten thousandth are being learned.
    rates = law.weights * law.values**2
    times = np.geomspace(1 / rates[99], 1 / rates[9999], 9)
    losses = [
        law.weights @ np.exp(np.interp(np.log(rates * t), np.log(clock), left)) for t in times
    ]
    return Curve(times, np.array(losses))


# The depths of the fit to loops.
DEPTHS = (256, 1024, 4096)


@once
def loop_curve(lab: Lab, nu: float, beta: float) -> Curve:
    """The best loops at infinite context."""
    law = PowerLaw(nu, beta, 10**6)
    losses = [best_loop(law, count) for count in DEPTHS]
    return Curve(np.array(DEPTHS, float), np.array(losses))


def best_loop(law: PowerLaw, layers: int) -> float:
    """The least Σ λω (1 − γλ)^{2L}; above γ = 2 it grows without end."""
    values, weights = law.values, law.weights
    loss = lambda step: float(weights @ np.abs(1 - step * values) ** (2 * layers))
    found: Any = scipy.optimize.minimize_scalar(loss, bounds=(0.1, 2.2), method="bounded")
    return float(found.fun)


@once
def rotated_curve(lab: Lab, nu: float, beta: float, degree: int) -> Curve:
    """The flow of w, γ = w^n, of a loop of 4096 layers on covariances rotated in every context."""
    law, layers = PowerLaw(nu, beta, 20_000), 4096
    values, weights = law.values, law.weights

    def slope(log_time: float, log_w: np.ndarray) -> np.ndarray:
        step = np.exp(degree * log_w[0])
        left = np.exp((2 * layers - 1) * np.log1p(-step * values))
        push = layers * (weights * values) @ left * degree * step / np.exp(2 * log_w[0])
        return np.array([np.exp(log_time) * push])

    times = np.geomspace(*{1: (1e-2, 1e4), 2: (1e-2, 1e2), 3: (1e-2, 1e1)}[degree], 25)
    start = np.log(0.1 / layers) / degree
    found = scipy.integrate.solve_ivp(
        slope, (np.log(1e-9), np.log(times[-1])), [start], "LSODA", np.log(times), rtol=1e-9
    )
    steps = np.exp(degree * found.y[0])
    losses = np.array([weights @ np.exp(2 * layers * np.log1p(-s * values)) for s in steps])
    return Curve(times, losses)


# The depths of the fit to untied layers.
UNTIED = (32, 64, 128)


@once
def untied_curve(lab: Lab, nu: float, beta: float) -> Curve:
    """The best untied layers at infinite context: the least Σ λω p(λ)² with p(0) = 1, degree L.

    That is the residual of minimal residuals on diag(λ) with √(λω) as right side, here by
    orthogonal vectors of A·Krylov space.
    """
    values, weights = _merged_tail(nu, beta)
    left = np.sqrt(weights)
    basis, losses = np.empty((UNTIED[-1], len(values))), {}
    direction = left
    for count in range(1, UNTIED[-1] + 1):
        direction = values * direction
        direction = direction / np.linalg.norm(direction)
        # Twice: once leaves rounding that grows from vector to vector.
        for _ in range(2):
            direction = direction - (basis[: count - 1] @ direction) @ basis[: count - 1]
        direction = direction / np.linalg.norm(direction)
        basis[count - 1] = direction
        left = left - (direction @ left) * direction
        losses[count] = float(left @ left)
    return Curve(np.array(UNTIED, float), np.array([losses[count] for count in UNTIED]))


def _merged_tail(nu: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """λ_k and λ_kω_k of 10⁹ modes, those beyond the two thousandth in bins of 2 %."""
    single = np.arange(1.0, 2001)
    edges = np.geomspace(2000.5, 1e9, 660)
    middle, width = np.sqrt(edges[1:] * edges[:-1]), np.diff(edges)
    k = np.append(single, middle)
    weights = np.append(np.ones(len(single)), width) * k ** (-nu * beta - 1)
    return k**-nu, weights / weights.sum()


# What widths are small against, and the widths of fits.
MODES = 600
WIDTHS = (16, 32, 64)


@once
def width_curve(lab: Lab, nu: float, beta: float) -> Curve:
    """What regression on random projections of the inputs leaves, the mean over projections.

    Tasks are random in white coordinates: what is left is their weight outside of the projection.
    """
    law = PowerLaw(nu, beta, MODES)

    def left(basis: np.ndarray) -> float:
        return float(law.weights @ (1 - np.sum(basis**2, axis=1)))

    return _mean_curve(lab, law, left)


@once
def context_curve(lab: Lab, nu: float, beta: float) -> Curve:
    """What the interpolation of N samples without noise leaves of a task, the mean over contexts.

    Gradient descent in context without end leaves Πw, Π the projection off the samples: the loss is
    Σ_k ω_k (ΠΛΠ)_kk.
    """
    law = PowerLaw(nu, beta, MODES)

    def left(basis: np.ndarray) -> float:
        inner = basis.T @ (law.values[:, None] * basis)
        twice = np.sum((basis @ inner) * basis, axis=1)
        kept = law.values * (1 - 2 * np.sum(basis**2, axis=1)) + twice
        return float(kept @ (law.weights / law.values))

    return _mean_curve(lab, law, left)


def _mean_curve(lab: Lab, law: PowerLaw, left: Callable[[np.ndarray], float]) -> Curve:
    """The mean of `left` over random subspaces, each of all widths."""
    rng, root = np.random.default_rng(0), np.sqrt(law.values)[:, None]
    sums, draws = np.zeros(len(WIDTHS)), lab.scaled(300, 300, 3000)
    for _ in range(draws):
        # The first columns span what the first samples do.
        samples = root * rng.standard_normal((law.modes, WIDTHS[-1]))
        # Orthonormal as by QR, in fewer and larger operations.
        basis = samples @ np.linalg.inv(np.linalg.cholesky(samples.T @ samples)).T
        sums += [left(basis[:, :width]) for width in WIDTHS]
    return Curve(np.array(WIDTHS, float), sums / draws)

"""Losses of power-law spectra by plain numerics, which know no theory: λ_k = k^−ν, λ_kω_k ∝
k^−(νβ+1), as arXiv 2510.01098 has them."""

from collections.abc import Callable, Iterator
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
    """Losses over a resource: time, layers, width, context; or depths over a width.

    - `error`: the standard error of the exponent, where losses are means over draws.
    """

    x: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, " T"]
    error: float = 0.0

    @property
    def exponent(self) -> float:
        """−slope of ln loss over ln x, by least squares."""
        return -float(_slopes(self.x) @ np.log(self.losses))

    @property
    def interval(self) -> tuple[float, float]:
        """What the window leaves open in the exponent: two standard errors, or, where nothing is
        drawn, the least and the largest slope between neighbouring points."""
        if self.error:
            return self.exponent - 2 * self.error, self.exponent + 2 * self.error
        slopes = -np.diff(np.log(self.losses)) / np.diff(np.log(self.x))
        return float(slopes.min()), float(slopes.max())

    @staticmethod
    def mean(x: Float[np.ndarray, " T"], drawn: Float[np.ndarray, "draws T"]) -> "Curve":
        """The mean over draws, each of all x."""
        found = drawn.mean(0)
        # Of ln mean, to first order.
        slopes = (drawn / found) @ _slopes(x)
        return Curve(x, found, float(np.std(slopes, ddof=1) / len(drawn) ** 0.5))


def _slopes(x: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """What the slope over ln x takes of each value, by least squares."""
    centred = np.log(x) - np.mean(np.log(x))
    return centred / (centred @ centred)


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


# Of 2¹⁶ layers only the sum of all steps matters at these times; from 1 on it is large.
_DEEP, _UNTIL = 2**16, {1: 1e5, 2: 1e3, 3: 1e2, 5: 1e2}


class Factors(NamedTuple):
    """The flow of the factors of γ = Πᵢ wᵢ^{nᵢ}, from equal ones.

    - `weights`: w of each factor over time, one row each.
    """

    curve: Curve
    weights: Float[np.ndarray, "F T"]


@once
def factor_flow(lab: Lab, nu: float, beta: float, powers: tuple[int, ...]) -> Factors:
    """Gradient flow of a deep loop on covariances rotated in every context, where γ is a product.

    **Arguments:**

    - `powers`: nᵢ, how often each factor is used.
    """
    law, used = PowerLaw(nu, beta, 20_000), np.array(powers)
    values, weights = law.values, law.weights

    def slope(log_time: float, logs: np.ndarray) -> np.ndarray:
        # dwᵢ/dt = nᵢ (γ/wᵢ) F with F = −½ ∂L/∂γ, in logarithms of time and weights.
        step = np.exp(used @ logs)
        left = np.exp((2 * _DEEP - 1) * np.log1p(-step * values))
        drive = _DEEP * (weights * values) @ left * step
        return np.exp(log_time) * drive * used * np.exp(-2 * logs)

    times = np.geomspace(1.0, _UNTIL[int(used.sum())], 25)
    start = np.full(len(used), np.log(0.1 / _DEEP) / used.sum())
    found = scipy.integrate.solve_ivp(
        slope, np.log([1e-9, times[-1]]), start, "LSODA", np.log(times), rtol=1e-9, atol=1e-10
    )
    steps = np.exp(used @ found.y)
    losses = np.array([weights @ np.exp(2 * _DEEP * np.log1p(-s * values)) for s in steps])
    return Factors(Curve(times, losses), np.exp(found.y))


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
    root = np.sqrt(law.values)[:, None]
    drawn = [
        [left(basis[:, :width]) for width in WIDTHS]
        # The first columns span what the first samples do.
        for basis in _bases(law.modes, lab.scaled(300, 300, 3000), root)
    ]
    return Curve.mean(np.array(WIDTHS, float), np.array(drawn))


def _bases(
    modes: int, count: int, root: float | Float[np.ndarray, "modes 1"] = 1.0
) -> Iterator[Float[np.ndarray, "modes W"]]:
    """Orthonormal bases of the spans of Gaussian columns, whose rows have the size `root`."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        samples = root * rng.standard_normal((modes, WIDTHS[-1]))
        # Orthonormal as by QR, in fewer and larger operations.
        yield samples @ np.linalg.inv(np.linalg.cholesky(samples.T @ samples)).T


# Loops whose depth costs this share of what their width does.
SHARE = 0.1


@once
def shape_curve(lab: Lab, nu: float, beta: float) -> Curve:
    """One over the depth of a loop at which depth costs `SHARE` of what its width does.

    Inputs are seen through a random projection P: a loop leaves (1 − γΛ^½PΛ^½)^L of Λ^½w, and that
    without end what is orthogonal to the projection.
    """
    law = PowerLaw(nu, beta, MODES)
    # Step sizes over 1/(largest eigenvalue): beyond 2 a loop diverges, and the best tend to 2.
    root, sizes = np.sqrt(law.values)[:, None], np.linspace(1.6, 2.0, 40)

    def depth(basis: np.ndarray) -> float:
        seen = root * basis
        values, vectors = np.linalg.eigh(seen.T @ seen)
        weights = law.weights @ (seen @ (vectors / np.sqrt(values))) ** 2
        with np.errstate(divide="ignore"):  # at 2 the factor of the largest is −1, others are less
            factors = 2 * np.log(np.abs(1 - np.outer(values / values[-1], sizes)))
        goal = SHARE * (1 - weights.sum())
        # Less than e^−80 is nothing here, and slow.
        kept = lambda count: np.exp(np.maximum(count * factors, -80.0))
        missing = lambda log_depth: np.min(weights @ kept(np.exp(log_depth))) - goal
        found: Any = scipy.optimize.brentq(missing, 0, 15, xtol=1e-3)
        return float(np.exp(found))

    drawn = [
        [1 / depth(basis[:, :width]) for width in WIDTHS]
        for basis in _bases(MODES, lab.scaled(200, 200, 2000))
    ]
    return Curve.mean(np.array(WIDTHS, float), np.array(drawn))

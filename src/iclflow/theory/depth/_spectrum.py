"""What a stack of scalar layers sees of a task: one spectral measure, and the noise.

With Γ_l = γ_l I and p(s) = Π(1 − γ_l s) the excess loss of L layers is P·R(γ),

    R(γ) = E[p(s)² + c (1 − p(s))²/s],   c = σ²/(Nm),

with E the average over one eigenvalue s of S = (1/N) Σ xₙxₙᵀ, and P = E(w·x)². For white inputs
that is an average over a Wishart matrix. Covariances that are rotated afresh in every context
(arXiv 2510.01098) have the measure Σ λ_kω_k δ(λ_k) at infinite context, where c = 0. Derived in
docs/theory/depth.md.
"""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import ArrayLike, Float, Num

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_number, check_numbers, check_positive, check_whole
from .._moments import moments
from .._softmax_ridge import wishart_spectrum
from .._softmax_setting import only_length

# Matrices that are meant to be multiples of the identity are so up to rounding.
_TOLERANCE = 1e-10
# Panels of the angle in proportional limits, and Gauss points in each: exact to rounding for
# polynomials of degree 500.
_PANELS, _POINTS = 64, 16
# Modes of power laws: each alone up to here, then in bins of this relative width.
_ALONE, _WIDTH, _MOST_MODES = 1000, 1.01, 10**12


@dataclass(frozen=True)
class Sizes:
    """A white task in numbers: d, N, Λ = λI (`variance`), E[wwᵀ] = mI (`signal`), and noise.

    Every function of a white task also takes these.

    ```pycon
    >>> icl.theory.depth.Sizes.of(icl.LinearRegression(np.ones(5), context=20)).length
    20

    ```
    """

    dim: int
    length: int
    variance: float
    signal: float
    noise: float
    query_noise: float

    @classmethod
    def of(cls, task: "LinearRegression | Sizes") -> "Sizes":
        """The numbers of a task with Λ = λI, E[wwᵀ] = mI and one context length."""
        if isinstance(task, Sizes):
            return task
        full = moments(task)
        found = {}
        for name, matrix in (("Λ", full.covariance), ("M", full.weight_second_moment)):
            mean = np.trace(matrix) / task.dim
            if np.max(np.abs(matrix - mean * np.eye(task.dim))) > _TOLERANCE * abs(mean):
                raise Refusal(
                    f"`task` is not white: {name} must be a multiple of the identity "
                    "(Λ = E[xxᵀ], M = E[wwᵀ])."
                )
            found[name] = float(mean)
        if found["M"] == 0:
            raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
        noise, query = float(task.noise), float(task.query_noise)
        return cls(task.dim, only_length(task), found["Λ"], found["M"], noise, query)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A rule for averages over one eigenvalue s of S, and what else a scalar stack depends on.

    Every function of a white task also takes a `Spectrum` in its place: limits and power laws are
    no tasks that can be sampled.

    **Fields:**

    - `values`, `weights`: E f = Σ `weights`·f(`values`).
    - `cost`: c = σ²/(Nm), the price of noise.
    - `power`: P = E(w·x)², the excess loss of predicting zero.
    - `speed`: P/d, so that Γ̇_l = −½ ∂L/∂Γ_l is γ̇_l = −½ `speed` ∂R/∂γ_l.
    - `query_noise`: what every loss has beyond the excess.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> spectrum = icl.theory.depth.Spectrum.of(task)
    >>> float(spectrum.mean(spectrum.values**2).round(6))  # 1 + (d + 1)/N
    1.3

    ```
    """

    values: Float[np.ndarray, " Q"]
    weights: Float[np.ndarray, " Q"]
    cost: float = 0.0
    power: float = 1.0
    speed: float = 1.0
    query_noise: float = 0.0

    def __post_init__(self):
        values = check_numbers("values", self.values, 1)
        weights = check_numbers("weights", self.weights, 1, values.shape)
        if np.any(values < 0) or not np.any(values > 0):
            raise Refusal("`values` must not be negative, and one of them must be positive.")
        if np.any(weights < 0):
            raise Refusal("`weights` must not be negative: they are those of a distribution.")
        if abs(weights.sum() - 1) > 1e-9:
            raise Refusal(f"`weights` sum to {weights.sum():.12g}: must sum to 1.")
        check_number("cost", self.cost, "finite, not negative", lambda x: 0 <= x < np.inf)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def of(cls, task: "ScalarTask") -> "Spectrum":
        """The measure of a task with Λ = λI, E[wwᵀ] = mI and one context length, at finite d, N.

        Others are refused; `whitened` says which of them have the optimum of a white task.
        """
        if isinstance(task, Spectrum):
            return task
        sizes = Sizes.of(task)
        rule = wishart_spectrum(sizes.dim, sizes.length)
        # The rule is for a sum of eigenvalues of NS/λ.
        values = np.append(rule.values * sizes.variance / sizes.length, 0.0)
        weights = np.append(rule.weights, float(rule.zeros)) / sizes.dim
        power = sizes.variance * sizes.signal * sizes.dim
        return cls(
            values,
            weights / weights.sum(),
            sizes.noise / (sizes.length * sizes.signal),
            power,
            power / sizes.dim,
            sizes.query_noise,
        )

    @classmethod
    def proportional(cls, ratio: float, cost: float = 0.0) -> "Spectrum":
        """The limit d, N → ∞ with d/N → φ = `ratio` (the law of Marchenko and Pastur), for P = 1.

        **Arguments:**

        - `cost`: c, the limit of dσ²/N in the units in which P = 1.
        """
        ratio = check_positive("ratio", ratio)
        # s = 1 + φ − 2√φ cos θ, where s·density is a semicircle; panels crowd at the lower edge,
        # as the density does for φ near 1.
        angles, weights = _angles()
        values = (1 - np.sqrt(ratio)) ** 2 + 4 * np.sqrt(ratio) * np.sin(angles / 2) ** 2
        weights = 2 / np.pi * weights * np.sin(angles) ** 2 / values
        zeros = max(1 - 1 / ratio, 0.0)
        weights = weights * (1 - zeros) / weights.sum()
        return cls(np.append(values, 0.0), np.append(weights, zeros), cost)

    @classmethod
    def power_law(cls, nu: float, beta: float, modes: int = 1000) -> "Spectrum":
        """λ_k = k^−ν with weights λ_kω_k ∝ k^−(νβ+1), k = 1 … `modes` (arXiv 2510.01098).

        Modes beyond the first thousand are taken together where their λ_k differ by less than one
        percent or so; there may be 10¹² of them.
        """
        nu, beta = check_positive("nu", nu), check_positive("beta", beta)
        modes = check_whole("modes", modes, 1, _MOST_MODES)
        edges = _bins(modes)
        weights = _tail(nu * beta + 1, edges)
        # The mean of λ in each bin, so that sums of λ are exact.
        values = _tail(nu * beta + 1 + nu, edges) / weights
        return cls(values, weights / weights.sum())

    def mean(self, function: Num[ArrayLike, "*F Q"]) -> Num[np.ndarray, "*F"]:
        """E f from the values of f at `values`, along the last axis."""
        return np.asarray(np.asarray(function) @ self.weights)

    def over(self, numerator: Num[ArrayLike, "*F Q"]) -> Num[np.ndarray, "*F"]:
        """E[g(s)/s] of a g that vanishes at s = 0 as s²; eigenvalues that are zero add nothing."""
        inside = self.values > 0
        weights = self.weights[inside] / self.values[inside]
        return np.asarray(np.asarray(numerator)[..., inside] @ weights)


ScalarTask = LinearRegression | Sizes | Spectrum


def whitened(task: LinearRegression) -> LinearRegression:
    """The task Λ → I, M → Λ^½MΛ^½, on which the weights Λ^½Γ_lΛ^½ have the same loss.

    Optima and stationary points carry over, flows do not: these weights have another metric. The
    tasks of arXiv 2306.00297, M = Λ⁻¹, are white in disguise.

    ```pycon
    >>> covariance = np.diag([1.0, 0.25])
    >>> inverse = np.linalg.inv(covariance)
    >>> task = icl.LinearRegression(covariance=covariance, prior_covariance=inverse, context=20)
    >>> white = icl.theory.depth.whitened(task)
    >>> np.asarray(white.prior_covariance).round(6)
    array([[1., 0.],
           [0., 1.]])

    ```
    """
    full = moments(task)
    root = np.real(scipy.linalg.sqrtm(full.covariance))
    second = root @ full.weight_second_moment @ root
    return LinearRegression(
        covariance=np.eye(task.dim),
        prior_covariance=(second + second.T) / 2,
        context=task.contexts,
        context_probabilities=task.context_probabilities,
        noise=task.noise,
        noisy_query=task.noisy_query,
    )


def _bins(modes: int) -> np.ndarray:
    """Edges of bins of 1 … `modes`: one each at first, then of a relative width."""
    alone = np.arange(1, min(modes, _ALONE) + 1)
    count = max(int(np.ceil(np.log((modes + 1) / (alone[-1] + 1)) / np.log(_WIDTH))), 0)
    beyond = np.rint(np.geomspace(alone[-1] + 1, modes + 1, count + 1))
    return np.unique(np.concatenate([alone, beyond]))


def _tail(exponent: float, edges: np.ndarray) -> np.ndarray:
    """Σ k^−exponent over each bin: differences of Hurwitz's zeta function, or the terms."""
    first = edges[:-1]
    sums = -np.diff(scipy.special.zeta(exponent, edges))
    return np.where(np.diff(edges) == 1, first**-exponent, sums)


def _angles() -> tuple[np.ndarray, np.ndarray]:
    """Gauss points and weights on (0, π), in panels that halve towards 0."""
    edges = np.linspace(0, np.pi, _PANELS + 1)
    edges = np.concatenate([[0.0], edges[1] * 2.0 ** np.arange(-40, 0), edges[1:]])
    unit, weight = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + unit)).ravel(), (half * weight).ravel()

"""Gradient flow on n sequences: train and test loss along the way, and when to stop.

The flow is that of A itself, Ȧ = Ŝ − (gradient) from A = 0, which lazy weights make: it is linear,
and its mean curves follow from the resolvent of the features' sample covariance. Isotropic features
need the Marchenko–Pastur law alone; any others a two-point resolvent, on a parabola in the complex
plane that inverts the Laplace transform. Exact given the equivalent of `data_risks`, which is
checked, not proved (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_times
from .._moments import Normaliser
from ._equivalent import (
    FeatureSpectrum,
    TestMoments,
    check_sequences,
    feature_spectrum,
    moments_of_test,
)
from ._roots import exponential_root
from ._types import Numbers

# Nodes on each side of the parabola: 1e-12 (the convergence is geometric).
_NODES = 16
# Steps from large |ζ| to ζ, each followed by Newton's method.
_STEPS, _NEWTON = 24, 4
# Nodes in the angle of the Marchenko–Pastur law: exact for all that varies on its scale.
_ANGLES = 2000
# Features are isotropic up to rounding.
_ISOTROPIC = 1e-10


class DataFlow(NamedTuple):
    """Losses along the flow of A on n sequences: on them, on fresh ones, and on another task."""

    times: Float[np.ndarray, " T"]
    train: Float[np.ndarray, " T"]
    in_distribution: Float[np.ndarray, " T"]
    test: Float[np.ndarray, " T"]


class Regularised(NamedTuple):
    """The best amount of regularisation and the loss there: a time, or a penalty η."""

    amount: float
    loss: float


class _Isotropic(NamedTuple):
    """Σ = sI: s‖A*‖², L*, γ = F/n, and a rule for the Marchenko–Pastur law of ratio γ."""

    value: float
    signal: float
    floor: float
    ratio: float
    nodes: np.ndarray
    weights: np.ndarray


def data_flow(
    task: LinearRegression,
    sequences: int,
    times: Numbers,
    test: LinearRegression | None = None,
    normaliser: Normaliser = "context",
) -> DataFlow:
    """Mean losses along Ȧ = Ŝ − Σ̂A on n sequences from A = 0, for any task and any test.

    With 𝒟 = E e^{−Σ̂t}, 𝒟₂ the mean of e^{−Σ̂t}Σ_te^{−Σ̂t} and J(t) = tr Σ_t∫E e^{−Σ̂t′}dt′,
    L_test = L_t(A*) + 2⟨S_t − Σ_tA*, 𝒟A*⟩ + ⟨A*, 𝒟₂A*⟩ + (L*/n)(2J(t) − J(2t)).

    Weights move A like this where their kernel stays what it is: H heads of N(0, s²), H ≫ D², make
    2Hs² times as much time of A as of the weights.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> few = diversity.with_tasks(task, np.eye(4)[:2])
    >>> fresh = diversity.with_second_moment(task, np.eye(4) / 4)
    >>> curve = diversity.data_flow(few, 12, [0.0, 2.0, 50.0], fresh)
    >>> print(np.round(curve.train, 3), np.round(curve.test, 3))
    [1.1   0.179 0.01 ] [1.1   0.93  1.709]

    ```
    """
    n, times = float(check_sequences(sequences)), check_times(np.asarray(times))
    spectrum = feature_spectrum(task, normaliser)
    seen = [moments_of_test(spectrum, each, normaliser) for each in (task, test or task)]
    rows = [_losses(spectrum, seen, n, float(t)) for t in times]
    return DataFlow(times, *np.array(rows).T)


def isotropic_data_flow(
    task: LinearRegression, sequences: int, times: Numbers, normaliser: Normaliser = "context"
) -> DataFlow:
    """The same in closed form where all features have one variance s: white inputs and M ∝ I.

    L_test = L* + s‖A*‖²∫e^{−2sxt}dμ + L*γ∫(1 − e^{−sxt})²/x dμ and
    L_train = s‖A*‖²∫xe^{−2sxt}dμ + L*[1 − γ∫(1 − e^{−2sxt})dμ], γ = D²/n, μ being the
    Marchenko–Pastur law of ratio γ.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(16), context=32, noise=0.1), np.eye(16) / 16)
    >>> curve = icl.theory.diversity.isotropic_data_flow(task, 400, [10.0, 100.0])
    >>> print(np.round(curve.train, 3), np.round(curve.test, 3))
    [0.331 0.176] [0.75  1.002]

    ```
    """
    at, times = _isotropic(task, sequences, normaliser), check_times(np.asarray(times))
    x, decay = at.nodes, np.exp(-at.value * np.multiply.outer(times, at.nodes))
    mean = lambda values: values @ at.weights
    # The atom at x = 0 keeps what no sequence shows.
    hidden = max(0.0, 1 - 1 / at.ratio)
    test = at.signal * (mean(decay**2) + hidden) + at.floor * (
        1 + at.ratio * mean((1 - decay) ** 2 / x)
    )
    train = at.signal * mean(x * decay**2) + at.floor * (1 - at.ratio * mean(1 - decay**2))
    return DataFlow(times, train, test, test)


def isotropic_best_stop(
    task: LinearRegression, sequences: int, normaliser: Normaliser = "context"
) -> Regularised:
    """When to stop `isotropic_data_flow`.

    There ∫e^{−sxt}[s‖A*‖²xe^{−sxt} − L*γ(1 − e^{−sxt})]dμ = 0.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(16), context=32, noise=0.1), np.eye(16) / 16)
    >>> stop = icl.theory.diversity.isotropic_best_stop(task, 400)
    >>> round(stop.amount, 3), round(stop.loss, 6)
    (13.359, 0.744218)

    ```
    """
    at = _isotropic(task, sequences, normaliser)

    def falling(u: float) -> float:
        decay = np.exp(-np.exp(u) * at.nodes)
        slope = at.signal * at.nodes * decay - at.floor * at.ratio * (1 - decay)
        # The sign alone counts: without a common factor, which is rounded to zero at late times.
        shown = np.exp(-np.exp(u) * (at.nodes - at.nodes.min()))
        return float(np.sum(at.weights * shown * slope))

    time = exponential_root(falling, -30.0, 10.0) / at.value
    flow = isotropic_data_flow(task, sequences, [time], normaliser)
    return Regularised(time, float(flow.test[0]))


def isotropic_best_penalty(
    task: LinearRegression, sequences: int, normaliser: Normaliser = "context"
) -> Regularised:
    """The best penalty η* = γL*/‖A*‖² where all features have one variance; it beats stopping.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(16), context=32, noise=0.1), np.eye(16) / 16)
    >>> best = icl.theory.diversity.isotropic_best_penalty(task, 400)
    >>> round(best.amount, 6), round(best.loss, 6)
    (0.046765, 0.737964)

    ```
    """
    at = _isotropic(task, sequences, normaliser)
    penalty = at.ratio * at.floor * at.value / at.signal
    shrunk = 1 / (at.value * at.nodes + penalty)
    hidden = max(0.0, 1 - 1 / at.ratio)
    bias = at.signal * (penalty**2 * np.sum(at.weights * shrunk**2) + hidden)
    noise = at.floor * at.ratio * at.value**2 * np.sum(at.weights * at.nodes * shrunk**2)
    return Regularised(float(penalty), float(at.floor + bias + noise))


def data_resolvent(
    spectrum: FeatureSpectrum, sequences: float, points: Complex[np.ndarray, "*z"]
) -> Complex[np.ndarray, "*z"]:
    """ν(ζ) with E(Σ̂ + ζ)⁻¹ = (ν/ζ)(Σ + ν)⁻¹: the root of ζ = ν(1 − (1/n) tr Σ(Σ + ν)⁻¹), off the
    negative axis.

    For a penalty ζ = η > 0 it is the ν of `effective_ridge`.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression([1.0, 0.5], context=10, noise=0.1)
    >>> spectrum = diversity.feature_spectrum(task)
    >>> point = diversity.data_resolvent(spectrum, 3, np.array([0.1 + 0j]))
    >>> np.allclose(point, diversity.effective_ridge(spectrum, 3, penalty=0.1))
    True

    ```
    """
    s, n = spectrum.values.ravel(), float(sequences)
    target = np.asarray(points, dtype=complex)
    # Far out ν = ζ + tr Σ/n; from there the root is followed inwards along rays.
    scale = np.geomspace(max(1.0, 1e4 * s.max() * max(1.0, s.size / n) / np.abs(target).min()),
                         1.0, _STEPS)  # fmt: skip
    nu = scale[0] * target + s.sum() / n
    for factor in scale:
        for _ in range(_NEWTON):
            part = s / (s + nu[..., None])
            value = nu * (1 - part.sum(-1) / n) - factor * target
            slope = 1 - (part**2).sum(-1) / n
            nu = nu - value / slope
    return nu


def _parabola(time: float) -> tuple[np.ndarray, np.ndarray]:
    """ζ_k and w_k with e^{−xt} = Σ w_k/(x + ζ_k) for all x ≥ 0."""
    theta = 3 * np.arange(-_NODES, _NODES + 1) / _NODES
    b = np.pi * _NODES / (12 * time)
    points = b * (1 + 1j * theta) ** 2
    slope = 2j * b * (1 + 1j * theta)
    return points, 3 / (2j * np.pi * _NODES) * np.exp(points * time) * slope


def _losses(
    spectrum: FeatureSpectrum, tests: list[TestMoments], n: float, time: float
) -> list[float]:
    """Train loss and the losses of tests at one time; the first test is the training task."""
    best = spectrum.optimum
    if time == 0:
        return [tests[0].constant, *(test.constant for test in tests)]
    points, weights = _parabola(time)
    nu = data_resolvent(spectrum, n, points)
    double, heavy = _parabola(2 * time)
    far = data_resolvent(spectrum, n, double)
    resolvents = 1 / (spectrum.values + nu[:, None, None])
    late = 1 / (spectrum.values + far[:, None, None])
    # E Σ̂e^{−2Σ̂t} has the weights w_kΣG_k; E tr(1 − e^{−2Σ̂t}) those of 1/ζ less ν/ζ·G.
    shaken = np.einsum("k,kij->ij", heavy, spectrum.values * late).real
    kept = np.einsum("k,kij->", heavy * far / double, late).real
    train = np.sum(best**2 * shaken) + spectrum.floor * (1 - (best.size - kept) / n)
    found = [float(train)]
    for test in tests:
        along = weights * nu / points
        left = np.einsum("k,kij->ij", along, resolvents).real * best
        drift = 2 * np.sum((test.drive - test.second @ best @ test.inputs) * left)
        both = _two_points(spectrum, test, n, along, resolvents)
        noise = 2 * _reach(test, points, weights, nu, resolvents)
        noise -= _reach(test, double, heavy, far, late)
        found.append(float(test.loss(best) + drift + both + spectrum.floor / n * noise))
    return found


def _reach(
    test: TestMoments, points: np.ndarray, weights: np.ndarray, nu: np.ndarray, G: np.ndarray
) -> float:
    """J(t) = tr Σ_t ∫E e^{−Σ̂t′}dt′ = tr Σ_t E(1 − e^{−Σ̂t})Σ̂⁻¹, with the weights w_k/ζ_k."""
    along = weights * nu / points**2
    return float(np.einsum("k,kij,ij->", along, G, test.diagonal).real)


def _two_points(
    spectrum: FeatureSpectrum, test: TestMoments, n: float, along: np.ndarray, G: np.ndarray
) -> float:
    """⟨A*, E e^{−Σ̂t}Σ_te^{−Σ̂t} A*⟩ from pairs of resolvents."""
    s, best = spectrum.values, spectrum.optimum
    reached = G * best
    turned = test.second @ reached @ test.inputs
    direct = np.einsum("kij,lij->kl", reached, turned)
    flat = G.reshape(len(G), -1)
    through = (flat * (s * best**2).ravel()) @ flat.T
    traces = (flat * (s * test.diagonal).ravel()) @ flat.T / n
    square = (flat * (s**2).ravel()) @ flat.T / n
    pairs = direct + through * traces / (1 - square)
    return float((along @ pairs @ along).real)


def _isotropic(task: LinearRegression, sequences: int, normaliser: Normaliser) -> _Isotropic:
    """The numbers of a task whose features have one variance, and the rule for its law."""
    n, spectrum = float(check_sequences(sequences)), feature_spectrum(task, normaliser)
    s = float(spectrum.values.mean())
    if np.ptp(spectrum.values) > _ISOTROPIC * s:
        raise Refusal("`task` must have white inputs and E[wwᵀ] ∝ I; `data_flow` takes any.")
    ratio = spectrum.values.size / n
    # x = 1 + γ − 2√γ cos θ: the density is (2/π) sin²θ/x, smooth in θ, and sums are exact.
    theta = np.pi * (np.arange(_ANGLES) + 0.5) / _ANGLES
    nodes = 1 + ratio - 2 * np.sqrt(ratio) * np.cos(theta)
    weights = 2 / _ANGLES * np.sin(theta) ** 2 / nodes
    signal = s * float(np.sum(spectrum.optimum**2))
    return _Isotropic(s, signal, spectrum.floor, ratio, nodes, weights)

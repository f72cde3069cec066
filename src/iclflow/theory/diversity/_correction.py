"""The correction at finite size: features of different lengths, without a penalty.

The equivalent takes every feature β ⊗ x_q for a Gaussian one. The length t of a feature and the
residual e = y_q − ⟨A*, φ⟩ vary together from sequence to sequence, which at d = 20 raises the peak
of the test error by a third. Their joint law is sampled, the rest is a formula: checked against
simulation, not proved (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...runtime.precision import check_made_in_float64
from ...tasks import LinearRegression
from .._check import check_whole
from .._moments import Normaliser
from ._components import roots
from ._equivalent import (
    FeatureSpectrum,
    TestMoments,
    effective_ridge,
    feature_spectrum,
    moments_of_test,
)
from ._label_column import LabelColumn
from ._roots import exponential_root
from ._tasks import check_vectors
from ._types import Matrix

# Parts of the sample that the jackknife leaves out, one after the other.
_PARTS = 20


class FeatureLaw(NamedTuple):
    """t² and e² of drawn sequences, scaled to the means 1 and L*.

    t² = φᵀ(Σ + ν)⁻¹φ/tr Σ(Σ + ν)⁻¹ is the relative length of the feature φ = β ⊗ x_q, and
    e = y_q − ⟨A*, φ⟩ what the best layer leaves.
    """

    length: Float[np.ndarray, " S"]
    residual: Float[np.ndarray, " S"]


class CorrectedRisks(NamedTuple):
    """Errors of least squares on n sequences with the correction, and their standard errors.

    The standard errors are those of the sampled law of features (jackknife over 20 parts); for the
    approximation itself there is no bound.
    """

    in_distribution: float
    test: float
    in_distribution_error: float
    test_error: float


class Drawn(NamedTuple):
    """β, x_q, y_q and G_yy of drawn sequences."""

    beta: Float[np.ndarray, "S D"]
    query: Float[np.ndarray, "S D"]
    label: Float[np.ndarray, " S"]
    square: Float[np.ndarray, " S"]


class _Fit(NamedTuple):
    """What both errors need: the sums of the equivalent at one n."""

    spectrum: FeatureSpectrum
    nu: float
    sequences: int


def feature_law(
    task: LinearRegression,
    sequences: int,
    vectors: Matrix | None = None,
    samples: int = 4000,
    seed: int = 0,
    normaliser: Normaliser = "context",
    label_column: LabelColumn | None = None,
) -> FeatureLaw:
    """The lengths and residuals of freshly drawn sequences, for least squares on n sequences.

    **Arguments:**

    - `task`: its M must be that of `vectors`, where these are given (`with_tasks`).
    - `sequences`: n, which sets ν.
    - `vectors`: the K tasks, drawn equally often; w ~ N(w₀, Γ) of `task` without them.
    - `samples`, `seed`: how many sequences are drawn, and from which random numbers.
    - `label_column`: further features, from `label_column`.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> law = icl.theory.diversity.feature_law(task, 8, samples=1000)
    >>> law.length.shape, round(float(law.length.mean()), 6)
    ((1000,), 1.0)

    ```
    """
    spectrum = feature_spectrum(task, normaliser, label_column)
    nu = float(effective_ridge(spectrum, check_whole("sequences", sequences)))
    return _law(task, spectrum, nu, vectors, samples, seed, normaliser)


def corrected_risks(
    task: LinearRegression,
    sequences: int,
    test: LinearRegression | None = None,
    vectors: Matrix | None = None,
    samples: int = 4000,
    seed: int = 0,
    normaliser: Normaliser = "context",
    label_column: LabelColumn | None = None,
) -> CorrectedRisks:
    """IDG and test errors of least squares on n sequences, at finite size.

    E_IDG = L* + X and X = ν² ΣA*²k + V Σsk, nV = p₀ + p₁X, E_test = L_t(Ā) + V Σ(…)k. Below D²
    sequences p₀ = E[e²/t²], p₁ = 1; above, g solves E[t²g/(1 + t²g)] = F/n, and with z = F/(ng)
    p₀ = E[t²e²/(1 + t²g)²]/z², p₁ = E[t⁴/(1 + t²g)²]/z². At t = 1 it is `data_risks`.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> few = diversity.with_tasks(task, np.eye(4)[:2])
    >>> fresh = diversity.with_second_moment(task, np.eye(4) / 4)
    >>> found = diversity.corrected_risks(few, 64, fresh, vectors=np.eye(4)[:2])
    >>> print(f"{found.test:.3f} +- {found.test_error:.3f}")
    1.121 +- 0.005

    ```
    """
    spectrum = feature_spectrum(task, normaliser, label_column)
    n = check_whole("sequences", sequences)
    if n == spectrum.values.size:
        raise Refusal(
            f"`sequences` = {n}: the error is infinite with as many sequences as features."
        )
    fit = _Fit(spectrum, float(effective_ridge(spectrum, n)), n)
    law = _law(task, spectrum, fit.nu, vectors, samples, seed, normaliser)
    seen = None if test is None else moments_of_test(spectrum, test, normaliser)
    whole = _risks(fit, seen, law, np.ones(len(law.length), bool))
    part = np.arange(len(law.length)) % _PARTS
    left_out = np.array([_risks(fit, seen, law, part != i) for i in range(_PARTS)])
    # The jackknife: the spread of estimates that each leave one part out.
    error = np.sqrt((_PARTS - 1) * np.var(left_out, axis=0))
    return CorrectedRisks(*whole, *map(float, error))


def draw_features(
    task: LinearRegression,
    vectors: Matrix | None,
    samples: int,
    rng: np.random.Generator,
    normaliser: Normaliser = "context",
) -> Drawn:
    """What is kept of drawn sequences, without drawing their inputs.

    Given w, inputs matter through a_n along Λ^½w alone, by three sums; across it Σ y_nz_n is
    normal, of variance Σ y_n². So a sequence costs 2D + 3 numbers, not ND.
    """
    check_made_in_float64(task=task)
    root, _ = roots(np.asarray(task.covariance, dtype=np.float64))
    w = _draw_tasks(task, vectors, samples, rng)
    signal = w @ root
    size = np.linalg.norm(signal, axis=1, keepdims=True)
    unit = np.divide(signal, size, out=np.zeros_like(signal), where=size > 0)
    length = rng.choice(
        np.asarray(task.contexts), samples, p=np.asarray(task.context_probabilities)
    )
    # The sums Σa², Σaε, Σε² of N pairs of normal numbers are a Wishart matrix: its triangular
    # factor has two chi-squared numbers and a normal one, however large N is (Bartlett).
    noise = float(task.noise)
    first, rest = (2 * rng.standard_gamma(degrees / 2)[:, None] for degrees in (length, length - 1))
    mixed = rng.standard_normal((samples, 1))
    crossed = np.sqrt(noise * first) * mixed
    along = size * first + crossed
    energy = size * (along + crossed) + noise * (mixed**2 + rest)
    across = rng.standard_normal(w.shape)
    across -= np.sum(across * unit, 1, keepdims=True) * unit
    scale = {"context": length, "tokens": length + 1, "none": np.ones(samples)}[normaliser]
    beta = (along * unit + np.sqrt(energy) * across) @ root / scale[:, None]
    query = rng.standard_normal(w.shape) @ root
    label = np.sum(query * w, 1) + np.sqrt(float(task.query_noise)) * rng.standard_normal(samples)
    return Drawn(beta, query, label, energy[:, 0] / scale)


def _draw_tasks(
    task: LinearRegression, vectors: Matrix | None, count: int, rng: np.random.Generator
) -> Float[np.ndarray, "S D"]:
    if vectors is not None:
        rows, _ = check_vectors(task, vectors)
        second = np.asarray(task.weight_second_moment)
        if np.max(np.abs(rows.T @ rows / len(rows) - second)) > 1e-9 * np.max(np.abs(second)):
            raise Refusal("`vectors` have another second moment than `task`: see `with_tasks`.")
        return rows[rng.integers(len(rows), size=count)]
    values, basis = np.linalg.eigh(np.asarray(task.prior_covariance, dtype=np.float64))
    normal = rng.standard_normal((count, task.dim)) * np.sqrt(np.maximum(values, 0))
    return np.asarray(task.prior_mean) + normal @ basis.T


def _law(
    task: LinearRegression,
    spectrum: FeatureSpectrum,
    nu: float,
    vectors: Matrix | None,
    samples: int,
    seed: int,
    normaliser: Normaliser,
) -> FeatureLaw:
    samples = check_whole("samples", samples, 10 * _PARTS)
    rng = np.random.default_rng(check_whole("seed", seed, 0))
    drawn = draw_features(task, vectors, samples, rng, normaliser)
    beta, query = drawn.beta, drawn.query @ spectrum.right
    if spectrum.column:
        beta = np.append(beta, spectrum.column * drawn.square[:, None], 1)
    beta = beta @ spectrum.left
    length = np.sum((beta**2 @ (1 / (spectrum.values + nu))) * query**2, 1)
    residual = (drawn.label - np.sum((beta @ spectrum.optimum) * query, 1)) ** 2
    return FeatureLaw(length / length.mean(), residual * spectrum.floor / residual.mean())


def _risks(
    fit: _Fit, test: TestMoments | None, law: FeatureLaw, used: np.ndarray
) -> tuple[float, float]:
    """E_IDG and E_test from a part of the drawn law, scaled anew."""
    spectrum, nu, n = fit
    t2, e2 = law.length[used], law.residual[used]
    t2, e2 = t2 / t2.mean(), e2 * (spectrum.floor / e2.mean())
    start, slope = _pressure(t2, e2, spectrum.values.size / n)
    s, optimum = spectrum.values, spectrum.optimum
    k = s / (s + nu) ** 2
    share = float(np.sum(s * k)) / n
    bias = nu**2 * float(np.sum(optimum**2 * k))
    excess = (bias + start * share) / (1 - slope * share)
    inside = spectrum.floor + excess
    if test is None:
        return inside, inside
    spread = (start + slope * excess) / n
    tested = float(test.loss(spectrum.drive / (s + nu))) + spread * float(np.sum(test.diagonal * k))
    return inside, tested


def _pressure(t2: np.ndarray, e2: np.ndarray, ratio: float) -> tuple[float, float]:
    """p₀ and p₁ for F/n = `ratio`."""
    if ratio > 1:
        return float(np.mean(e2 / t2)), 1.0
    share = lambda u: float(np.mean(1 / (1 + 1 / (t2 * np.exp(u))))) - ratio
    middle = np.log(ratio / (1 - ratio))
    low, high = middle - 1.0, middle + 1.0
    while share(low) > 0:
        low -= 2.0
    while share(high) < 0:
        high += 2.0
    g = exponential_root(share, low, high)
    square = (1 + t2 * g) ** 2 * (ratio / g) ** 2
    return float(np.mean(t2 * e2 / square)), float(np.mean(t2**2 / square))

"""Exact population moments of attention features on linear regression, in closed form.

Given the task vector w, tokens z = (x; y) are Gaussian with covariance
Σ(w) = [[Λ, Λw], [wᵀΛ, wᵀΛw + σ²]], and the query is N(0, Λ). Isserlis' theorem gives the moments
given w; Σ(w) is a quadratic polynomial of w, whose Gaussian moments finish the job.
Derived in docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np

from ..limits import MAX_FEATURES
from ..models import AbstractModel, attention_length
from ..runtime.precision import require_float64
from ..tasks import AbstractTask, LinearRegression, Mixture, RandomLabels
from ._quadratic import FeatureLayout, QuadraticRisk


def exact_quadratic_risk(task: AbstractTask, model: AbstractModel) -> QuadraticRisk:
    """The population risk of every model of the layout of `model`, with no randomness.

    **Arguments:**

    - `task`: a `LinearRegression`, a `Mixture` of them, or `RandomLabels`.
    - `model`: any model of bilinear or cubic form; only its layout is read.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2, blind=False)
    >>> risk = icl.risks.exact_quadratic_risk(task, model)
    >>> risk.layout.form, risk.layout.size, risk.minimum.round(4)
    ('cubic', 30, Array(0.277, dtype=float64))
    ```
    """
    require_float64("The exact risk", task=task, model=model)
    layout = FeatureLayout.of(model)
    if task.dim != layout.dim:
        raise ValueError(f"`task` has `dim` = {task.dim}, `model` has {layout.dim}.")
    if layout.size > MAX_FEATURES:
        raise ValueError(
            f"The {layout.form} form at `dim` = {layout.dim} has {layout.size} features: exact "
            f"moments are kept for {MAX_FEATURES} at most. Use the sampled risk."
        )
    return QuadraticRisk.from_factor(_square_root(joint_moments(task, layout)), layout, "exact")


def joint_moments(task: AbstractTask, layout: FeatureLayout) -> np.ndarray:
    """E[ψψᵀ] of the features and the query label, ψ = (φ; y_q): the matrix [[M, m], [mᵀ, c₀]]."""
    if isinstance(task, Mixture):
        parts = [joint_moments(component, layout) for component in task.components]
        return np.tensordot(np.asarray(task.probabilities), np.stack(parts), 1)
    if isinstance(task, LinearRegression):
        return _assemble(task, _regression_tokens(task), layout)
    if isinstance(task, RandomLabels):
        return _assemble(task.inputs, _random_label_tokens(task), layout)
    raise TypeError(
        f"{type(task).__name__} has no moments in closed form: exact quadratic risks exist for "
        "LinearRegression, Mixture and RandomLabels."
    )


# Rounding leaves zero eigenvalues at a few of these times the largest, of either sign.
_ROUNDING = 1e-14


class _Tokens(NamedTuple):
    """Averages over w of the token covariance Σ, and the moments with the query label."""

    covariance: np.ndarray  # E Σ_ab
    squared: np.ndarray  # E Σ_ab Σ_cd
    with_weight: np.ndarray  # E Σ_ab (Λw)_c
    weight: np.ndarray  # E w
    label: float  # E y_q²


def _regression_tokens(task: LinearRegression) -> _Tokens:
    inputs, prior = np.asarray(task.covariance), np.asarray(task.prior_covariance)
    mean = np.asarray(task.prior_mean)
    dim = task.dim
    # Σ = Σ_k s_k basis_k with s = (1, Λw, wᵀΛw).
    basis = np.zeros((dim + 2, dim + 1, dim + 1))
    basis[0, :dim, :dim] = inputs
    basis[0, dim, dim] = task.noise
    for i in range(dim):
        basis[1 + i, i, dim] = basis[1 + i, dim, i] = 1
    basis[-1, dim, dim] = 1
    # Gaussian moments of s up to second order, where wᵀΛw is itself quadratic in w.
    moved, spread = inputs @ mean, inputs @ prior @ inputs
    power = mean @ moved + np.sum(inputs * prior)
    first = np.concatenate([[1.0], moved, [power]])
    second = np.outer(first, first)
    second[1:-1, 1:-1] += spread
    second[1:-1, -1] += 2 * spread @ mean
    second[-1, 1:-1] += 2 * spread @ mean
    second[-1, -1] += 2 * np.sum(spread * prior) + 4 * mean @ spread @ mean
    return _Tokens(
        covariance=np.tensordot(first, basis, 1),
        squared=np.einsum("kab,kl,lcd->abcd", basis, second, basis, optimize=True),
        with_weight=np.einsum("kab,kc->abc", basis, second[:, 1:-1]),
        weight=mean,
        label=float(power + np.asarray(task.query_noise)),
    )


def _random_label_tokens(task: RandomLabels) -> _Tokens:
    inputs, weight = np.asarray(task.inputs.covariance), np.asarray(task.weight)
    covariance = np.zeros((task.dim + 1, task.dim + 1))
    covariance[:-1, :-1] = inputs
    covariance[-1, -1] = task.label_variance
    return _Tokens(
        covariance=covariance,
        squared=np.multiply.outer(covariance, covariance),
        with_weight=np.multiply.outer(covariance, inputs @ weight),
        weight=weight,
        label=float(weight @ inputs @ weight),
    )


def _assemble(inputs: LinearRegression, tokens: _Tokens, layout: FeatureLayout) -> np.ndarray:
    """Isserlis' theorem over contexts and query, in packed order."""
    shares, lengths = np.asarray(inputs.context_probabilities), np.asarray(inputs.contexts, float)
    divisors = attention_length(lengths, layout.normaliser)  # pyright: ignore
    average = lambda power, order: float(shares @ (lengths**power / divisors**order))
    covariance, (a, b) = np.asarray(inputs.covariance), layout.pairs()
    of_pair = (slice(None), None)
    same = tokens.squared[a[of_pair], b[of_pair], a, b]
    crossed = tokens.squared[a[of_pair], a, b[of_pair], b]
    crossed = crossed + tokens.squared[a[of_pair], b, b[of_pair], a]
    pairs = average(2, 2) * same + average(1, 2) * crossed
    second = pairs[:, None, :, None] * covariance[:, None, :]
    drive = average(1, 1) * tokens.with_weight[a, b]
    if layout.self_attention and layout.form == "cubic":
        fourth = _fourth_moments(covariance, a, b)
        mean = average(1, 2) * tokens.covariance[a, b]
        mixed = mean[:, None, None, None] * fourth.transpose(1, 0, 2)
        second += mixed + mixed.transpose(2, 3, 0, 1)
        second += average(0, 2) * _sixth_moments(covariance, a, b)
        drive += average(0, 1) * fourth @ tokens.weight
    size = layout.size
    joint = np.empty((size + 1, size + 1))
    joint[:size, :size] = second.reshape(size, size)
    joint[:size, size] = joint[size, :size] = drive.reshape(-1)
    joint[size, size] = tokens.label
    return joint


def _fourth_moments(covariance: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E x_a x_b x_e x_f for each pair (a, b), zero where a or b is the label: (pairs, D, D)."""
    padded = np.pad(covariance, (0, 1))
    rows_a, rows_b = padded[a, :-1], padded[b, :-1]
    crossed = rows_a[:, :, None] * rows_b[:, None, :]
    return padded[a, b][:, None, None] * covariance + crossed + crossed.transpose(0, 2, 1)


def _sixth_moments(covariance: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E x_a x_b x_e x_c x_d x_f for pairs (a, b) and (c, d): (pairs, D, pairs, D)."""
    padded = np.pad(covariance, (0, 1))
    fourth, within = _fourth_moments(covariance, a, b), padded[a, b]
    crossed = fourth - within[:, None, None] * covariance
    total = within[:, None, None, None] * fourth.transpose(1, 0, 2)  # a with b
    total += crossed[:, :, None, :] * within[:, None]  # c with d, not a with b
    between = padded[a[:, None], a] * padded[b[:, None], b]
    between = between + padded[a[:, None], b] * padded[b[:, None], a]
    total += between[:, None, :, None] * covariance[:, None, :]  # e with f
    for near, left in ((a, b), (b, a)):
        for far, right in ((a, b), (b, a)):
            link = padded[near[:, None], far][:, None, :, None]  # one of a, b with one of c, d
            ends = padded[left, :-1][:, :, None, None] * padded[right, :-1]
            swapped = padded[left, :-1][:, None, None, :] * padded[right, :-1].T[:, :, None]
            total += link * (ends + swapped)
    return total


def _square_root(joint: np.ndarray) -> np.ndarray:
    """An upper triangular B with BᵀB = `joint`, also where that matrix has no full rank."""
    scale = np.sqrt(np.diag(joint))
    # Scaled to unit variance: small features would be lost to the rounding of large ones.
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(joint / np.outer(scale, scale))
    kept = np.where(values > _ROUNDING * values[-1] * len(values), values, 0.0)
    return np.asarray(np.linalg.qr((np.sqrt(kept) * vectors).T * scale, mode="r"))

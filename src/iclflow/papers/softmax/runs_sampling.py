"""Softmax heads and gradient steps as predictors that weigh the labels of a context, and their
losses by Monte Carlo over inputs."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import theory
from ...analysis import Sampled
from ...tasks import LinearRegression
from .._sampling import Inputs, Weights, drawn_losses
from .runs import SIGNS


def heads(omega: Iterable[float], mu: Iterable[float]) -> Weights:
    """Structured softmax heads: Σ_h μ_h softmax(ω_h x·q)."""

    def weights(inputs: Inputs) -> np.ndarray:
        products, total = inputs.products, 0.0
        for w, m in zip(omega, mu, strict=True):
            # Shifted by the largest exponent, which cancels, against overflow.
            powers = np.exp(w * products - np.max(w * products, 1, keepdims=True))
            total = total + m * powers / powers.sum(1, keepdims=True)
        return np.asarray(total)

    return weights


def best_pair(task: LinearRegression) -> Weights:
    """The pair of heads with the smallest loss, by theory."""
    best = theory.pair_optimum(task)
    return heads(best.w * SIGNS, best.mu * SIGNS)


def step(size: float, centred: bool = False) -> Weights:
    """One gradient step (η/L) x·q, the inputs centred or not."""

    def weights(inputs: Inputs) -> np.ndarray:
        products = inputs.products
        if centred:
            products = products - products.mean(1, keepdims=True)
        return size / products.shape[1] * products

    return weights


def sampled_losses(predictors: dict[str, Weights], *setting: Any) -> dict[str, Sampled]:
    """The mean loss of every predictor; the arguments are those of `drawn_losses`."""
    drawn = drawn_losses(predictors, *setting)
    return {name: Sampled.of(losses) for name, losses in drawn.items()}


def sampled_distances(
    predictors: dict[str, Weights], dim: int, length: int, noise: float, count: int
) -> dict[str, float]:
    """How far the first predictor is from each of the others, √(E(ŷ − ŷ′)²/Eŷ²), labels averaged
    over; others that are gradient steps are given the size that fits best."""
    rng = np.random.default_rng(length)
    draws = rng.standard_normal((count, length + 1, dim))
    inputs = Inputs(draws[:, :-1], draws[:, -1])

    def product(first: np.ndarray, second: np.ndarray) -> float:
        """E[ŷŷ′]."""
        left, right = (np.einsum("pl,pld->pd", c, inputs.x) for c in (first, second))
        return float(np.mean(np.sum(left * right, 1) / dim + noise * np.sum(first * second, 1)))

    (_, own), *others = ((name, weights(inputs)) for name, weights in predictors.items())
    power = product(own, own)
    found = {}
    for name, other in others:
        if "step" in name:
            other = other * product(own, other) / product(other, other)
        found[name] = (product(own - other, own - other) / power) ** 0.5
    return found


def bound_losses(dim: int, length: int, noise: float, count: int) -> Sampled:
    """The loss of the best weights that see x·q alone, c_l = |q|s_l/(|s|² + B), s_l = x_l·q/|q|.

    What the context says across the query is averaged over too: its d − 1 directions add
    |c|²(d − 1)/d.
    """
    rng = np.random.default_rng(dim)
    across = (dim - 1) / dim + noise
    size, seen = rng.chisquare(dim, count), rng.chisquare(length, count)
    gain = 1 / (seen + dim * across)
    # c·s = |q| gain |s|², |c|² = |q|² gain² |s|².
    return Sampled.of(noise + size * ((1 - gain * seen) ** 2 / dim + across * gain**2 * seen))


def attention_norms(omega: float, length: int, dim: int, count: int) -> np.ndarray:
    """|p| of the attention weights of a head with key-query ωI, over drawn contexts."""
    rng = np.random.default_rng(length)
    size = np.sqrt(rng.chisquare(dim, count))  # |q|
    scores = omega * size[:, None] * rng.standard_normal((count, length))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.linalg.norm(weights, axis=1) / weights.sum(1)

"""Losses of predictors that weigh the labels of a context, by Monte Carlo over inputs alone.

A prediction Σ c_l y_l whose weights c see the inputs alone has, averaged over β ~ N(0, I/d) and all
label noise, the loss σ² + |q − Σ c_l x_l|²/d + σ²|c|²; and so with features φ(x) for x where labels
are linear in those. All predictors of a setting see the same inputs.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ... import theory
from ...analysis import Sampled as Sampled
from ...tasks import HermiteRegression, LinearRegression
from .runs import SIGNS

# Contexts at a time: bounds the memory.
_BATCH = 5000


class Inputs(NamedTuple):
    """Inputs of contexts, and queries."""

    x: Float[np.ndarray, "P L D"]
    q: Float[np.ndarray, "P D"]

    @property
    def products(self) -> Float[np.ndarray, "P L"]:
        """x_l·q."""
        return np.einsum("pld,pd->pl", self.x, self.q)


# The weight of every label.
Weights = Callable[[Inputs], Float[np.ndarray, "P L"]]


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


def ridge(penalty: float) -> Weights:
    """Ridge regression, x·(XXᵀ + ρI)⁻¹q; Bayes with ρ = dσ²."""

    def weights(inputs: Inputs) -> np.ndarray:
        x, q = inputs
        gram = np.einsum("pld,ple->pde", x, x) + penalty * np.eye(x.shape[2])
        return np.einsum("pld,pd->pl", x, np.linalg.solve(gram, q[..., None])[..., 0])

    return weights


def drawn_losses(
    predictors: dict[str, Weights],
    dim: int,
    length: int,
    noise: float,
    count: int,
    curved: HermiteRegression | None = None,
) -> dict[str, np.ndarray]:
    """The losses of every predictor on the same `count` contexts.

    **Arguments:**

    - `curved`: if given, labels are linear in its features, with weights of its variances.
    """
    rng = np.random.default_rng(length)
    found = {name: [] for name in predictors}
    variances = np.full(dim, 1 / dim) if curved is None else np.asarray(curved.weight_variances())
    for start in range(0, count, _BATCH):
        size = min(_BATCH, count - start)
        draws = rng.standard_normal((size, length + 1, dim))
        inputs = Inputs(draws[:, :-1], draws[:, -1])
        features = draws if curved is None else np.asarray(curved.features(jnp.asarray(draws)))
        for name, weights in predictors.items():
            c = weights(inputs)
            rest = features[:, -1] - np.einsum("pl,plf->pf", c, features[:, :-1])
            found[name].append(noise + rest**2 @ variances + noise * np.sum(c**2, 1))
    return {name: np.concatenate(losses) for name, losses in found.items()}


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

"""Losses of predictors that weigh the labels of a context, by Monte Carlo over inputs alone.

A prediction Σ c_l y_l whose weights c see the inputs alone has, averaged over β ~ N(0, I/d) and all
label noise, the loss σ² + |q − Σ c_l x_l|²/d + σ²|c|²; and so with features φ(x) for x where labels
are linear in those. All predictors of a setting see the same inputs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..tasks import HermiteRegression

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

"""Random fixed points, sampled moments and restarts of separate attention."""

import jax.random as jr
import numpy as np

from ... import analysis
from ...models import Attention, Separate
from ...risks import risk
from .. import Lab, once
from .runs import four_components

# Heads and ranks that the paper's statement on rank R is tried for; the last has HR < D.
RANKED_SHAPES = ((2, 2), (1, 4), (3, 2), (4, 4), (1, 2))
# Contexts of the sampled moment.
_SAMPLED = 100_000


def estimate_second_moment(eigenvalues: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of Λ̂² over random contexts, with its standard error."""
    noise = np.random.default_rng(context)
    total, squares, dim = np.zeros((4, 4)), np.zeros((4, 4)), len(eigenvalues)
    for _ in range(10):
        x = noise.standard_normal((_SAMPLED // 10, context, dim)) * np.sqrt(eigenvalues)
        sample = np.einsum("pni,pnj->pij", x, x) / context
        product = sample @ sample
        total += product.sum(0)
        squares += (product**2).sum(0)
    mean = total / _SAMPLED
    return mean, np.sqrt((squares / _SAMPLED - mean**2) / _SAMPLED)


def random_fixed_point(subset: list[int], strengths: np.ndarray, heads: int, seed: int) -> Separate:
    """Weights that meet C1–C3 for a subset of eigenvectors: the fitted part is split at random over
    the first heads, and the last head is idle, with a key in the learned span."""
    noise = np.random.default_rng(seed)
    active, size = heads - 1, len(subset)
    # A_S = X Yᵀ with a random X of full row rank: its columns are keys, those of Y queries.
    left = noise.standard_normal((size, active))
    right = np.linalg.pinv(left) * strengths[subset]
    v = noise.uniform(0.5, 2.0, active) * noise.choice([-1.0, 1.0], active)
    keys, queries = np.zeros((heads, 4)), np.zeros((heads, 4))
    keys[:active, subset] = left.T / v[:, None]
    queries[:active, subset] = right
    # An idle head reads learned directions by its key; its query is free.
    keys[active, subset] = noise.standard_normal(size)
    queries[active] = noise.standard_normal(4)
    return Separate.of(np.append(v, 0.0), keys[..., None], queries[..., None])


@once
def ranked_restarts(lab: Lab, heads: int, rank: int) -> analysis.StationaryPoints:
    """Stationary points of heads of a rank, found from random weights without theory."""
    count = lab.scaled(4, 6, 200)
    template = Attention.separate(jr.key(0), dim=4, heads=heads, rank=rank, scale=1.0)
    exact = risk(four_components(), template)
    return analysis.find_stationary_points(exact, template, count, jr.key(40 + 4 * heads + rank))

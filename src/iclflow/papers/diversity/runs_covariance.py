"""A layer that is trained on random covariances, from the start of arXiv 2306.09927, and tested on
others."""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...flows import gradient_flow_ensemble
from ...models import Attention, Merged
from ...risks import risk
from ...tasks import LinearRegression, Mixture
from .. import Lab, once

# Two dimensions; contexts of training; the covariance of a test is a multiple of I.
WIDTH, LENGTH, STARTS = 2, 40, (1.0, 0.3)
TESTED, SHIFTS, DRAWN = 100, (0.5, 1.0, 3.0, 6.0, 9.0), 12_000


class Shifted(NamedTuple):
    """Where training ends, and the loss on shifted covariances over that of predicting zero.

    **Fields:**

    - `ends`: the loss at the end of each flow. `matrices`: its A.
    - `means`, `errors`: of the share of each shift, sampled.
    """

    ends: np.ndarray
    matrices: np.ndarray
    means: np.ndarray
    errors: np.ndarray


def exponential_covariances() -> Mixture:
    """Diagonal covariances whose entries are independent and exponential with mean 1.

    The loss is a cubic polynomial in the entries: three nodes of Gauss and Laguerre's rule give
    its exact mean.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(3)
    places = list(itertools.product(range(3), repeat=WIDTH))
    laws = [LinearRegression(nodes[list(place)], context=LENGTH) for place in places]
    shares = [float(np.prod(weights[list(place)])) for place in places]
    return Mixture(laws, np.array(shares) / np.sum(shares))


@once
def shifted(lab: Lab) -> Shifted:
    """Exact flows of one merged head from v = s and U = sΘΘᵀ, and tests on drawn sequences."""
    task, models = exponential_covariances(), []
    theta = np.asarray(jr.normal(jr.key(9), (WIDTH, WIDTH)))
    for size, start in zip(STARTS, (np.eye(WIDTH), theta @ theta.T)):
        U = size * start / np.linalg.norm(start)
        models.append(Attention(Merged.of(jnp.array([size]), jnp.asarray(U[None]))))
    runs = gradient_flow_ensemble(models, risk(task, models[0]), end=1e3, rtol=1e-10)
    lab.hash_runs(runs)
    found = []
    for place, shift in enumerate(SHIFTS):
        law = LinearRegression(shift * np.ones(WIDTH), context=TESTED)
        drawn = law.sample(jr.key(place), DRAWN)
        squares = np.asarray(drawn.squared_error(runs[0].final.predict(drawn)))
        found.append(squares / (WIDTH * shift))
    means = np.array([each.mean() for each in found])
    errors = np.array([each.std(ddof=1) / DRAWN**0.5 for each in found])
    matrices = np.array([np.asarray(run.final.coefficients()) for run in runs])
    return Shifted(runs.final_losses, matrices, means, errors)

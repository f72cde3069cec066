"""Linear attention at its best, and on contexts of other lengths."""

import jax.numpy as jnp
import numpy as np

from ...models import Attention, Merged
from ...risks import risk
from ...tasks import isotropic
from .runs import NOISE

# At which the models of L = 40 are tried.
LENGTHS = (10, 20, 40, 100, 1000, 10_000)


def linear_lengths(model: Attention, trained_at: int, divided: bool, lengths=LENGTHS) -> np.ndarray:
    """Exact losses at other lengths of linear attention trained at one."""
    if not divided:
        # The same function at the length of training: the weights hold the division instead.
        model = Attention(
            Merged.of(model.circuits.v / trained_at, model.circuits.U), normaliser="none"
        )
    tasks = [isotropic(model.circuits.U.shape[1], length, NOISE) for length in lengths]
    return np.array([float(risk(task, model, "exact")(model)) for task in tasks])


def best_linear(dim: int, context: int) -> Attention:
    """Linear attention with the smallest exact risk, a plain step: the slope of the risk in the
    size of the step is a line."""

    def with_step(size: float) -> Attention:
        return Attention(Merged.of(jnp.ones(1), size * jnp.eye(dim)[None]))

    exact = risk(isotropic(dim, context, NOISE), with_step(1.0), "exact")
    # The slope in v at v = 1 is the size of the step times the slope in it.
    slope = lambda size: float(exact.value_and_gradient(with_step(size))[1].circuits.v[0]) / size
    at_one, at_two = slope(1.0), slope(2.0)
    return with_step(1 - at_one / (at_two - at_one))

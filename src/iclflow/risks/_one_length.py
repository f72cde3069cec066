"""One context length in the place of those of a task."""

import math

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..precision import as_float


def one_length(length, limit: str = "") -> tuple[Float[Array, " one"], Float[Array, " one"]]:
    """Lengths and their probabilities if there is one alone, any real number from 1 up.

    **Arguments:**

    - `limit`: what to say to those who want an infinite one.
    """
    known = not isinstance(length, Tracer)
    plain = not isinstance(length, str) and np.ndim(length) == 0
    if known and not (plain and 1 <= float(length) < math.inf):
        told = repr(length) if isinstance(length, str) else length
        raise ValueError(f"`length` = {told}: must be at least 1 and finite{limit}.")
    lengths = jnp.reshape(as_float(length), (1,))
    return lengths, jnp.ones_like(lengths)

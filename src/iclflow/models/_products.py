"""Products of small matrices, one a head."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# Multiplications of one product up to which it is written as a sum: that becomes part of the loop
# around it, where a call of a matrix routine would take longer than the product.
_SMALL = 4096


def product_of_columns(
    first: Float[Array, "H E A"], second: Float[Array, "H E B"]
) -> Float[Array, "H A B"]:
    """first_hᵀ second_h, for every head h."""
    if first[0].size * second.shape[2] > _SMALL:
        return jnp.einsum("hea,heb->hab", first, second)
    return jnp.sum(first[:, :, :, None] * second[:, :, None, :], 1)

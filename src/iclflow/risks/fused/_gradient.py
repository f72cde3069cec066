"""The mean loss and its gradient in the circuits, from the results of a pass for every lane."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._pass import Numbers, Slopes, lanes_of
from ._spec import Spec


def xla_lanes(spec: Spec, numbers: Numbers) -> Float[Array, "rows P"]:
    """The pass as a plain compiled program."""
    lane = jnp.arange(spec.batch, dtype=jnp.uint32)
    return jnp.stack(jnp.broadcast_arrays(*lanes_of(spec, numbers, lane).flat()))


def split_sums(
    spec: Spec, numbers: Numbers, sums: Float[Array, " rows"]
) -> tuple[Float[Array, ""], Float[Array, "H A D"], Float[Array, "H J T"]]:
    """The same means as `gather`, from one vector of sums over the batch."""
    loss, kq, ov = jnp.split(sums / spec.batch, [1, 1 + numbers.kq.size])
    return loss[0], kq.reshape(numbers.kq.shape), ov.reshape(numbers.ov.shape)


def gather(
    spec: Spec, lanes: Float[Array, "rows P"]
) -> tuple[Float[Array, ""], Float[Array, "H A D"], Float[Array, "H J T"]]:
    """The mean loss, and its slopes in the key-query and in the output-value circuit."""
    ends = np.cumsum(Slopes.rows(spec))[:-1]
    loss, query, scores, attended, outputs, values = jnp.split(lanes, ends)
    heads, labels = spec.heads, spec.labels
    key_query = jnp.einsum("ap,dp->ad", scores, query, precision="highest")
    key_query = key_query.reshape(heads, spec.entries, spec.dim)
    if spec.drawn or spec.reads_inputs:
        read = jnp.einsum("ap,ip->ai", attended, outputs, precision="highest")
        read = jnp.moveaxis(read.reshape(heads, spec.entries, labels), 1, 2)
    else:
        read = jnp.zeros((heads, labels, spec.dim), lanes.dtype)
    if not spec.drawn:
        of_labels = jnp.sum(values, 1).reshape(heads, labels, labels)
        read = jnp.concatenate([read, of_labels], 2)
    return jnp.sum(loss) / spec.batch, key_query / spec.batch, read / spec.batch

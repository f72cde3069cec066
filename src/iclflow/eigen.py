"""Eigenvectors of many small symmetric matrices.

Batches of LAPACK calls share XLA's thread pool on a CPU with the operations that wait for them: two
such batches in one program can deadlock (seen with jax 0.10 on two cores). Jacobi's method needs
matrix products alone, and is as exact.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The largest matrices for Jacobi's method; beyond, LAPACK is much faster.
_LARGEST = 16
# Convergence is quadratic: random matrices of that size are exact to rounding after seven sweeps.
_SWEEPS = 10


def eigh(
    matrices: Float[Array, "*batch D D"],
) -> tuple[Float[Array, "*batch D"], Float[Array, "*batch D D"]]:
    """Eigenvalues, the smallest first, and eigenvectors as columns."""
    dim = matrices.shape[-1]
    if dim > _LARGEST:
        return jnp.linalg.eigh(matrices)
    identity = jnp.broadcast_to(jnp.eye(dim, dtype=matrices.dtype), matrices.shape)
    if dim == 1:
        return matrices[..., 0], identity
    rows, columns = _rounds(dim)
    unit = np.eye(dim)
    stretch = np.einsum("rki,rkj->rkij", unit[rows], unit[rows])
    stretch = stretch + np.einsum("rki,rkj->rkij", unit[columns], unit[columns])
    turn = np.einsum("rki,rkj->rkij", unit[columns], unit[rows])
    turn = turn - np.swapaxes(turn, -1, -2)

    def rotate(carry, planes):
        matrix, vectors = carry
        p, q, stretch, turn = planes
        difference = matrix[..., p, p] - matrix[..., q, q]
        sign = jnp.where(difference < 0, -1.0, 1.0)
        # The smaller of the two angles that make the entry (p, q) zero.
        angle = jnp.arctan2(2 * matrix[..., p, q] * sign, jnp.abs(difference)) / 2
        rotation = identity + jnp.einsum("...k,kij->...ij", jnp.cos(angle) - 1, stretch)
        rotation = rotation + jnp.einsum("...k,kij->...ij", jnp.sin(angle), turn)
        matrix = jnp.swapaxes(rotation, -1, -2) @ matrix @ rotation
        return (matrix, vectors @ rotation), None

    planes = tuple(
        jnp.tile(jnp.asarray(x), (_SWEEPS,) + (1,) * (x.ndim - 1))
        for x in (rows, columns, stretch.astype(matrices.dtype), turn.astype(matrices.dtype))
    )
    (matrix, vectors), _ = jax.lax.scan(rotate, (matrices, identity), planes)
    values = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    order = jnp.argsort(values, axis=-1)
    values = jnp.take_along_axis(values, order, -1)
    return values, jnp.take_along_axis(vectors, order[..., None, :], -1)


def _rounds(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of indices in rounds of disjoint pairs, as in a round-robin tournament."""
    players = [*range(dim), *[-1] * (dim % 2)]  # −1 is a bye, for odd numbers
    half = len(players) // 2
    rounds = []
    for _ in range(len(players) - 1):
        pairs = zip(players[:half], reversed(players[half:]))
        rounds.append([sorted(pair) for pair in pairs if -1 not in pair])
        players = [players[0], players[-1], *players[1:-1]]
    table = np.array(rounds)
    return table[..., 0], table[..., 1]

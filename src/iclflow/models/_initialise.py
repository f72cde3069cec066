"""Initial weights. Every scheme says precisely what it draws.

- `"gaussian"`: every entry is N(0, s²).
- `"balanced"`: zero conserved quantities. Merged: U_h = v_h W with one random W of unit norm, so
  v_i v_j = ⟨U_i, U_j⟩. Separate: ‖K_h‖ = |v_h|, Q_h = O K_h with O a random rotation, so
  K_hᵀK_h = Q_hᵀQ_h and v_h² = ‖K_h‖². The v_h are N(0, s²).
- `"identity"`: balanced and aligned with white inputs. Merged: U_h = v_h I/√D. Separate: head h
  reads and asks for coordinate h mod D (and the R − 1 after it) with ‖K_h‖ = |v_h|, K_h = Q_h.
  The v_h are |N(0, s²)|, so that every head can grow.
- `"paper"`: the standard deviations of the code of arXiv 2501.16265. Merged: every entry N(0, s²),
  like `"gaussian"`. Separate: s/√(number of entries of the stacked matrix over all heads), i.e.
  s/√(H R (D+1)) for keys and queries and s/√(H (D+1)²) for values. That code does not divide
  attention by N: use it with `normaliser="none"`, or multiply the weights by √N (merged) or
  N^(1/3) (separate).

The blocks u and h of the full forms start at zero in every scheme.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray, ScalarLike

from ..precision import as_float
from ..tasks import is_whole

Scheme = Literal["gaussian", "balanced", "identity", "paper"]
SCHEMES = ("gaussian", "balanced", "identity", "paper")


def check_sizes(dim: int, heads: int, scale: ScalarLike, scheme: str, rank: int = 1) -> None:
    """Refuses sizes that no model can have."""
    for name, value in (("dim", dim), ("heads", heads), ("rank", rank)):
        if not is_whole(value) or value < 1:
            raise ValueError(f"`{name}` = {value}: must be a whole number from 1 up.")
    if rank > dim:
        raise ValueError(f"`rank` = {rank}: must not exceed `dim` = {dim}.")
    # The values of a traced scale are not known here: `init_many` checks what it sweeps.
    traced = isinstance(scale, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]
    if not traced and not 0 <= np.asarray(scale) < np.inf:
        raise ValueError(f"`scale` = {scale}: must be finite and not negative.")
    if scheme not in SCHEMES:
        raise ValueError(f"`scheme` = {scheme!r}: must be one of {', '.join(SCHEMES)}.")


def merged_weights(
    key: PRNGKeyArray, dim: int, heads: int, scale: ScalarLike, scheme: Scheme
) -> tuple[Array, Array]:
    """v (H,) and U (H, D, D)."""
    check_sizes(dim, heads, scale, scheme)
    key_v, key_u = jr.split(key)
    size = as_float(scale)
    dtype = size.dtype
    v = size * jr.normal(key_v, (heads,), dtype)
    if scheme in ("gaussian", "paper"):
        return v, size * jr.normal(key_u, (heads, dim, dim), dtype)
    if scheme == "identity":
        v = jnp.abs(v)
        direction = jnp.eye(dim, dtype=dtype)
    else:
        direction = jr.normal(key_u, (dim, dim), dtype)
    return v, v[:, None, None] * direction / jnp.linalg.norm(direction)


def separate_weights(
    key: PRNGKeyArray, dim: int, heads: int, rank: int, scale: ScalarLike, scheme: Scheme
) -> tuple[Array, Array, Array]:
    """v (H,), K (H, D, R) and Q (H, D, R)."""
    check_sizes(dim, heads, scale, scheme, rank)
    key_v, key_k, key_q = jr.split(key, 3)
    size = as_float(scale)
    shape, dtype = (heads, dim, rank), size.dtype
    v = size * jr.normal(key_v, (heads,), dtype)
    k = size * jr.normal(key_k, shape, dtype)
    if scheme == "gaussian":
        return v, k, size * jr.normal(key_q, shape, dtype)
    if scheme == "paper":
        value_size, key_size = heads * (dim + 1) ** 2, heads * rank * (dim + 1)
        q = size * jr.normal(key_q, shape, dtype)
        return v / value_size**0.5, k / key_size**0.5, q / key_size**0.5
    if scheme == "identity":
        v = jnp.abs(v)
        rows = (jnp.arange(heads)[:, None] + jnp.arange(rank)) % dim
        k = jax.nn.one_hot(rows, dim, axis=1, dtype=dtype)
        k = v[:, None, None] * k / rank**0.5
        return v, k, k
    norms = jnp.linalg.norm(k, axis=(1, 2), keepdims=True)
    k = jnp.abs(v)[:, None, None] * k / jnp.where(norms > 0, norms, 1.0)
    rotations, _ = jnp.linalg.qr(jr.normal(key_q, (heads, dim, dim), dtype))
    return v, k, rotations @ k

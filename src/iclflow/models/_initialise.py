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

Merged attention also has those of arXiv 2503.12734:

- `"default"`: every entry is U(−s/√T, s/√T), T = D + 1, as linear layers usually start.
- `"small_identity"`: U_h = s I and v_h = s.
- `"opposite"`: the same, with both signs changed in every second head.

The parts that full circuits have and blind ones lack start at zero in every scheme but
`"default"`, which draws them like the others.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import check_choice, check_count, check_key, is_real

Scheme = Literal["gaussian", "balanced", "identity", "paper"]
MergedScheme = Literal[
    "gaussian", "balanced", "identity", "paper", "default", "small_identity", "opposite"
]
FullScheme = Literal["gaussian", "default", "small_identity", "opposite"]
StructuredScheme = Literal["gaussian", "small_identity", "opposite"]
SCHEMES: tuple[str, ...] = get_args(Scheme)
"""How separate weights can start.

**Example:**

```pycon
>>> icl.models.SCHEMES
('gaussian', 'balanced', 'identity', 'paper')
```
"""
MERGED_SCHEMES: tuple[str, ...] = get_args(MergedScheme)
"""How merged weights can start.

**Example:**

```pycon
>>> icl.models.MERGED_SCHEMES
('gaussian', 'balanced', 'identity', 'paper', 'default', 'small_identity', 'opposite')
```
"""
FULL_SCHEMES: tuple[str, ...] = get_args(FullScheme)
"""How weights over whole tokens can start.

**Example:**

```pycon
>>> icl.models.FULL_SCHEMES
('gaussian', 'default', 'small_identity', 'opposite')
```
"""
STRUCTURED_SCHEMES: tuple[str, ...] = get_args(StructuredScheme)
"""How one number per head can start.

**Example:**

```pycon
>>> icl.models.STRUCTURED_SCHEMES
('gaussian', 'small_identity', 'opposite')
```
"""


def check_start(
    key: PRNGKeyArray,
    dim: int,
    heads: int,
    scale: ScalarLike,
    scheme: str,
    schemes: tuple[str, ...],
    **counts: int,
) -> Float[Array, ""]:
    """Checks the arguments of initial weights, and returns their size.

    **Arguments:**

    - `schemes`: the schemes of the model.
    - `counts`: further sizes of the model by name, such as `rank`, from 1 up.
    """
    check_key(key)
    for name, value in {"dim": dim, "heads": heads, **counts}.items():
        check_count(name, value)
    if counts.get("rank", 1) > dim:
        raise InputError("rank", counts["rank"], f"must not exceed `dim` = {dim}")
    check_scale("scale", scale)
    check_choice("scheme", scheme, schemes)
    return as_float(scale)


def check_scale(name: str, scale: ScalarLike) -> None:
    """Refuses a scale that is not a number from 0 up."""
    # A traced scale has no value yet: `init_many` checks the values that it sweeps.
    traced = isinstance(scale, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]
    if not traced and not (is_real(scale) and 0 <= np.asarray(scale) < np.inf):
        raise InputError(name, scale, "must be a number, finite and not negative")


def start_signs(heads: int, scheme: str, dtype: DTypeLike) -> Array:
    """The sign of each head: all + in `"small_identity"`, +, −, +, … in `"opposite"`."""
    signs = jnp.ones(heads, dtype)
    return signs.at[1::2].set(-1) if scheme == "opposite" else signs


# One compiled program: without it every operation would be compiled by itself.
@eqx.filter_jit
def draw_merged(
    key: PRNGKeyArray, dim: int, heads: int, size: Array, scheme: str
) -> tuple[Array, Array]:
    """v (H,) and U (H, D, D)."""
    key_v, key_u = jr.split(key)
    dtype = size.dtype
    if scheme == "default":
        v = size * uniform(key_v, (heads,), dim + 1, dtype)
        return v, size * uniform(key_u, (heads, dim, dim), dim + 1, dtype)
    if scheme in ("small_identity", "opposite"):
        v = size * start_signs(heads, scheme, dtype)
        return v, v[:, None, None] * jnp.eye(dim, dtype=dtype)
    v = size * jr.normal(key_v, (heads,), dtype)
    if scheme in ("gaussian", "paper"):
        return v, size * jr.normal(key_u, (heads, dim, dim), dtype)
    if scheme == "identity":
        v = jnp.abs(v)
        direction = jnp.eye(dim, dtype=dtype)
    else:
        # One direction for all heads: then v_i v_j = ⟨U_i, U_j⟩, which the flow conserves.
        direction = jr.normal(key_u, (dim, dim), dtype)
    return v, v[:, None, None] * direction / jnp.linalg.norm(direction)


@eqx.filter_jit
def draw_separate(
    key: PRNGKeyArray, dim: int, heads: int, rank: int, size: Array, scheme: str
) -> tuple[Array, Array, Array]:
    """v (H,), K (H, D, R) and Q (H, D, R)."""
    key_v, key_k, key_q = jr.split(key, 3)
    shape, dtype = (heads, dim, rank), size.dtype
    v = size * jr.normal(key_v, (heads,), dtype)
    k = size * jr.normal(key_k, shape, dtype)
    if scheme == "gaussian":
        return v, k, size * jr.normal(key_q, shape, dtype)
    if scheme == "paper":
        # Entries of the matrices in that code, which have rows and columns for the label too.
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
    # Keys of length zero, from a scale of zero, have no direction: they stay zero.
    k = jnp.abs(v)[:, None, None] * k / jnp.where(norms > 0, norms, 1.0)
    # A rotation keeps K_hᵀK_h = Q_hᵀQ_h, the conserved quantity that is to be zero.
    rotations, _ = jnp.linalg.qr(jr.normal(key_q, (heads, dim, dim), dtype))
    return v, k, rotations @ k


@eqx.filter_jit
def random_blocks(
    key: PRNGKeyArray,
    shapes: Sequence[tuple[int, ...]],
    size: Array,
    scheme: Literal["gaussian", "default"],
    inputs: Sequence[int],
) -> tuple[Array, ...]:
    """Independent blocks of these shapes: N(0, s²) for `"gaussian"`, U(−s/√n, s/√n) for
    `"default"`, with one n of `inputs` for each."""
    if scheme == "default":
        one = lambda key, shape, count: uniform(key, shape, count, size.dtype)
    else:
        one = lambda key, shape, _: jr.normal(key, shape, size.dtype)
    # One key per block, so that no block depends on the shapes of the others.
    keys = jr.split(key, len(shapes))
    return tuple(size * one(*block) for block in zip(keys, shapes, inputs))


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int, dtype: DTypeLike) -> Array:
    """U(−1/√n, 1/√n), n = `inputs`: how a linear layer with n inputs usually starts."""
    return jr.uniform(key, shape, dtype, -1.0, 1.0) / inputs**0.5

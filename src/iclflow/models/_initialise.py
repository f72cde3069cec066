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

What full circuits have beyond blind ones starts at zero in every scheme but `"default"`, which
draws them like the others.
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
from ..tasks import check_count, check_key, is_real

Scheme = Literal["gaussian", "balanced", "identity", "paper"]
MergedScheme = Literal[
    "gaussian", "balanced", "identity", "paper", "default", "small_identity", "opposite"
]
FullScheme = Literal["gaussian", "default", "small_identity", "opposite"]
FactoredScheme = FullScheme
StructuredScheme = Literal["gaussian", "small_identity", "opposite"]
SCHEMES: tuple[str, ...] = get_args(Scheme)
MERGED_SCHEMES: tuple[str, ...] = get_args(MergedScheme)
FULL_SCHEMES: tuple[str, ...] = get_args(FullScheme)
STRUCTURED_SCHEMES: tuple[str, ...] = get_args(StructuredScheme)


def check_start(
    key: PRNGKeyArray,
    dim: int,
    heads: int,
    scale: ScalarLike,
    scheme: str,
    schemes: tuple[str, ...],
    **counts: int,
) -> Float[Array, ""]:
    """The size of initial weights, after a check of all that these are drawn from.

    **Arguments:**

    - `schemes`: those that the model knows.
    - `counts`: further sizes of the model by name, such as `rank`, from 1 up.
    """
    check_key(key)
    for name, value in {"dim": dim, "heads": heads, **counts}.items():
        check_count(name, value)
    if counts.get("rank", 1) > dim:
        raise InputError("rank", counts["rank"], f"must not exceed `dim` = {dim}")
    check_scale("scale", scale)
    if scheme not in schemes:
        raise InputError("scheme", scheme, f"must be one of {', '.join(schemes)}")
    return as_float(scale)


def check_scale(name: str, scale: ScalarLike) -> None:
    """Refuses sizes of weights that are negative or no numbers."""
    # The values of a traced scale are not known here: `init_many` checks what it sweeps.
    traced = isinstance(scale, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]
    if not traced and not (is_real(scale) and 0 <= np.asarray(scale) < np.inf):
        raise InputError(name, scale, "must be a number, finite and not negative")


def start_signs(heads: int, scheme: str, dtype: DTypeLike) -> Array:
    """The sign of each head: all + in `"small_identity"`, +, −, +, … in `"opposite"`."""
    signs = jnp.ones(heads, dtype)
    return signs.at[1::2].set(-1) if scheme == "opposite" else signs


def merged_weights(
    key: PRNGKeyArray, dim: int, heads: int, scale: ScalarLike, scheme: MergedScheme
) -> tuple[Array, Array]:
    """v (H,) and U (H, D, D)."""
    size = check_start(key, dim, heads, scale, scheme, MERGED_SCHEMES)
    return _merged(key, dim, heads, size, scheme)


# Weights are drawn by compiled programs: one by one, their operations would each be compiled.
@eqx.filter_jit
def _merged(
    key: PRNGKeyArray, dim: int, heads: int, size: Array, scheme: str
) -> tuple[Array, Array]:
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
        direction = jr.normal(key_u, (dim, dim), dtype)
    return v, v[:, None, None] * direction / jnp.linalg.norm(direction)


def separate_weights(
    key: PRNGKeyArray, dim: int, heads: int, rank: int, scale: ScalarLike, scheme: Scheme
) -> tuple[Array, Array, Array]:
    """v (H,), K (H, D, R) and Q (H, D, R)."""
    size = check_start(key, dim, heads, scale, scheme, SCHEMES, rank=rank)
    return _separate(key, dim, heads, rank, size, scheme)


@eqx.filter_jit
def _separate(
    key: PRNGKeyArray, dim: int, heads: int, rank: int, size: Array, scheme: str
) -> tuple[Array, Array, Array]:
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
    rotations, _ = jnp.linalg.qr(jr.normal(key_q, (heads, dim, dim), dtype))
    return v, k, rotations @ k


def factored_weights(
    key: PRNGKeyArray,
    dim: int,
    labels: int,
    heads: int,
    width: int | None,
    scale: ScalarLike | None,
    scheme: FactoredScheme,
) -> tuple[Array, Array, Array, Array]:
    """K, Q, V (H, E, T) and O (H, I, E) over tokens of T = D + I entries."""
    token = dim + labels
    width = token if width is None else width
    scale = scale if scale is not None else (1.0 if scheme == "default" else 1e-2)
    counts = {"labels": labels, "width": width}
    size = check_start(key, dim, heads, scale, scheme, FULL_SCHEMES, **counts)
    shapes = [(heads, width, token)] * 3 + [(heads, labels, width)]
    if scheme in ("gaussian", "default"):
        inputs = [token] * 3 + [heads * width]
        K, Q, V, O = random_blocks(key, shapes, size, scheme, inputs)  # noqa: E741
        return K, Q, V, O
    if width < token:
        raise InputError(
            "width",
            width,
            f'must be at least {token}, the size of a token, for the scheme "{scheme}"',
        )
    signs = start_signs(heads, scheme, size.dtype)[:, None, None]
    identity = jnp.broadcast_to(jnp.eye(width, token, dtype=size.dtype), shapes[0])
    rows = jnp.eye(labels, width, dim, dtype=size.dtype)
    blocks = identity, signs * identity, identity, signs * rows
    K, Q, V, O = (size * block for block in blocks)  # noqa: E741
    return K, Q, V, O


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
    keys = jr.split(key, len(shapes))
    return tuple(size * one(*block) for block in zip(keys, shapes, inputs))


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int, dtype: DTypeLike) -> Array:
    """U(−1/√n, 1/√n), n = `inputs`: how a linear layer with n inputs usually starts."""
    return jr.uniform(key, shape, dtype, -1.0, 1.0) / inputs**0.5

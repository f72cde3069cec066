"""Circuits with one merged key-query matrix per head (ATTN_M of arXiv 2501.16265)."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..runtime.precision import as_float
from ._circuits import AbstractValueCircuits, Stacked, check_parts, pad_keys
from ._initialise import (
    FULL_SCHEMES,
    MergedScheme,
    check_start,
    merged_weights,
    random_blocks,
    start_signs,
)


class Merged(AbstractValueCircuits):
    """One key-query and one output-value matrix per head.

    **Fields:**

    - `value`: a_h over all entries of a token, or over labels alone if blind.
    - `key_query`: B_h from query inputs to all entries of a token, or to inputs alone if blind.

    Blind linear attention with one label predicts ŷ = Σ_h v_h βᵀ U_h x_q.
    """

    value: Float[Array, "H I V"]
    key_query: Float[Array, "H K D"]

    def __check_init__(self):
        check_parts(self, self.key_query.shape[-2], self.value.shape[-1])

    @staticmethod
    def of(v: Float[ArrayLike, " H"], U: Float[ArrayLike, "H D D"]) -> "Merged":
        """Blind circuits with one label, from v_h and U_h."""
        return Merged(jnp.asarray(v)[:, None, None], jnp.asarray(U))

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: MergedScheme = "gaussian",
        *,
        labels: int | None = None,
        blind: bool = True,
    ) -> "Merged":
        """Random weights of size `scale`; `scheme` says which.

        By default there is one label, and what blind circuits lack starts at zero, but for the
        scheme `"default"`, which draws it too. With `labels` given, one or more, every entry is
        drawn alike: `scheme` is then `"gaussian"`, `"default"`, `"small_identity"` (key-query s·I
        on the inputs, output-value s·I on the labels) or `"opposite"` (the same, with both signs
        changed in every second head).
        """
        if labels is not None:
            return _with_labels(key, dim, heads, scale, scheme, labels, blind)
        v, U = merged_weights(key, dim, heads, scale, scheme)
        found = Merged.of(v, U)
        if blind:
            return found
        found = found.embed()
        if scheme != "default":
            return found
        # By a key of their own: what blind circuits have too is the same as theirs.
        u, h = random_blocks(
            jr.fold_in(key, 1), [(heads, dim)] * 2, as_float(scale), "default", [dim + 1] * 2
        )
        return Merged(found.value.at[:, 0, :-1].set(u), found.key_query.at[:, -1].set(h))

    @property
    def U(self) -> Float[Stacked, "*stack H D D"]:
        """U_h, key-query between inputs."""
        return self.key_query[..., : self.dim, :]

    @property
    def dim(self) -> int:
        return self.key_query.shape[-1]

    @property
    def blind(self) -> bool:
        return self.key_query.shape[-2] == self.dim

    def kq(self) -> Float[Array, "H T D"]:
        return pad_keys(self.key_query, self.labels) if self.blind else self.key_query

    def embed(self) -> "Merged":
        return Merged(self.ov(), self.kq())


def _with_labels(
    key: PRNGKeyArray,
    dim: int,
    heads: int,
    scale: ScalarLike,
    scheme: MergedScheme,
    labels: int,
    blind: bool,
) -> Merged:
    size = check_start(key, dim, heads, scale, scheme, FULL_SCHEMES, labels=labels)
    token = dim + labels
    read, attended = (labels, dim) if blind else (token, token)
    if scheme in ("gaussian", "default"):
        shapes = (heads, labels, read), (heads, attended, dim)
        return Merged(*random_blocks(key, shapes, size, scheme, (token, token)))
    signs = size * start_signs(heads, scheme, size.dtype)[:, None, None]
    value = signs * jnp.eye(labels, read, read - labels, dtype=size.dtype)
    return Merged(value, signs * jnp.eye(attended, dim, dtype=size.dtype))

"""The circuits of arXiv 2501.16265: merged key-query (ATTN_M), and separate low-rank keys and
queries (ATTN_S)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ._circuits import AbstractCircuits, Activation, check_parts, pad_keys, pad_values
from ._initialise import (
    FULL_SCHEMES,
    MERGED_SCHEMES,
    SCHEMES,
    MergedScheme,
    Scheme,
    check_start,
    draw_merged,
    draw_separate,
    random_blocks,
    start_signs,
)

# Weights of one model are JAX arrays; those of a run are NumPy arrays.
Stacked = Array | np.ndarray


class AbstractValueCircuits(AbstractCircuits):
    """Circuits whose output-value matrices are weights.

    **Fields:**

    - `value`: a_h over all entries of a token, or over labels alone if blind.
    """

    activation: ClassVar[Activation] = "linear"
    self_attention: ClassVar[bool] = True

    value: eqx.AbstractVar[Float[Array, "H I V"]]

    @property
    def v(self) -> Float[Stacked, "*stack H"]:
        """v_h, the value of the label in each head; for circuits with one label."""
        if self.labels != 1:
            raise ValueError(f"These circuits have {self.labels} labels: must have one.")
        return self.value[..., 0, -1]

    @property
    def heads(self) -> int:
        return self.value.shape[-3]

    @property
    def labels(self) -> int:
        return self.value.shape[-2]

    def ov(self) -> Float[Array, "H I T"]:
        return pad_values(self.value, self.dim) if self.blind else self.value


class Merged(AbstractValueCircuits):
    """One key-query and one output-value matrix per head.

    **Fields:**

    - `value`: a_h over all entries of a token, or over labels alone if blind.
    - `key_query`: B_h from query inputs to all entries of a token, or to inputs alone if blind.

    Blind linear attention with one label predicts ŷ = Σ_h v_h βᵀ U_h x_q.

    **Example:**

    ```pycon
    >>> circuits = icl.Merged.init(jr.key(0), dim=3, heads=2, scale=1e-2, scheme="small_identity")
    >>> circuits.key_query[0], circuits.value.ravel()
    (Array([[0.01, 0.  , 0.  ],
           [0.  , 0.01, 0.  ],
           [0.  , 0.  , 0.01]], dtype=float64), Array([0.01, 0.01], dtype=float64))
    >>> icl.Attention(circuits).coefficients().diagonal()
    Array([0.0002, 0.0002, 0.0002], dtype=float64)
    ```
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
        """Initial weights of size `scale`, by one of the schemes of `models/_initialise.py`.

        By default there is one label, and the parts that blind circuits lack start at zero, except
        in the scheme `"default"`, which draws them too. With `labels` given, one or more, all
        entries have one law: `scheme` is then `"gaussian"`, `"default"`, `"small_identity"`
        (key-query s·I on the inputs, output-value s·I on the labels) or `"opposite"` (the same,
        with both signs changed in every second head).
        """
        # Two ways to draw one label, from two papers: a key must keep drawing the same weights.
        if labels is not None:
            return _with_labels(key, dim, heads, scale, scheme, labels, blind)
        size = check_start(key, dim, heads, scale, scheme, MERGED_SCHEMES)
        found = Merged.of(*draw_merged(key, dim, heads, size, scheme))
        if blind:
            return found
        found = found.embed()
        if scheme != "default":
            return found
        # From another key, so that the parts that blind circuits have too are the same as theirs.
        u, h = random_blocks(jr.fold_in(key, 1), [(heads, dim)] * 2, size, "default", [dim + 1] * 2)
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
    # The labels are the last entries of a token, the inputs the first.
    value = signs * jnp.eye(labels, read, read - labels, dtype=size.dtype)
    return Merged(value, signs * jnp.eye(attended, dim, dtype=size.dtype))


class Separate(AbstractValueCircuits):
    """Key-query K_h Q_hᵀ of rank R, and one output-value matrix per head.

    **Fields:**

    - `value`: a_h over all entries of a token, or over labels alone if blind.
    - `K`: keys over all entries of a token, or over inputs alone if blind.
    - `Q`: queries over inputs.

    Blind linear attention with one label predicts ŷ = Σ_h v_h βᵀ K_h Q_hᵀ x_q.

    **Example:**

    ```pycon
    >>> circuits = icl.Separate.init(jr.key(0), dim=4, heads=3, rank=2)
    >>> circuits.K.shape, circuits.Q.shape, circuits.coefficient_rank
    ((3, 4, 2), (3, 4, 2), 6)
    ```
    """

    value: Float[Array, "H I V"]
    K: Float[Array, "H K R"]
    Q: Float[Array, "H D R"]

    def __check_init__(self):
        check_parts(self, self.K.shape[-2], self.value.shape[-1])

    @staticmethod
    def of(
        v: Float[ArrayLike, " H"], K: Float[ArrayLike, "H D R"], Q: Float[ArrayLike, "H D R"]
    ) -> "Separate":
        """Blind circuits with one label, from v_h, K_h and Q_h."""
        return Separate(jnp.asarray(v)[:, None, None], jnp.asarray(K), jnp.asarray(Q))

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: Scheme = "gaussian",
        *,
        blind: bool = True,
    ) -> "Separate":
        """Initial weights of size `scale` for one label, by one of the schemes of
        `models/_initialise.py`. The parts that blind circuits lack start at zero."""
        size = check_start(key, dim, heads, scale, scheme, SCHEMES, rank=rank)
        found = Separate.of(*draw_separate(key, dim, heads, rank, size, scheme))
        return found if blind else found.embed()

    @property
    def dim(self) -> int:
        return self.Q.shape[-2]

    @property
    def blind(self) -> bool:
        return self.K.shape[-2] == self.dim

    @property
    def coefficient_rank(self) -> int:
        # Each head adds one product K_h Q_hᵀ of rank R.
        return self.heads * self.K.shape[-1]

    def kq(self) -> Float[Array, "H T D"]:
        # Padded after the product, which would otherwise multiply zeros.
        blocks = jnp.einsum("har,hbr->hab", self.K, self.Q)
        return pad_keys(blocks, self.labels) if self.blind else blocks

    def embed(self) -> "Separate":
        if not self.blind:
            return self
        return Separate(self.ov(), pad_keys(self.K, self.labels), self.Q)

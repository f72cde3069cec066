"""Circuits with separate Q, K, V and O of any width, as they are trained in arXiv 2503.12734."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ._circuits import AbstractCircuits, check_parts, pad_keys, pad_values
from ._initialise import FULL_SCHEMES, FullScheme, check_start, random_blocks, start_signs

# Up to so many multiplications a product of two matrices is written as a sum: it then becomes part
# of the loop around it, where a call of a matrix routine would take longer than the product.
_SMALL = 4096


class Factored(AbstractCircuits):
    """Key-query K_hᵀQ_h/√E and output-value O_hV_h, with heads of width E.

    **Fields:**

    - `K`, `Q`: over all entries of a token, or over inputs alone if blind. The query token is
      (x_q; 0), so that the columns of Q for labels are idle.
    - `V`: over all entries of a token, or over labels alone if blind.
    - `O`: the rows of the output projection that are read, those of the labels.

    Where the parts that blind circuits lack are zero they stay zero in gradient flow, because no
    label is likelier than its opposite (arXiv 2402.19442).

    **Example:**

    ```pycon
    >>> model = icl.Attention.factored(jr.key(0), dim=5, heads=2)
    >>> model.circuits.K.shape, model.circuits.O.shape, model.activation
    ((2, 6, 6), (2, 1, 6), 'softmax')
    >>> blind = icl.Attention.factored(jr.key(0), dim=5, heads=2, width=3, blind=True)
    >>> blind.circuits.K.shape, blind.blind
    ((2, 3, 5), True)
    ```
    """

    K: Float[Array, "H E K"]
    Q: Float[Array, "H E K"]
    V: Float[Array, "H E V"]
    O: Float[Array, "H I E"]  # noqa: E741

    def __check_init__(self):
        check_parts(self, self.K.shape[-1], self.V.shape[-1])

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        width: int | None = None,
        scale: ScalarLike | None = None,
        scheme: FullScheme = "default",
        *,
        labels: int = 1,
        blind: bool = False,
    ) -> "Factored":
        """Initial weights.

        **Arguments:**

        - `width`: E; by default D + I, the size of a token.
        - `scale`: s; by default 1 for the scheme `"default"`, else 1e-2.
        - `scheme`: `"default"`: every entry is U(−s/√n, s/√n), n inputs of its linear layer: D + I
          for Q, K, V and H·E for O. `"gaussian"`: every entry is N(0, s²). `"small_identity"`:
          all four are s times the identity. `"opposite"`: the same, with −Q and −O in every
          second head.
        """
        # The defaults of PyTorch's linear layers; the other schemes are for small weights.
        token = dim + labels
        width = token if width is None else width
        scale = scale if scale is not None else (1.0 if scheme == "default" else 1e-2)
        counts = {"labels": labels, "width": width}
        size = check_start(key, dim, heads, scale, scheme, FULL_SCHEMES, **counts)
        shapes = [(heads, width, token)] * 3 + [(heads, labels, width)]
        if scheme in ("gaussian", "default"):
            inputs = [token] * 3 + [heads * width]
            blocks = random_blocks(key, shapes, size, scheme, inputs)
        elif width < token:
            raise InputError(
                "width",
                width,
                f'must be at least {token}, the size of a token, for the scheme "{scheme}"',
            )
        else:
            signs = start_signs(heads, scheme, size.dtype)[:, None, None]
            identity = jnp.broadcast_to(jnp.eye(width, token, dtype=size.dtype), shapes[0])
            rows = jnp.eye(labels, width, dim, dtype=size.dtype)
            # A sign on one factor of each product changes the signs of both circuits.
            signed = identity, signs * identity, identity, signs * rows
            blocks = tuple(size * block for block in signed)
        K, Q, V, O = blocks  # noqa: E741
        if blind:
            # Drawn whole, then cut: a key gives the same weights with and without the rest.
            return Factored(K[..., :dim], Q[..., :dim], V[..., dim:], O)
        return Factored(K, Q, V, O)

    @property
    def heads(self) -> int:
        return self.K.shape[-3]

    @property
    def dim(self) -> int:
        return self.K.shape[-1] - (0 if self.blind else self.labels)

    @property
    def labels(self) -> int:
        return self.O.shape[-2]

    @property
    def width(self) -> int:
        """E, the width of keys and values."""
        return self.K.shape[-2]

    @property
    def blind(self) -> bool:
        return self.V.shape[-1] == self.labels

    def ov(self) -> Float[Array, "H I T"]:
        blocks = _product_of_columns(jnp.swapaxes(self.O, 1, 2), self.V)
        return pad_values(blocks, self.dim) if self.blind else blocks

    def kq(self) -> Float[Array, "H T D"]:
        blocks = _product_of_columns(self.K, self.Q[:, :, : self.dim]) / self.width**0.5
        return pad_keys(blocks, self.labels) if self.blind else blocks

    def embed(self) -> "Factored":
        if not self.blind:
            return self
        on_inputs = lambda factor: jnp.pad(factor, ((0, 0), (0, 0), (0, self.labels)))
        return Factored(on_inputs(self.K), on_inputs(self.Q), pad_values(self.V, self.dim), self.O)


def _product_of_columns(
    first: Float[Array, "H E A"], second: Float[Array, "H E B"]
) -> Float[Array, "H A B"]:
    """first_hᵀ second_h, for every head h."""
    if first[0].size * second.shape[2] > _SMALL:
        return jnp.einsum("hea,heb->hab", first, second)
    return jnp.sum(first[:, :, :, None] * second[:, :, None, :], 1)

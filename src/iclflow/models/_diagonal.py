"""Diagonal circuits: a few numbers per head, the form that training ends in (arXiv 2503.12734)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ._circuits import AbstractCircuits, pad_keys, pad_values
from ._initialise import (
    STRUCTURED_SCHEMES,
    StructuredScheme,
    check_start,
    random_blocks,
    start_signs,
)


def as_weights(x: Any) -> Array:
    """Numbers as an array. Arrays keep their type, so that single precision stays what it is;
    Python's numbers get the precision that is switched on."""
    return jnp.asarray(x) if hasattr(x, "dtype") else as_float(x)


def _as_values(mu: Any) -> Array:
    """(H, I), from one number per head where there is one label."""
    mu = as_weights(mu)
    return mu[:, None] if mu.ndim == 1 else mu


class Diagonal(AbstractCircuits):
    """Key-query diag(ω_h) between inputs and output-value diag(μ_h) between labels, blind.

    With one label, softmax head h adds μ_h Σₙ softmaxₙ(ω_h xₙ·x_q) yₙ.

    **Fields:**

    - `omega`: one number per head for all coordinates, or one for each.
    - `mu`: one number per head and label; given as one per head where there is one label.
    - `dim`: D, which a single ω per head does not say.

    **Example:**

    ```pycon
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> icl.risk(task, pair)(pair).round(4)
    Array(0.2432, dtype=float64)
    ```
    """

    omega: Float[Array, " H"] | Float[Array, "H D"] = eqx.field(converter=as_weights)
    mu: Float[Array, "H I"] = eqx.field(converter=_as_values)
    dim: int = eqx.field(static=True)

    def __check_init__(self):
        omega, mu, dim = self.omega, self.mu, self.dim
        if omega.ndim not in (1, 2) or (omega.ndim == 2 and omega.shape[1] != dim):
            raise InputError(
                "omega",
                problem=f"has shape {omega.shape}",
                allowed=f"must be (heads,) or (heads, {dim})",
            )
        if mu.ndim != 2 or mu.shape[0] != omega.shape[0]:
            raise InputError(
                "mu",
                problem=f"has shape {mu.shape} and `omega` has {omega.shape[0]} heads",
                allowed="must be (heads,) or (heads, labels)",
            )

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: StructuredScheme = "gaussian",
        *,
        labels: int = 1,
        per_coordinate: bool = False,
    ) -> "Diagonal":
        """Initial weights of size `scale`.

        **Arguments:**

        - `scheme`: `"gaussian"`: every number is N(0, s²); `"small_identity"`: every ω and μ is
          s; `"opposite"`: both are +s, −s, +s, … from head to head.
        - `per_coordinate`: whether a head has one ω for each coordinate.
        """
        size = check_start(key, dim, heads, scale, scheme, STRUCTURED_SCHEMES, labels=labels)
        shape = (heads, dim) if per_coordinate else (heads,)
        if scheme == "gaussian":
            omega, mu = random_blocks(key, (shape, (heads, labels)), size, scheme, (dim, dim))
        else:
            signs = size * start_signs(heads, scheme, size.dtype)
            mu = jnp.broadcast_to(signs[:, None], (heads, labels))
            omega = jnp.broadcast_to(signs[:, None], shape) if per_coordinate else signs
        return Diagonal(omega, mu, dim)

    @property
    def heads(self) -> int:
        return self.mu.shape[-2]

    @property
    def labels(self) -> int:
        return self.mu.shape[-1]

    @property
    def blind(self) -> bool:
        return True

    @property
    def per_coordinate(self) -> bool:
        """Whether a head has one ω for each coordinate."""
        # By comparison with μ, so that it holds for a stack too, whose weights have one more axis.
        return self.omega.ndim == self.mu.ndim

    @property
    def coefficient_basis(self) -> Float[Array, "K D D"]:
        one = jnp.eye(self.dim, dtype=self.omega.dtype)
        return diagonal_blocks(one) if self.per_coordinate else one[None]

    def ov(self) -> Float[Array, "H I T"]:
        return pad_values(diagonal_blocks(self.mu), self.dim)

    def kq(self) -> Float[Array, "H T D"]:
        omega = self.omega if self.per_coordinate else self.omega[:, None]
        each = jnp.broadcast_to(omega, (self.heads, self.dim))
        return pad_keys(diagonal_blocks(each), self.labels)


def diagonal_blocks(entries: Float[Array, "H A"]) -> Float[Array, "H A A"]:
    """A diagonal matrix per head."""
    return entries[:, :, None] * jnp.eye(entries.shape[1], dtype=entries.dtype)

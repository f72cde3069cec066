"""Structured attention: a few numbers a head, the form that training ends in (arXiv 2503.12734)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..precision import as_float
from ..tasks import check_key
from ._attention import AbstractAttention, Activation
from ._base import Normaliser
from ._initialise import (
    STRUCTURED_SCHEMES,
    StructuredScheme,
    check_sizes,
    random_blocks,
    start_signs,
)


def as_weights(x) -> Array:
    """Numbers as an array; one that is an array already keeps its type."""
    return jnp.asarray(x) if hasattr(x, "dtype") else as_float(x)


def check_structured(omega: Array, mu: Array, dim: int, axes: int) -> None:
    """Refuses numbers that are not one row a head; `axes` is how many μ must have."""
    if omega.ndim not in (1, 2) or (omega.ndim == 2 and omega.shape[1] != dim):
        raise ValueError(f"`omega` has shape {omega.shape}: must be (heads,) or (heads, {dim}).")
    if mu.ndim != axes or mu.shape[0] != omega.shape[0]:
        shape = "(heads,)" if axes == 1 else "(heads, labels)"
        raise ValueError(
            f"`mu` has shape {mu.shape} and `omega` has {omega.shape[0]} heads: must be {shape}."
        )


class StructuredAttention(AbstractAttention):
    """Key-query diag(ω_h) and output-value (0; μ_h): head h adds μ_h Σₙ softmaxₙ(ω_h xₙ·x_q) yₙ.

    A head has one number ω_h for all coordinates, or one number for each. `dim` says what one
    number cannot: on how many coordinates the identity acts.
    """

    omega: Float[Array, " H"] | Float[Array, "H D"] = eqx.field(converter=as_weights)
    mu: Float[Array, " H"] = eqx.field(converter=as_weights)
    dim: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_structured(self.omega, self.mu, self.dim, axes=1)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: StructuredScheme = "gaussian",
        per_coordinate: bool = False,
        **options,
    ) -> "StructuredAttention":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `scheme`: `"gaussian"`: every number is N(0, s²); `"small_identity"`: every ω and μ is
          s; `"opposite"`: both are +s, −s, +s, … from head to head.
        - `per_coordinate`: whether a head has one ω for each coordinate.
        """
        check_key(key)
        check_sizes(dim, heads, scale, scheme, schemes=STRUCTURED_SCHEMES)
        size = as_float(scale)
        shape = (heads, dim) if per_coordinate else (heads,)
        if scheme == "gaussian":
            omega, mu = random_blocks(key, (shape, (heads,)), size, scheme, (dim, dim))
        else:
            mu = size * start_signs(heads, scheme, size.dtype)
            omega = jnp.broadcast_to(mu[:, None], shape) if per_coordinate else mu
        return StructuredAttention(omega=omega, mu=mu, dim=dim, **options)

    @property
    def reduced(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H T"]:
        return jnp.pad(self.mu[:, None], ((0, 0), (self.dim, 0)))

    def kq(self) -> Float[Array, "H T D"]:
        return jnp.pad(diagonal_blocks(self.omega, self.dim), ((0, 0), (0, 1), (0, 0)))


def diagonal_blocks(
    omega: Float[Array, " H"] | Float[Array, "H D"], dim: int
) -> Float[Array, "H D D"]:
    """diag(ω_h) of each head, from one number a head or one for each coordinate."""
    each = omega[:, :, None] if omega.ndim == 2 else omega[:, None, None]
    return each * jnp.eye(dim, dtype=omega.dtype)

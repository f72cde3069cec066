"""Risks that are a quadratic form of a model's coefficients: L = θᵀMθ − 2mᵀθ + c₀."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..limits import feature_count
from ..models import AbstractModel, Attention, Merged, Separate, name_of
from ..runtime.precision import as_float
from ._base import AbstractCoefficientRisk

# Singular values of a factor below this share of the largest count as zero: rounding leaves 1e-16,
# and those that matter are above 1e-8.
_RANK_TOLERANCE = 1e-10


class FeatureLayout(NamedTuple):
    """Which features a model is linear in: ŷ = Σ_p Σ_c θ[p, c] G_p x_q,c over pairs p = (a, b).

    The cubic form has the D(D+1)(D+2)/2 distinct features, pairs a ≤ b of tokens z = (x; y).
    The bilinear form has the D² with b the label: G_(a,y) = β_a. Packed coefficients are one
    vector, row after row of θ[p, c]; a pair a < b carries θ_abc + θ_bac, since G is symmetric.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2, blind=False)
    >>> layout = icl.risks.FeatureLayout.of(model)
    >>> packed = layout.pack(model.coefficients())
    >>> layout.size, jnp.allclose(layout.pack(layout.unpack(packed)), packed).item()
    (30, True)
    ```
    """

    form: Literal["bilinear", "cubic"]
    dim: int
    normaliser: str = "context"
    self_attention: bool = True

    @staticmethod
    def of(model: AbstractModel) -> "FeatureLayout":
        """The layout of a model whose prediction is linear in known features."""
        if model.form == "general":
            raise TypeError(
                f"{name_of(model)} is not linear in known features: its risk is no quadratic form."
            )
        return _layout(model, jax.eval_shape(model.coefficients).shape)

    @property
    def coefficient_shape(self) -> tuple[int, ...]:
        """The shape of `coefficients()` of a model."""
        tokens = self.dim + 1
        if self.form == "bilinear":
            return (self.dim, self.dim)
        return (tokens, tokens, self.dim)

    @property
    def size(self) -> int:
        """F, the number of features."""
        return feature_count(self.form, self.dim)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Token indices a and b of each pair, in packing order."""
        if self.form == "bilinear":
            return np.arange(self.dim), np.full(self.dim, self.dim)
        return np.triu_indices(self.dim + 1)

    def pack(self, coefficients: Array) -> Float[Array, " F"]:
        """Coefficients as one vector without redundancy."""
        if self.form == "bilinear":
            return coefficients.reshape(-1)
        first, second = self.pairs()
        tokens = self.dim + 1
        rows = coefficients.reshape(tokens**2, self.dim)
        # A pair (a, a) occurs in the tensor once, every other pair twice.
        mirrored = np.where(first == second, 0.0, 1.0).astype(rows.dtype)[:, None]
        packed = rows[first * tokens + second] + mirrored * rows[second * tokens + first]
        return packed.reshape(-1)

    def unpack(self, packed: Float[Array, " F"]) -> Array:
        """The coefficients, symmetric in (a, b), that `pack` turns into `packed`."""
        if self.form == "bilinear":
            return packed.reshape(self.coefficient_shape)
        # Half for (a, b) and half for (b, a): `pack` adds them up again.
        halves = np.where(np.eye(self.dim + 1) > 0, 1.0, 0.5)[..., None]
        return self.unpack_slope(packed) * halves.astype(packed.dtype)

    def unpack_slope(self, slope: Float[Array, " F"]) -> Array:
        """The transpose of `pack`: takes derivatives by packed coefficients to those by
        coefficients."""
        if self.form == "bilinear":
            return slope.reshape(self.coefficient_shape)
        first, second = self.pairs()
        position = np.zeros((self.dim + 1, self.dim + 1), int)
        position[first, second] = position[second, first] = np.arange(len(first))
        return slope.reshape(-1, self.dim)[position]


class QuadraticRisk(AbstractCoefficientRisk):
    """The mean squared error of every model of one layout, from the moments of its features.

    The cost depends neither on the number of sequences behind the moments nor on their length. The
    loss is ‖Rθ − r‖², which stays accurate where θᵀMθ − 2mᵀθ + c₀ would cancel; a slope without the
    loss takes one product with M.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> risk = icl.risk(task, model, "dataset", sequences=500)
    >>> best = risk.minimiser()
    >>> jnp.allclose(risk.of_coefficients(best), risk.minimum).item()
    True
    ```
    """

    factor: Float[Array, "rows F"]
    target: Float[Array, " rows"]
    gram: Float[Array, "F F"]
    moment: Float[Array, " F"]
    minimum: Float[Array, ""]
    layout: FeatureLayout = eqx.field(static=True)
    kind: str = eqx.field(static=True)  # pyright: ignore

    @staticmethod
    def from_factor(triangle: np.ndarray, layout: FeatureLayout, kind: str) -> "QuadraticRisk":
        """The risk L = ‖triangle @ (θ; −1)‖².

        **Arguments:**

        - `triangle`: any matrix with F + 1 columns whose Gram matrix is [[M, m], [mᵀ, c₀]].
        - `layout`: of the features.
        - `kind`: `"exact"` or `"dataset"`, the origin of the moments.
        """
        factor, target = triangle[:, :-1], triangle[:, -1]
        best = _least_squares(factor, target)
        return QuadraticRisk(
            factor=as_float(factor),
            target=as_float(target),
            gram=as_float(factor.T @ factor),
            moment=as_float(factor.T @ target),
            minimum=as_float(np.sum((factor @ best - target) ** 2)),
            layout=layout,
            kind=kind,
        )

    def of_coefficients(self, coefficients: Array) -> Float[Array, ""]:
        residual = self.factor @ self.layout.pack(coefficients) - self.target
        return residual @ residual

    def slope(self, coefficients: Array) -> Array:
        slope = 2 * (self.gram @ self.layout.pack(coefficients) - self.moment)
        return self.layout.unpack_slope(slope).astype(coefficients.dtype)

    def minimiser(self) -> Array:
        """The coefficients of the smallest risk; of several, the packed ones of least norm."""
        best = _least_squares(np.asarray(self.factor), np.asarray(self.target))
        return self.layout.unpack(as_float(best))

    def floor(self, model: AbstractModel) -> Float[Array, ""] | None:
        self._check(model, jax.eval_shape(model.coefficients).shape)
        basis = model.coefficient_basis
        if basis is not None:
            return self._floor_of_sums(basis)
        return self.minimum if _reaches_everything(model, self.layout) else None

    def _floor_of_sums(self, basis: Float[Array, "K D D"]) -> Float[Array, ""]:
        """The minimum over all sums A = Σ_k z_k B_k."""
        columns = self.factor @ basis.reshape(len(basis), -1).T.astype(self.factor.dtype)
        best = jnp.linalg.lstsq(columns, self.target, rcond=_RANK_TOLERANCE)[0]
        residual = columns @ best - self.target
        return residual @ residual

    def value_and_gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None):
        # The slope is Rᵀ(Rθ − r): with the residual of the loss, two products make both.
        coefficients, pull_back = self.pull_back(model)
        residual = self.factor @ self.layout.pack(coefficients) - self.target
        slope = self.layout.unpack_slope(2 * (residual @ self.factor)).astype(coefficients.dtype)
        return residual @ residual, pull_back(slope)[0]

    def coefficients_of(self, model: AbstractModel) -> Array:
        if model.form == "general":
            FeatureLayout.of(model)
        coefficients = model.coefficients()
        self._check(model, coefficients.shape)
        return coefficients

    def _check(self, model: AbstractModel, shape: tuple[int, ...]) -> None:
        found = _layout(model, shape)
        if found != self.layout:
            raise ValueError(
                f"This risk holds moments for {_describe(self.layout)}; {name_of(model)} "
                f"has {_describe(found)}. Make a risk for this model."
            )


def _layout(model: AbstractModel, shape: tuple[int, ...]) -> FeatureLayout:
    # A query token has no label, so that attention to it adds nothing to a bilinear form.
    attends = model.form == "bilinear" or bool(getattr(model, "self_attention", True))
    normaliser = getattr(model, "normaliser", "context")
    layout = FeatureLayout(model.form, shape[-1], normaliser, attends)  # pyright: ignore
    if shape != layout.coefficient_shape:
        raise ValueError(
            f"The {model.form} coefficients of {name_of(model)} have shape {shape}: must "
            f"have shape {layout.coefficient_shape}."
        )
    return layout


def _describe(layout: FeatureLayout) -> str:
    query = "" if layout.form == "bilinear" else f", `self_attention` = {layout.self_attention}"
    return (
        f'the {layout.form} form, `dim` = {layout.dim}, `normaliser` = "{layout.normaliser}"{query}'
    )


def _reaches_everything(model: AbstractModel, layout: FeatureLayout) -> bool:
    """Whether weights of this shape can make every coefficient tensor."""
    if layout.form == "bilinear":
        return model.coefficient_rank is None or model.coefficient_rank >= layout.dim
    circuits = model.circuits if isinstance(model, Attention) else None
    if isinstance(circuits, Merged):
        return circuits.heads >= layout.dim + 1
    if isinstance(circuits, Separate):
        # Each of the D + 1 slices θ[a] is a matrix of rank up to D, and a head adds R to its rank.
        rank = circuits.K.shape[-1]
        return circuits.heads >= (layout.dim + 1) * -(-layout.dim // rank)
    return False


def _least_squares(factor: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(factor, target, rcond=_RANK_TOLERANCE)[0]

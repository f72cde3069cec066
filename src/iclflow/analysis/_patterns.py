"""The patterns of trained heads: what each attends to, what it reads, which role it plays."""

import dataclasses
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float

from ..models import AbstractModel

Role = Literal["positive", "negative", "opposing", "dummy"]
# A head that adds less than this share of what the strongest adds is a dummy.
DUMMY_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Head:
    """One head on one label.

    With W the D × D block of its key-query circuit and (u; μ) its output-value row:

    - `omega`: ω = tr W / D, the strength of its attention.
    - `mu`: μ, what it reads from a label.
    - `diagonal_share`: ‖diag W‖ / ‖key-query circuit‖, the rows that look at labels included.
    - `homogeneity`: 1 − (spread of diag W) / |ω|, not below 0: 1 for a multiple of the identity.
    - `last_entry_share`: |μ| / ‖(u; μ)‖.
    - `role`: see `head_roles`.
    """

    omega: float
    mu: float
    diagonal_share: float
    homogeneity: float
    last_entry_share: float
    role: Role


@dataclasses.dataclass(frozen=True)
class Patterns:
    """The heads of a model, and what they do together.

    **Fields:**

    - `zero_sum`: |Σ μ_h| / Σ |μ_h|; 0 when the output-value entries cancel.
    - `magnitude_spread`: (largest − smallest |ω|) / mean |ω| over heads that are no dummies.
    - `pair_balance`: |Σ₊ μωₕ − Σ₋ μωₕ| / Σ |μωₕ|: 0 when positive and negative heads contribute
      equally to the step, 1 when only one sign is there.
    - `step_size`: η = Σ μ_h ω_h, the step of gradient descent that small weights amount to.
    - `diagonal_share`, `last_entry_share`: as for one head, over all heads together.
    """

    heads: tuple[Head, ...]
    zero_sum: float
    magnitude_spread: float
    pair_balance: float
    step_size: float
    diagonal_share: float
    last_entry_share: float

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(head.role for head in self.heads)

    def count(self, role: Role) -> int:
        """How many heads play this role."""
        return self.roles.count(role)


def patterns(
    model: AbstractModel,
    label: int = 0,
    basis: Float[np.ndarray, "D D"] | None = None,
    dummy_share: float = DUMMY_SHARE,
) -> Patterns:
    """Measures the circuits of a model.

    **Arguments:**

    - `model`: any attention layer with circuits `kq()` and `ov()`.
    - `label`: which label is predicted, for models of several tasks.
    - `basis`: the columns are the directions in which "diagonal" is meant: the eigenvectors of
      an anisotropic covariance. By default the coordinates.
    - `dummy_share`: see `head_roles`.
    """
    attention, rows = _circuits(model, label)
    dim = attention.shape[2]
    labels = rows.shape[1] - dim
    blocks = attention[:, :dim]
    if basis is not None:
        blocks = np.asarray(basis).T @ blocks @ np.asarray(basis)
    diagonals = np.diagonal(blocks, axis1=1, axis2=2)
    omega, mu = diagonals.mean(1), rows[:, dim + label if labels > 1 else dim]
    roles = head_roles(omega, mu, dummy_share)
    heads = tuple(
        Head(
            omega=float(omega[h]),
            mu=float(mu[h]),
            diagonal_share=_share(diagonals[h], attention[h]),
            homogeneity=_homogeneity(diagonals[h]),
            last_entry_share=_share(mu[h], rows[h]),
            role=roles[h],
        )
        for h in range(len(mu))
    )
    active = np.abs(omega[[role != "dummy" for role in roles]])
    product = mu * omega
    return Patterns(
        heads=heads,
        zero_sum=_ratio(abs(mu.sum()), np.abs(mu).sum()),
        magnitude_spread=_ratio(np.ptp(active), active.mean()) if active.size else 0.0,
        pair_balance=_ratio(abs(np.sum(product * np.sign(omega))), np.abs(product).sum()),
        step_size=float(product.sum()),
        diagonal_share=_share(diagonals, attention),
        last_entry_share=_share(mu, rows),
    )


def head_roles(
    omega: Float[np.ndarray, " H"], mu: Float[np.ndarray, " H"], dummy_share: float = DUMMY_SHARE
) -> tuple[Role, ...]:
    """The role of each head, from its attention ω and its output μ.

    To first order head h adds μ_h ω_h to the step η = Σ μω. A head is a **dummy** if |μ_h ω_h| is
    below `dummy_share` of the largest; otherwise **positive** if ω > 0 and μ > 0, **negative** if
    ω < 0 and μ < 0, and **opposing** if their signs differ, so that it works against the others.
    """
    strengths = np.abs(np.asarray(mu) * np.asarray(omega))
    largest = strengths.max(initial=0.0)

    def role(strength: float, w: float, m: float) -> Role:
        if strength <= dummy_share * largest:
            return "dummy"
        if (w > 0) != (m > 0):
            return "opposing"
        return "positive" if w > 0 else "negative"

    return tuple(role(s, w, m) for s, w, m in zip(strengths, omega, mu))


def _circuits(model: AbstractModel, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Key-query circuits (H, T, D) and the output-value rows (H, T) of one label."""
    source: Any = model
    if not (hasattr(source, "kq") and hasattr(source, "ov")):
        raise TypeError(f"{type(model).__name__} has no circuits `kq()` and `ov()`.")
    attention, rows = (np.asarray(x) for x in jax.device_get((source.kq(), source.ov())))
    if rows.ndim == 3:
        if not 0 <= label < rows.shape[1]:
            raise ValueError(f"`label` = {label}: must lie between 0 and {rows.shape[1] - 1}.")
        rows = rows[:, label]
    return attention, rows


def _share(part, whole) -> float:
    return _ratio(np.linalg.norm(np.ravel(part)), np.linalg.norm(np.ravel(whole)))


def _homogeneity(diagonal: np.ndarray) -> float:
    mean = abs(diagonal.mean())
    return max(0.0, 1.0 - float(diagonal.std() / mean)) if mean > 0 else 0.0


def _ratio(part, whole) -> float:
    return float(part / whole) if whole > 0 else 0.0

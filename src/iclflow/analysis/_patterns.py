"""The patterns of trained heads: what each attends to, what it reads, which role it plays."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from ..circuits import DUMMY_SHARE, Role, circuits, head_roles
from ..models import AbstractModel
from ..tasks import AbstractTask

# With less of the key-query circuit than this on its diagonal, one number ω does not describe it.
# (Matrices without any structure have 1/√(D + 1).)
_LEAST_DIAGONAL = 0.5


@dataclasses.dataclass(frozen=True)
class Head:
    """One head on one label.

    With W the D × D block of its key-query circuit and (u; μ) its output-value row:

    - `omega`: ω, the mean of diag W over the inputs that the label depends on: the strength of
      its attention.
    - `mu`: μ, what it reads from the label.
    - `diagonal_share`: ‖diag W‖ / ‖key-query circuit‖, the rows that look at labels included.
    - `homogeneity`: 1 − (spread of diag W over those inputs) / |ω|, not below 0: 1 for a multiple
      of the identity.
    - `last_entry_share`: |μ| / ‖(u; μ)‖.
    - `role`: see `head_roles`.
    """

    omega: float
    mu: float
    diagonal_share: float
    homogeneity: float
    last_entry_share: float
    role: Role

    @property
    def structured(self) -> bool:
        """Whether ω describes what the head attends to: half of the norm of its key-query circuit
        lies on the diagonal, and the diagonal varies by less than its mean."""
        return bool(_is_described(self.diagonal_share, self.homogeneity))

    @property
    def name(self) -> str:
        """The role, or "unstructured" where the ω that it is read off says too little."""
        return self.role if self.structured or self.role == "dummy" else "unstructured"


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
    task: AbstractTask | None = None,
) -> Patterns:
    """Measures the circuits of a model.

    **Arguments:**

    - `model`: any attention layer with circuits `kq()` and `ov()`.
    - `label`: which label is predicted, for models of several tasks.
    - `basis`: the columns are the directions in which "diagonal" is meant: the eigenvectors of
      an anisotropic covariance. By default those of the task, or the coordinates.
    - `dummy_share`: see `head_roles`; of the strongest head on any label.
    - `task`: says which inputs each label depends on, and which rotations to undo; see
      `circuits`. Without it ω is the mean over all inputs.
    """
    found = circuits(model, task, basis)
    labels = found.values.shape[1]
    if not 0 <= label < labels:
        raise ValueError(f"`label` = {label}: must lie between 0 and {labels - 1}.")
    attention, rows, diagonals = found.attention, found.values[:, label], found.diagonals
    read = diagonals[:, found.masks[label] > 0]
    omega, mu = found.omega[:, label], found.mu[:, label]
    roles = head_roles(omega, mu, dummy_share, float(found.strength.max(initial=0.0)))
    heads = tuple(
        Head(
            omega=float(omega[h]),
            mu=float(mu[h]),
            diagonal_share=_share(diagonals[h], attention[h]),
            homogeneity=_homogeneity(read[h]),
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


def is_structured(attention: Float[np.ndarray, "*batch T D"]) -> Bool[np.ndarray, "*batch"]:
    """Whether ω describes what each head attends to; see `Head.structured`."""
    diagonals = np.diagonal(attention[..., : attention.shape[-1], :], axis1=-2, axis2=-1)
    whole, mean = np.linalg.norm(attention, axis=(-2, -1)), np.abs(diagonals.mean(-1))
    share = np.linalg.norm(diagonals, axis=-1) / np.where(whole > 0, whole, 1.0)
    return _is_described(share, (mean > 0) * (mean - diagonals.std(-1)))


def _is_described(diagonal_share, homogeneity):
    """From the two shares of a head, or from numbers with the sign of the second."""
    return (diagonal_share >= _LEAST_DIAGONAL) & (homogeneity > 0)


def _share(part, whole) -> float:
    return _ratio(np.linalg.norm(np.ravel(part)), np.linalg.norm(np.ravel(whole)))


def _homogeneity(diagonal: np.ndarray) -> float:
    mean = abs(diagonal.mean())
    return max(0.0, 1.0 - float(diagonal.std() / mean)) if mean > 0 else 0.0


def _ratio(part, whole) -> float:
    return float(part / whole) if whole > 0 else 0.0

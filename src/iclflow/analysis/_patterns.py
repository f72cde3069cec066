"""The patterns of trained heads: what each attends to, what it reads, and its role."""

import dataclasses

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from ..circuits import DUMMY_SHARE, Circuits, Role, circuits, head_roles
from ..errors import InputError
from ..models import AbstractModel
from ..tasks import AbstractTask
from ._heads import diagonal_shares, label_shares, pair_balance, ratio, zero_sum

# With a smaller share of the key-query circuit on its diagonal, one number ω does not describe it.
# (A matrix without structure has 1/√(D + 1).)
_LEAST_DIAGONAL = 0.5


@dataclasses.dataclass(frozen=True)
class Head:
    """One head on one label.

    With W the D × D block of its key-query circuit and (u; μ) its output-value row:

    - `omega`: ω, the mean of diag W over the inputs that the label depends on: the strength of
      its attention.
    - `mu`: μ, what it reads from the label.
    - `diagonal_share`: ‖diag W‖ / ‖key-query circuit‖, including the rows on labels.
    - `homogeneity`: 1 − (spread of diag W over those inputs) / |ω|, not below 0: 1 for a multiple
      of the identity.
    - `last_entry_share`: |μ| / ‖(u; μ)‖.
    - `role`: see `head_roles`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> head = icl.patterns(pair).heads[0]
    >>> head.role, round(head.omega, 2), round(head.mu, 2), head.structured
    ('positive', 0.13, 3.45, True)
    ```
    """

    omega: float
    mu: float
    diagonal_share: float
    homogeneity: float
    last_entry_share: float
    role: Role

    @property
    def structured(self) -> bool:
        """Whether ω describes what the head attends to: at least half of the norm of its key-query
        circuit is on the diagonal, and the diagonal varies by less than its mean."""
        return bool(_is_described(self.diagonal_share, self.homogeneity))

    @property
    def name(self) -> str:
        """The role, or "unstructured" if ω does not describe what the head attends to."""
        return self.role if self.structured or self.role == "dummy" else "unstructured"


@dataclasses.dataclass(frozen=True)
class Patterns:
    """The heads of a model, and what they do together.

    **Fields:**

    - `zero_sum`: |Σ μ_h| / Σ |μ_h|; 0 when the output-value entries cancel.
    - `magnitude_spread`: (largest − smallest |ω|) / mean |ω| over heads that are not dummies.
    - `pair_balance`: |Σ₊ μωₕ − Σ₋ μωₕ| / Σ |μωₕ|: 0 when positive and negative heads contribute
      equally to the step, 1 when only one sign is there.
    - `step_size`: η = Σ μ_h ω_h, the step of gradient descent that small weights take.
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

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.patterns(pair, task=task)
    >>> found.roles, round(found.step_size, 3), found.zero_sum
    (('positive', 'negative'), 0.897, 0.0)
    ```
    """
    found = circuits(model, task, basis)
    labels = found.values.shape[1]
    if not 0 <= label < labels:
        raise InputError("label", label, f"must lie between 0 and {labels - 1}")
    omega, mu, read = found.omega[:, label], found.mu[:, label], found.masks[label] > 0
    roles = head_roles(omega, mu, dummy_share, float(found.strength.max(initial=0.0)))
    measures = {
        "omega": omega,
        "mu": mu,
        "diagonal_share": diagonal_shares(found),
        "homogeneity": _homogeneity(found.diagonals[:, read]),
        "last_entry_share": label_shares(found, label),
    }
    heads = [
        Head(**{name: float(values[h]) for name, values in measures.items()}, role=role)
        for h, role in enumerate(roles)
    ]
    active = np.abs(omega[[role != "dummy" for role in roles]])
    return Patterns(
        heads=tuple(heads),
        zero_sum=float(zero_sum(mu)),
        magnitude_spread=float(ratio(np.ptp(active), active.mean())) if active.size else 0.0,
        pair_balance=float(pair_balance(omega, mu)),
        step_size=float((mu * omega).sum()),
        diagonal_share=_share(found.diagonals, found.attention),
        last_entry_share=_share(mu, found.values[:, label]),
    )


def is_structured(found: Circuits) -> Bool[np.ndarray, "*batch"]:
    """Whether ω describes what each head attends to; see `Head.structured`."""
    return np.asarray(_is_described(diagonal_shares(found), _homogeneity(found.diagonals)))


def _is_described(diagonal_share: ArrayLike, homogeneity: ArrayLike) -> np.ndarray | np.bool_:
    return (np.asarray(diagonal_share) >= _LEAST_DIAGONAL) & (np.asarray(homogeneity) > 0)


def _homogeneity(diagonals: Float[np.ndarray, "*batch D"]) -> Float[np.ndarray, "*batch"]:
    mean = np.abs(diagonals.mean(-1))
    spread = diagonals.std(-1) / np.where(mean > 0, mean, 1.0)
    return np.where(mean > 0, np.maximum(0.0, 1.0 - spread), 0.0)


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    """The norm of a part of all heads as a share of that of the whole."""
    return float(ratio(np.linalg.norm(np.ravel(part)), np.linalg.norm(np.ravel(whole))))

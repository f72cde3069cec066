"""Which tasks a head works for: one, or several at once."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ..circuits import DUMMY_SHARE, circuits
from ..models import AbstractModel
from ..tasks import MultiTaskRegression
from ._heads import ratio


@dataclasses.dataclass(frozen=True)
class Superposition:
    """How the heads are divided among the tasks.

    **Fields:**

    - `strength`: s_hi = |μ_hi ω̄_hi|, what head h adds to the step of task i, with ω̄_hi the mean of
      the diagonal of its key-query block over the coordinates that the task reads.
    - `shares`: s_hi / Σ_i s_hi, the tasks that a head works for.
    - `tasks_per_head`: (Σ_i s_hi)² / Σ_i s_hi², from 1 (one task) to I (all alike).
    - `owners`: the heads' main tasks, −1 for dummies.
    """

    strength: Float[np.ndarray, "H I"]
    shares: Float[np.ndarray, "H I"]
    tasks_per_head: Float[np.ndarray, " H"]
    owners: tuple[int, ...]

    @property
    def superposed(self) -> int:
        """How many heads give their second task more than a quarter of what the first gets."""
        ordered = np.sort(self.strength, axis=1)[:, ::-1]
        if ordered.shape[1] < 2:
            return 0
        active = np.asarray(self.owners) >= 0
        return int(np.sum(active & (ordered[:, 1] > 0.25 * ordered[:, 0])))


def superposition(
    model: AbstractModel, task: MultiTaskRegression, dummy_share: float = DUMMY_SHARE
) -> Superposition:
    """Measures which tasks each head of a multi-task model works for.

    **Arguments:**

    - `model`: a model of several labels, with circuits `kq()` and `ov()`.
    - `task`: says which coordinates each label depends on, and in which rotation.
    - `dummy_share`: a head whose strongest task gets less than this share of what that of the
      strongest head gets is a dummy.
    """
    strength = circuits(model, task).strength
    total = strength.sum(1)
    strongest = strength.max(1)
    active = strongest > dummy_share * strongest.max()
    return Superposition(
        strength=strength,
        shares=ratio(strength, total[:, None]),
        tasks_per_head=ratio(total**2, np.sum(strength**2, 1)),
        owners=tuple(int(i) if on else -1 for i, on in zip(strength.argmax(1), active)),
    )

"""How a gradient flow is integrated, with every option checked."""

import dataclasses
from collections.abc import Callable

import numpy as np

from ._progress import Status
from ._save import Drops, SavePoints

SOLVERS = ("auto", "explicit", "implicit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """How a gradient flow is integrated.

    **Fields:**

    - `end`: the last moment. By default the run ends when the loss has come within `tolerance`
      (of the whole way down) of the smallest value that the weights can reach, if the risk
      knows it.
    - `save`: which moments to keep: `Drops`, `Linear`, `LogSpaced` or `Explicit`.
    - `solver`: `"explicit"` (Tsit5), `"implicit"` (Kvaerno5), or `"auto"`: explicit, and
      implicit once a long plateau has shown that stability limits the step.
    - `rtol`, `atol`: of the solver; `atol` is by default 1e-9 of the size of the initial
      weights (but at least 1e-14), since on a plateau the small weights are what matters.
    - `max_steps`: gives up after so many attempted steps.
    - `progress`: show a bar (default: on a terminal, after two seconds).
    - `callback`: called between chunks; the run is cancelled when it returns False.
    """

    end: float | None = None
    save: SavePoints = Drops()
    solver: str = "auto"
    rtol: float = 1e-9
    atol: float | None = None
    tolerance: float = 1e-6
    max_steps: int = 2_000_000
    progress: bool | None = None
    callback: Callable[[Status], bool | None] | None = None

    def __post_init__(self):
        if self.end is not None and not (np.isfinite(self.end) and self.end > 0):
            raise ValueError(f"`end` = {self.end}: must be finite and positive.")
        if self.solver not in SOLVERS:
            raise ValueError(
                f'`solver` = {self.solver!r}: must be "auto", "explicit" or "implicit".'
            )
        for name in ("rtol", "tolerance"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"`{name}` = {getattr(self, name)}: must lie between 0 and 1.")
        if self.atol is not None and not 0 < self.atol < 1:
            raise ValueError(f"`atol` = {self.atol}: must lie between 0 and 1.")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` = {self.max_steps}: must be at least 1.")

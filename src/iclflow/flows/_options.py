"""How a gradient flow is integrated, with every option checked."""

import dataclasses
import difflib
from collections.abc import Callable

import numpy as np

from ..models import AbstractModel
from ..precision import check_made_in_float64
from ..risks import AbstractRisk
from ..tasks import is_real
from ._checkpoint import Checkpoint
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
    - `gradient_tolerance`: the run also ends, as stationary, where ‖∂L/∂W‖ is no larger. It
      takes the place of `end` for risks whose smallest value is not known. (Around a saddle
      gradients are small, too.)
    - `solver`: `"explicit"` (Tsit5), `"implicit"` (Rodas5P), or `"auto"`: explicit, and
      implicit once a long plateau has shown that stability limits the step.
    - `rtol`, `atol`: of the solver; `atol` is by default 1e-9 of the size of the initial
      weights, rounded down to a power of ten, since on a plateau the small weights are what
      matters; at least 1e-24, and 1e-14 for weights that are all zero.
    - `max_steps`: gives up after so many attempted steps.
    - `at_once`: how many runs of an ensemble go on side by side, the others waiting for one of
      them to be over (default: 64, on a GPU 4096).
    - `progress`: show a bar (default: on a terminal, after two seconds).
    - `callback`: called between chunks; the run is cancelled when it returns False.
    - `checkpoint`: a `Checkpoint`: where the run stands is written there between chunks, and a run
      that finds itself there goes on from where it stood.
    """

    end: float | None = None
    gradient_tolerance: float | None = None
    save: SavePoints = Drops()
    solver: str = "auto"
    rtol: float = 1e-9
    atol: float | None = None
    tolerance: float = 1e-6
    max_steps: int = 2_000_000
    at_once: int | None = None
    progress: bool | None = None
    callback: Callable[[Status], bool | None] | None = None
    checkpoint: Checkpoint | None = None

    def __post_init__(self):
        for name in ("end", "gradient_tolerance", "rtol", "atol", "tolerance", "max_steps"):
            value = getattr(self, name)
            if value is not None and not is_real(value):
                raise ValueError(f"`{name}` = {value!r}: must be a number.")
        for name in ("end", "gradient_tolerance"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` = {value}: must be finite and positive.")
        check_parts(None, self.checkpoint)
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
        if self.at_once is not None and not (isinstance(self.at_once, int) and self.at_once > 0):
            raise ValueError(f"`at_once` = {self.at_once}: must be a whole number from 1 up.")


def flow_options(**options) -> FlowOptions:
    """The options of a gradient flow; one that does not exist is named beside those that do."""
    known = [field.name for field in dataclasses.fields(FlowOptions)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`? " if close else ""
            names = ", ".join(f"`{each}`" for each in known)
            raise TypeError(
                f"`{name}` is not an option of gradient flow: {hint}The options are {names}."
            )
    return FlowOptions(**options)


def check_parts(monitor, checkpoint) -> None:
    """Refuses what is no risk to record, and no place to write how far a run is."""
    if monitor is not None and not isinstance(monitor, AbstractRisk):
        raise TypeError(f"`monitor` = {monitor!r}: must be a risk, such as `risk(task, model)`.")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"`checkpoint` = {checkpoint!r}: must be a `Checkpoint(path)`.")


def check_model_and_risk(model, risk) -> None:
    """Refuses what is no model or no risk, and one in the other's place."""
    if isinstance(model, AbstractRisk) and isinstance(risk, AbstractModel):
        raise TypeError("`model` and `risk` are swapped: the model comes first.")
    for name, value, kind in (("model", model, AbstractModel), ("risk", risk, AbstractRisk)):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` is of type {type(value).__name__}: must be a {name}.")
    check_made_in_float64(model=model)

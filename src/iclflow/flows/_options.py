"""How a gradient flow is integrated, with every option checked."""

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ..limits import FLOW_LANES
from ..models import AbstractModel
from ..risks import AbstractRisk
from ..runtime.precision import check_made_in_float64
from ..tasks import is_real
from ._checkpoint import Checkpoint
from ._progress import Status
from ._save import SaveAtDrops, SavePoints

# Runs of an ensemble side by side on a GPU, which hides its latency behind many of them.
_LANES_OF_CARD = 4096
# Weights that start at nothing have no size of their own to take a share of: then that of learned
# ones counts, which is of order one and known to 1e-16.
_ATOL_FROM_ZERO = 1e-14
# The share of the initial weights that a step may be wrong by, and the least it may come to:
# beyond, squares of errors would underflow.
_ATOL_SHARE = 1e-9
_SMALLEST_ATOL = 1e-24
SOLVERS = ("auto", "explicit", "implicit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """How a gradient flow is integrated.

    **Fields:**

    - `end`: the last moment. By default the run ends when the loss has come within `tolerance`
      (of the whole way down) of the smallest value that the weights can reach, if the risk
      knows it.
    - `save`: which moments to keep: `SaveAtDrops`, `SaveEvenly`, `SaveLogSpaced` or `SaveAtTimes`.
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
    save: SavePoints = SaveAtDrops()
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
                raise InputError(name, value, "must be a number")
        for name in ("end", "gradient_tolerance"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value) and value > 0):
                raise InputError(name, value, "must be finite and positive")
        check_parts(None, self.checkpoint)
        if self.solver not in SOLVERS:
            raise InputError("solver", self.solver, 'must be "auto", "explicit" or "implicit"')
        for name in ("rtol", "tolerance"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "must lie between 0 and 1")
        if self.atol is not None and not 0 < self.atol < 1:
            raise InputError("atol", self.atol, "must lie between 0 and 1")
        if self.max_steps < 1:
            raise InputError("max_steps", self.max_steps, "must be at least 1")
        if self.at_once is not None and not (isinstance(self.at_once, int) and self.at_once > 0):
            raise InputError("at_once", self.at_once, "must be a whole number from 1 up")


def flow_options(**options: Any) -> FlowOptions:
    """The options of a gradient flow; one that does not exist is named beside those that do."""
    # Before the dataclass does: its own message names no alternatives.
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


def check_parts(monitor: Any, checkpoint: Any) -> None:
    """Refuses a `monitor` that is no risk, and a `checkpoint` that is none."""
    if monitor is not None and not isinstance(monitor, AbstractRisk):
        raise TypeError(f"`monitor` = {monitor!r}: must be a risk, such as `risk(task, model)`.")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"`checkpoint` = {checkpoint!r}: must be a `Checkpoint(path)`.")


def check_model_and_risk(model: Any, risk: Any) -> None:
    """Refuses what is no model or no risk, and one in the other's place."""
    if isinstance(model, AbstractRisk) and isinstance(risk, AbstractModel):
        raise TypeError("`model` and `risk` are swapped: the model comes first.")
    for name, value, kind in (("model", model, AbstractModel), ("risk", risk, AbstractRisk)):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` is of type {type(value).__name__}: must be a {name}.")
    check_made_in_float64(model=model)


def default_lanes() -> int:
    """How many runs of an ensemble go on side by side, unless `at_once` says so."""
    return FLOW_LANES if jax.default_backend() == "cpu" else _LANES_OF_CARD


def default_atol(vectors: Float[np.ndarray, "runs n"]) -> Float[np.ndarray, " runs"]:
    """A share of the size of the weights of each run: on a plateau small ones are what matters."""
    largest = np.max(np.abs(vectors), axis=1, initial=0)
    scaled = vectors / np.where(largest > 0, largest, 1)[:, None]  # squares of huge ones overflow
    sizes = largest * np.sqrt(np.mean(scaled**2, axis=1))
    # Rounded to a decade: a number that reads well in the statistics of a run. (NumPy's own powers
    # of ten are off by a bit.)
    orders = np.floor(np.log10(_ATOL_SHARE * np.where(sizes > 0, sizes, 1.0)))
    decades = np.asarray([10.0**order for order in orders.tolist()])
    return np.where(sizes > 0, np.maximum(decades, _SMALLEST_ATOL), _ATOL_FROM_ZERO)

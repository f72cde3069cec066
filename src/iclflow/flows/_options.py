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
from ..risks import AbstractRisk
from ..tasks import is_real
from ._checkpoint import Checkpoint
from ._progress import Status
from ._save import SaveAtDrops, SavePoints

# Runs of an ensemble side by side on a GPU, which hides its latency behind many of them.
_LANES_OF_CARD = 4096
# Weights that are all zero have no scale. Learned weights are of order one, and known to 1e-16.
_ATOL_FROM_ZERO = 1e-14
# The absolute tolerance as a share of the initial weights, and its smallest value: squares of
# smaller errors would underflow.
_ATOL_SHARE = 1e-9
_SMALLEST_ATOL = 1e-24
SOLVERS = ("auto", "explicit", "implicit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """How a gradient flow is integrated.

    **Fields:**

    - `end`: the last time. By default the run ends when the loss is within `tolerance` (as a share
      of the whole way down) of the smallest loss that the weights can reach, if that is known.
    - `gradient_tolerance`: the run also ends, as stationary, where ‖∂L/∂W‖ is no larger. Use it
      instead of `end` for risks whose smallest value is not known. (Near a saddle gradients are
      small, too.)
    - `save`: which points to keep: `SaveAtDrops`, `SaveEvenly`, `SaveLogSpaced` or `SaveAtTimes`.
    - `solver`: `"explicit"` (Tsit5), `"implicit"` (Rodas5P), or `"auto"`: explicit, and
      implicit once a long plateau has shown that stability limits the step.
    - `rtol`, `atol`: the tolerances of the solver. By default `atol` is 1e-9 of the size of the
      initial weights, rounded down to a power of ten, because small weights decide how long a
      plateau lasts; at least 1e-24, and 1e-14 for weights that are all zero.
    - `max_steps`: the largest number of attempted steps; the run ends there.
    - `at_once`: how many runs of an ensemble advance side by side while the others wait (default:
      64, on a GPU 4096).
    - `progress`: whether to show a bar after two seconds (default: on a terminal).
    - `callback`: called with a `Status` between chunks; the run is cancelled when it returns False.
    - `checkpoint`: a `Checkpoint` that the run is written to between chunks, and resumed from.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> options = {"end": 20.0, "save": icl.SaveEvenly(5), "solver": "explicit"}
    >>> run = icl.gradient_flow(model, icl.risk(task, model), **options)
    >>> run.times
    array([ 0.,  5., 10., 15., 20.])
    ```
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

    @property
    def ends_by_loss(self) -> bool:
        """Whether runs end when their loss has converged."""
        return self.end is None and self.gradient_tolerance is None

    def __post_init__(self):
        for name in ("end", "gradient_tolerance", "rtol", "atol", "tolerance", "max_steps"):
            if getattr(self, name) is None and name in ("end", "gradient_tolerance", "atol"):
                continue
            value: Any = getattr(self, name)
            if not is_real(value):
                raise InputError(name, value, "must be a number")
            if name in ("end", "gradient_tolerance") and not 0 < value < np.inf:
                raise InputError(name, value, "must be finite and positive")
            if name in ("rtol", "atol", "tolerance") and not 0 < value < 1:
                raise InputError(name, value, "must lie between 0 and 1")
        check_parts(None, self.checkpoint)
        if self.solver not in SOLVERS:
            raise InputError("solver", self.solver, 'must be "auto", "explicit" or "implicit"')
        if self.max_steps < 1:
            raise InputError("max_steps", self.max_steps, "must be at least 1")
        if self.at_once is not None and not (isinstance(self.at_once, int) and self.at_once > 0):
            raise InputError("at_once", self.at_once, "must be a whole number from 1 up")


def flow_options(**options: Any) -> FlowOptions:
    """The options of a gradient flow; refuses unknown ones."""
    # Checked here, because the dataclass would not say which options exist.
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
    """Refuses a `monitor` that is not a risk, and a `checkpoint` that is not a `Checkpoint`."""
    if monitor is not None and not isinstance(monitor, AbstractRisk):
        raise TypeError(f"`monitor` = {monitor!r}: must be a risk, such as `risk(task, model)`.")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"`checkpoint` = {checkpoint!r}: must be a `Checkpoint(path)`.")


def default_lanes() -> int:
    """How many runs of an ensemble advance side by side by default."""
    return FLOW_LANES if jax.default_backend() == "cpu" else _LANES_OF_CARD


def default_atol(vectors: Float[np.ndarray, "runs n"]) -> Float[np.ndarray, " runs"]:
    """The absolute tolerance of each run, a share of the size of its initial weights."""
    largest = np.max(np.abs(vectors), axis=1, initial=0)
    scaled = vectors / np.where(largest > 0, largest, 1)[:, None]  # their squares cannot overflow
    sizes = largest * np.sqrt(np.mean(scaled**2, axis=1))
    # Rounded to a decade, which reads well in the statistics of a run. In Python, because NumPy's
    # powers of ten are off by a bit.
    orders = np.floor(np.log10(_ATOL_SHARE * np.where(sizes > 0, sizes, 1.0)))
    decades = np.asarray([10.0**order for order in orders.tolist()])
    return np.where(sizes > 0, np.maximum(decades, _SMALLEST_ATOL), _ATOL_FROM_ZERO)

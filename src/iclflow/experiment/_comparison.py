"""The last loss of a run compared with losses from theory, in numbers and in words."""

import dataclasses
import math
from collections.abc import Sequence

from ..trajectory import Trajectory
from ._prediction import Overlay


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A loss from theory, and how far above it a run ends.

    **Fields:**

    - `difference`: the last loss less this one, as a share of this one.
    - `error`: the standard error of that share, if the loss was measured on sequences.
    """

    name: str
    loss: float
    difference: float | None
    error: float | None = None

    def __str__(self) -> str:
        if self.difference is None:
            return f"{self.name} {self.loss:.6g}"
        side = "above" if self.difference >= 0 else "below"
        far = _percent(abs(self.difference), self.error)
        return f"{self.name} {self.loss:.6g} (the run ends {far} {side})"


def compare_end(run: Trajectory, predicted: Overlay | None) -> tuple[Comparison, ...]:
    """The last loss of a run compared with its predicted end and with every known loss."""
    if predicted is None or not len(run):
        return ()
    end = predicted.at(float(run.times[-1])) if predicted.whole else None
    known = [*([] if end is None else [("predicted end", end)]), *predicted.references]
    last, error = float(run.losses[-1]), last_error(run)
    return tuple(
        Comparison(name, loss, _share(last - loss, loss), _share(error, loss))
        for name, loss in known
    )


def last_error(run: Trajectory) -> float | None:
    """The standard error of the last loss, if it was measured on sequences."""
    return run.statistics.get("standard_errors", [None])[-1]


def describe_loss(run: Trajectory) -> str:
    """The first and the last loss, rounded to their standard errors if they have some."""
    first, last = float(run.losses[0]), float(run.losses[-1])
    errors: Sequence = run.statistics.get("standard_errors", ())
    if not errors or None in errors:
        return f"{first:.6g} → {last:.8g}"
    count = run.statistics["test_sequences"]
    ends = " → ".join(round_to_error(*each) for each in zip((first, last), errors))
    return f"{ends}, on {count} other sequences"


def round_to_error(value: float, error: float) -> str:
    """A measurement with its standard error, to one digit of that (two if the first is a 1)."""
    if error == 0:
        return f"{value:.6g} ± 0"
    size = math.floor(math.log10(error))
    digits = max(0, -size + (error < 2 * 10.0**size))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _share(part: float | None, loss: float) -> float | None:
    share = math.nan if part is None or loss <= 0 else part / loss
    return share if math.isfinite(share) else None


def _percent(share: float, error: float | None) -> str:
    if error:
        return f"{round_to_error(100 * share, 100 * error)} %"
    # The integrals and solvers behind both numbers are accurate to about 1e-9.
    return f"{100 * share:.3g} %" if share > 1e-9 else "less than 1e-7 %"

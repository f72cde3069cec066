"""Claims as measurements: the verdict of a claim on each run of a sweep."""

import functools
from collections.abc import Sequence
from typing import Any

from ..config import Config, InputError
from ..errors import shorten
from ._measurements import FinishedRun, Measurement, NotMeasured


def is_claim(name: str) -> bool:
    """Whether a name in `measure.names` has the form of a claim: `paper/name`."""
    return "/" in name


@functools.cache
def claim_measurement(name: str) -> Measurement:
    """The verdict of a claim on each run, and its largest error over its tolerance.

    Raises an `InputError` if no claim on runs has this name.
    """
    # Imported here: the registry takes a second to load, and most sweeps name no claim.
    from ..papers import find_claim_on_runs, strain

    try:
        found = find_claim_on_runs(name)
    except InputError as error:
        problem = f"holds {shorten(name)}, which {error.problem}"
        raise InputError("measure.names", problem=problem, allowed=error.allowed) from None
    column = "claim_" + name.replace("/", "_").replace("-", "_")

    def measure(run: FinishedRun) -> dict[str, Any]:
        outcome = found.check(run.trajectory, run.task, run.config)
        if outcome.verdict == "inconclusive":
            raise NotMeasured(f"{outcome.reason}.", {column: outcome.verdict})
        return {column: outcome.verdict, f"{column}_error": strain(outcome)}

    return Measurement(
        name,
        f"The claim `{name}`: {found.statement}",
        {column: "VARCHAR", f"{column}_error": "DOUBLE"},
        measure,
    )


def check_claim(name: str, configs: Sequence[Config]) -> None:
    """Refuses a claim that is unknown, or that applies to no run of the sweep."""
    claim_measurement(name)
    from ..papers import find_claim_on_runs

    reason = find_claim_on_runs(name).refuses_all(configs)
    if reason is not None:
        raise InputError(
            f"`measure.names` holds {name!r}, which is about no run of this sweep: it {reason}."
        )

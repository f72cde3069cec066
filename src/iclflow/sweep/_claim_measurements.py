"""Claims as measurements: what a claim of the registry says about each run of a sweep."""

import functools
from collections.abc import Sequence
from typing import Any

from ..config import Config, InputError, shown
from ._measurements import Measured, Measurement, NotMeasured


def is_claim(name: str) -> bool:
    """Whether a name in `measure.names` is meant to be that of a claim: `paper/name`."""
    return "/" in name


@functools.cache
def claim_measurement(name: str) -> Measurement:
    """The verdict of a claim on each run, and its largest error over its tolerance.

    An `InputError` says why there is no such thing.
    """
    # Here, since the registry takes a second to load and most sweeps ask for no claim.
    from ..claims import find_run_check, strain

    try:
        found = find_run_check(name)
    except InputError as error:
        # The claim is the subject of that sentence, and comes first in it.
        _, _, rest = str(error).partition(f"`claim` = {name!r} ")
        raise InputError(f"`measure.names` holds {shown(name)}, which {rest}") from None
    column = "claim_" + name.replace("/", "_").replace("-", "_")

    def measure(measured: Measured) -> dict[str, Any]:
        outcome = found.check(measured.run, measured.task, measured.config)
        if outcome.verdict == "inconclusive":
            raise NotMeasured(f"{outcome.reason}.", {column: outcome.verdict})
        return {column: outcome.verdict, f"{column}_error": strain(outcome)}

    return Measurement(
        name,
        f"The claim `{name}`: {found.claim.statement}",
        {column: "VARCHAR", f"{column}_error": "DOUBLE"},
        measure,
        lambda config: None,
    )


def check_claim(name: str, configs: Sequence[Config]) -> None:
    """Refuses a claim that is unknown, or that speaks of no run of the sweep."""
    claim_measurement(name)
    from ..claims import find_run_check

    reason = find_run_check(name).refuses_all(configs)
    if reason is not None:
        raise InputError(
            f"`measure.names` holds {name!r}, which is about no run of this sweep: it {reason}."
        )

"""The plateaus of a training so far."""

import contextlib
from collections.abc import Sequence

from ..analysis import Plateau, plateaus
from ..errors import InputError, Refusal


def find_plateaus(steps: Sequence[float], losses: Sequence[float]) -> tuple[Plateau, ...]:
    """The plateaus of a loss curve; none where there are too few looks to tell."""
    if len(steps) < 2:
        return ()
    with contextlib.suppress(Refusal, InputError):
        return plateaus(list(steps), list(losses))
    return ()

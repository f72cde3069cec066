"""The plateaus and the drops of a training so far."""

import contextlib
from collections.abc import Sequence

import numpy as np

from ..analysis import Plateau, drop_times, plateaus
from ..errors import InputError, Refusal


def find_plateaus(steps: Sequence[float], losses: Sequence[float]) -> tuple[Plateau, ...]:
    """The plateaus of a loss curve; none where there are too few looks to tell.

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> steps = [float(step) for step in range(400)]
    >>> losses = [float(np.tanh((120 - t) / 8) + np.tanh((280 - t) / 8) + 2) for t in steps]
    >>> len(watching.find_plateaus(steps, losses))
    3
    ```
    """
    if len(steps) < 2:
        return ()
    with contextlib.suppress(Refusal, InputError):
        return plateaus(list(steps), list(losses))
    return ()


def find_drops(steps: Sequence[float], losses: Sequence[float]) -> tuple[float, ...]:
    """The steps at which a loss curve is half-way from one of its plateaus to the next.

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> steps = [float(step) for step in range(400)]
    >>> losses = [float(np.tanh((120 - t) / 8) + np.tanh((280 - t) / 8) + 2) for t in steps]
    >>> [round(step) for step in watching.find_drops(steps, losses)]
    [120, 280]
    ```
    """
    if len(steps) < 2:
        return ()
    with contextlib.suppress(Refusal, InputError):
        times = drop_times(list(steps), list(losses))
        return tuple(times[np.isfinite(times)].tolist())
    return ()

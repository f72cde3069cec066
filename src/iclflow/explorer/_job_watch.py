"""Jobs of a worker: what is measured on trainings of other processes."""

import dataclasses
from typing import Any

from ..watching import find_plateaus
from ._channel import WorkerChannel


def measure_plateaus(
    channel: WorkerChannel, steps: list[float], losses: list[float]
) -> list[dict[str, Any]]:
    """The plateaus of a loss curve."""
    return [dataclasses.asdict(each) for each in find_plateaus(steps, losses)]


JOBS = {"plateaus": measure_plateaus}

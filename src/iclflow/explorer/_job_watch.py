"""Jobs of a worker: what is measured on trainings of other processes."""

import dataclasses
from typing import Any

from ..watching import find_drops, find_plateaus
from ._channel import WorkerChannel


def measure_plateaus(
    channel: WorkerChannel, steps: list[float], losses: list[float]
) -> tuple[list[dict[str, Any]], list[float]]:
    """The plateaus of a loss curve, and the steps of the drops between them."""
    found = [dataclasses.asdict(each) for each in find_plateaus(steps, losses)]
    return found, list(find_drops(steps, losses))


JOBS = {"plateaus": measure_plateaus}

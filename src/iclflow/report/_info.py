"""Where, when and how results were computed."""

import dataclasses
import datetime
import os
import platform
from importlib.metadata import version


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """Where, when and how the numbers of a report were computed."""

    date: str
    tier: str
    falsify: bool
    seconds: float
    machine: str
    versions: dict[str, str]

    @staticmethod
    def of_this_machine(tier: str, falsify: bool, seconds: float) -> "RunInfo":
        import jax

        device = jax.devices()[0]
        words = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        if device.platform != "cpu":
            words += f", {device.device_kind}"
        return RunInfo(
            date=datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
            tier=tier,
            falsify=falsify,
            seconds=seconds,
            machine=words,
            versions={
                "iclflow": version("iclflow"),
                "Python": platform.python_version(),
                **{name: version(name) for name in ("jax", "diffrax", "numpy", "scipy")},
            },
        )

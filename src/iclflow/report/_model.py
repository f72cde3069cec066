"""The parts of a report besides the outcomes of claims."""

import dataclasses
import datetime
import os
import platform
from importlib.metadata import version
from typing import Any


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


@dataclasses.dataclass(frozen=True)
class ReportFigure:
    """A figure as the report shows it; `image` is None where it could not be drawn.

    **Fields:**

    - `media_type`: of `image`, `image/svg+xml` or `image/png`.
    - `share`: its width as a share of the page; 1 for two columns of print.
    - `problem`: why there is no image, in words.
    """

    name: str
    title: str
    caption: str
    paper: str
    image: bytes | None
    media_type: str
    config: dict[str, Any]
    seconds: float
    problem: str = ""
    share: float = 1.0

"""Where, when and how results were computed."""

import dataclasses
import datetime
import os
import platform
from importlib.metadata import version

from ..runtime import source_commit


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """Where, when and how the numbers of a report were computed.

    **Fields:**

    - `commit`: of the checkout of iclflow; empty where there is none, or where it was not kept.
    """

    date: str
    tier: str
    falsify: bool
    seconds: float
    machine: str
    versions: dict[str, str]
    commit: str = ""

    @property
    def software(self) -> str:
        """The versions in one line, with the commit."""
        words = [f"{name} {number}" for name, number in self.versions.items()]
        if self.commit:
            hash, *changed = self.commit.split("-")
            words[0] += f" (commit {'-'.join([hash[:10], *changed])})"
        return ", ".join(words)

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
            commit=source_commit(),
        )

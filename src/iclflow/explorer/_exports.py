"""A run as files: its settings, its data, and a program that computes it again."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from ..config import Config, to_toml
from ..files import to_plain
from ._channel import DIGITS
from ._run_data import Points

KINDS = {
    "png": "image/png",
    "pdf": "application/pdf",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "toml": "application/toml; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
}

_PROGRAM = '''\
"""Computes a run of the explorer again ({title}), and draws its loss into loss.png."""

import iclflow as icl

icl.enable_float64()
run = icl.run(
    {config}
)

print(run.trajectory)
# The loss, with whatever theory applies.
with open("loss.png", "wb") as file:
    file.write(run.figures()["loss.png"])
'''


def as_toml(config: Config) -> bytes:
    """The config as a file for `iclflow run`."""
    head = "# For `iclflow run`: the settings of a run of the explorer.\n"
    return (head + to_toml(config.given())).encode()


def as_program(config: Config, title: str) -> bytes:
    """A Python program that computes the run again."""
    # The title is part of a docstring: it must not end it or escape anything in it.
    title = " ".join(title.replace("\\", " ").replace('"', "'").split()).rstrip(".")
    text = _PROGRAM.format(title=title, config=_format_literal(config.given(), 4))
    return text.encode()


def as_csv(points: Points, events: Mapping[str, str]) -> bytes:
    """The points of a run: the clock, the loss, and every line of the panels.

    **Arguments:**

    - `events`: the last event of each kind, as text.
    """
    about = _read_event(events, "panels")
    columns = [
        (f"{panel['id']}: {series}", points.lines[panel["id"]][:, i])
        for panel in about.get("panels", [])
        if panel["id"] in points.lines
        for i, series in enumerate(panel["series"])
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([about.get("clock", "time"), "loss", *(name for name, _ in columns)])
    for row in zip(points.times, points.losses, *(values for _, values in columns)):
        # More digits than a plot needs, and fewer than rounding spoils.
        writer.writerow([f"{value:.12g}" for value in row])
    return text.getvalue().encode()


def as_json(about: Mapping[str, Any], points: Points, events: Mapping[str, str]) -> bytes:
    """Everything known of a run: settings, theory, points, descriptions, verdicts.

    **Arguments:**

    - `about`: its title, its config and so on.
    """
    parts = {type: _read_event(events, type) for type in ("panels", "theory", "claims", "ended")}
    # JSON has no infinities: `to_plain` writes them as null.
    return json.dumps(to_plain({**about, **points._asdict(), **parts}, DIGITS), indent=1).encode()


def _read_event(events: Mapping[str, str], type: str) -> dict[str, Any]:
    event = json.loads(events.get(type, "{}"))
    event.pop("type", None)
    return event


def _format_literal(value: Any, indent: int) -> str:
    """Plain data as Python source, one setting per line."""
    if not isinstance(value, dict):
        return repr(value)
    inner = " " * (indent + 4)
    lines = [f"{inner}{key!r}: {_format_literal(item, indent + 4)}," for key, item in value.items()]
    return "\n".join(["{", *lines, " " * indent + "}"]) if lines else "{}"

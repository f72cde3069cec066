"""A run as files: its settings, its data, and a program that makes it again."""

import csv
import io
import json
from typing import Any

from ..config import Config, to_toml
from ._desk import plain
from ._session import Run

KINDS = {
    "png": "image/png",
    "pdf": "application/pdf",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "toml": "application/toml; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
}

_PROGRAM = '''\
"""Makes the run {name} again: {title}."""

import iclflow as icl

icl.enable_float64()
config = icl.config.parse_config(
    {config}
)
experiment = icl.experiment.prepare(config)
run = icl.experiment.train(experiment)

print(run)
# The loss with whatever theory applies, and what the run is at its end.
predicted = icl.experiment.overlay(experiment)
files = icl.experiment.loss_figure(run, predicted, experiment.floor(), config.name)
with open("loss.png", "wb") as file:
    file.write(files["loss.png"])
'''


def as_toml(config: Config) -> bytes:
    """The config as a file for `iclflow run`."""
    head = "# For `iclflow run`: the settings of a run of the explorer.\n"
    return (head + to_toml(config.given())).encode()


def as_program(config: Config, title: str) -> bytes:
    """A Python program that makes the run again."""
    title = " ".join(title.replace("\\", " ").replace('"', "'").split()).rstrip(".")
    name = repr(config.name).strip("'")
    text = _PROGRAM.format(name=name, title=title, config=_literal(config.given(), 4))
    return text.encode()


def as_csv(run: Run) -> bytes:
    """The points of a run: the clock, the loss, and every line of the panels."""
    data = run.data.joined()
    panels = _told(run, "panels").get("panels", [])
    columns = [
        (f"{panel['id']}: {series}", data["lines"][panel["id"]][:, i])
        for panel in panels
        if panel["id"] in data["lines"]
        for i, series in enumerate(panel["series"])
    ]
    clock = _told(run, "panels").get("clock", "time")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([clock, "loss", *(name for name, _ in columns)])
    for row in zip(data["times"], data["losses"], *(values for _, values in columns)):
        writer.writerow([f"{value:.12g}" for value in row])
    return text.getvalue().encode()


def as_json(run: Run) -> bytes:
    """All that is known of a run: settings, theory, points, words, verdicts."""
    data = run.data.joined()
    content = {
        "title": run.title,
        "config": run.config.given(),
        "hash": run.config.hash,
        "state": run.state,
        "times": data["times"],
        "losses": data["losses"],
        "lines": data["lines"],
        "roles": data["roles"],
        **{kind: _told(run, kind) for kind in ("panels", "theory", "claims", "ended")},
    }
    return json.dumps(plain(content), indent=1).encode()


def file_name(run: Run, kind: str) -> str:
    return f"{run.config.folder_name}.{kind}"


def _told(run: Run, type: str) -> dict[str, Any]:
    told = json.loads(run.data.told.get(type, "{}"))
    told.pop("type", None)
    return told


def _literal(value: Any, indent: int) -> str:
    """Plain data as Python source, a setting a line."""
    if not isinstance(value, dict):
        return repr(value)
    inner = " " * (indent + 4)
    lines = [f"{inner}{key!r}: {_literal(item, indent + 4)}," for key, item in value.items()]
    return "\n".join(["{", *lines, " " * indent + "}"]) if lines else "{}"

"""What the page gets besides events: the data to start with, and the weights at a moment."""

import dataclasses
import importlib.metadata
import json
from typing import Any

import numpy as np

from ..config import Config, known_keys, section_class, sections
from ..files import to_plain
from ..papers import SUBJECTS, listed_claims
from ._channel import DIGITS
from ._limits import describe_limits
from ._presets import CONTROLS, picture_of, presets
from ._run_data import Points


def build_start_data() -> dict[str, Any]:
    """Everything that the page needs to start."""
    statements = {claim.id: claim.statement for claim in listed_claims()}
    known = [
        {
            "id": preset.id,
            "title": preset.title,
            "paper": preset.paper,
            "words": preset.words,
            "picture": f"/static/presets/{picture_of(preset)}",
            "config": preset.config.given(),
            "controls": list(preset.controls),
            "claims": [{"id": id, "statement": statements[id]} for id in preset.claims],
        }
        for preset in presets()
    ]
    return {
        "version": importlib.metadata.version("iclflow"),
        "plotly": importlib.metadata.version("plotly"),
        "papers": dict(SUBJECTS),
        "presets": known,
        "schema": Config.model_json_schema(),
        "controls": {name: dataclasses.asdict(control) for name, control in CONTROLS.items()},
        "kinds": _kinds(),
        "limits": describe_limits(),
    }


def _kinds() -> dict[str, list[dict[str, str]]]:
    return {
        section: [
            {
                "value": kind,
                "label": kind.replace("_", " "),
                "words": " ".join((section_class(section, {"kind": kind}).__doc__ or "").split()),
            }
            for kind in known_keys({})[f"{section}.kind"]
        ]
        for section in sections()
    }


def describe_moment(
    index: int, frame_index: int, frame: dict[str, np.ndarray], points: Points, panels: str
) -> dict[str, Any]:
    """The weights at one saved point, head by head.

    **Arguments:**

    - `frame_index`: of the point whose weights are in `frame`: this one, or one before it.
    - `panels`: the event that named the heads, as text.
    """
    labels = [head["label"] for head in json.loads(panels).get("heads", [])]
    roles = points.roles[index] if points.roles is not None else [None] * len(labels)
    heads = [
        {
            "label": label,
            "role": roles[i] if i < len(roles) else None,
            "matrices": {name: part[i] for name, part in frame.items() if i < len(part)},
        }
        for i, label in enumerate(labels)
    ]
    about = {"index": frame_index, "time": points.times[index], "loss": points.losses[index]}
    return to_plain({**about, "heads": heads}, DIGITS)

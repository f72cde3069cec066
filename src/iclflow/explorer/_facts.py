"""What the page is told besides events: what there is to begin with, the weights of a moment."""

import importlib.metadata
import json
from typing import Any

import numpy as np

from ..config import Config, known_keys, section_class, sections
from ._desk import plain
from ._limits import told_limits
from ._presets import CONTROLS, presets
from ._run_data import Points


def start_facts() -> dict[str, Any]:
    """All that the page needs to begin with."""
    known = [
        {
            "id": preset.id,
            "title": preset.title,
            "paper": preset.paper,
            "words": preset.words,
            "picture": f"/static/presets/{preset.picture}",
            "config": preset.config.given(),
            "controls": list(preset.controls),
        }
        for preset in presets()
    ]
    return {
        "version": importlib.metadata.version("iclflow"),
        "plotly": importlib.metadata.version("plotly"),
        "presets": known,
        "schema": Config.model_json_schema(),
        "controls": {name: control.data() for name, control in CONTROLS.items()},
        "kinds": _kinds(),
        "limits": told_limits(),
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


def moment_facts(
    index: int, place: int, frame: dict[str, np.ndarray], points: Points, panels: str
) -> dict[str, Any]:
    """The weights at one saved point, head by head.

    **Arguments:**

    - `place`: of the point that the weights in `frame` are of: this one, or one before it.
    - `panels`: the event that named the heads.
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
    told = {"index": place, "time": points.times[index], "loss": points.losses[index]}
    return plain({**told, "heads": heads})

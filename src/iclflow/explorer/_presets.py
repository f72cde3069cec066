"""The studies of the papers that the explorer offers, and the controls for their settings."""

import dataclasses
import functools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import Config, InputError
from ..papers import PAPERS, STUDIES, Study


@dataclasses.dataclass(frozen=True)
class Control:
    """How one setting is shown, and which values the explorer lets it have: see `controls.toml`."""

    label: str
    words: str
    shape: str = "slider"
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[dict[str, str], ...] | None = None


def _read_controls() -> dict[str, Control]:
    """The controls by the name of their setting, in the order of the page."""
    rows = tomllib.loads((Path(__file__).parent / "controls.toml").read_text(encoding="utf-8"))
    return {name: _build_control(**row) for name, row in rows.items()}


def _build_control(
    range: Sequence[float | None] = (None, None, None),
    choices: dict[str, str] | None = None,
    **row: Any,
) -> Control:
    low, high, step = range
    pairs = None if choices is None else tuple({"value": v, "label": l} for v, l in choices.items())
    return Control(**row, low=low, high=high, step=step, choices=pairs)


CONTROLS = _read_controls()


@functools.cache
def presets() -> tuple[Study, ...]:
    """The studies that the explorer offers, paper after paper, each in its order."""
    # Studies without an order are for claims and figures.
    offered = [check_controls(study) for study in STUDIES.values() if study.order is not None]
    places = list(PAPERS)
    return tuple(sorted(offered, key=lambda study: (places.index(study.paper), study.order)))


def picture_of(study: Study) -> str:
    """The name of the picture of a study in `static/presets`."""
    return f"{study.id.replace('/', '-')}.svg"


def check_controls(study: Study) -> Study:
    """The study itself; an `InputError` if it names a control that its config does not have."""
    config = study.config
    unknown = [key for key in study.controls if key not in CONTROLS or not _has(config, key)]
    if unknown:
        raise InputError(f"`{study.id}`: `study.controls` names `{unknown[0]}`, not a setting.")
    return study


def _has(config: Config, key: str) -> bool:
    section, _, name = key.rpartition(".")
    return name in type(getattr(config, section) if section else config).model_fields

"""What a path holds, and which command takes it."""

from pathlib import Path
from typing import Literal

from ..config import InputError, read_toml

Kind = Literal["file of a run", "file of a sweep", "folder of a run", "folder of a sweep"]
_REMEDIES: dict[Kind, str] = {
    "file of a run": "`iclflow run {}` computes it, or shows it if it is complete",
    "file of a sweep": "`iclflow sweep {}` computes it, or shows it if it is complete",
    "folder of a run": "`iclflow show {}` shows it",
    "folder of a sweep": "`iclflow query {}` shows its table",
}


def check_kind(path: str, *wanted: Kind) -> None:
    """Refuses a path that belongs to another command; unknown files are left to the command."""
    found = _kind_of(Path(path))
    if found is not None and found not in wanted:
        raise InputError(f"`{path}` is the {found}: {_REMEDIES[found].format(path)}.")


def _kind_of(path: Path) -> Kind | None:
    if path.is_dir():
        if (path / "sweep.toml").is_file():
            return "folder of a sweep"
        return "folder of a run" if (path / "config.toml").is_file() else None
    if path.suffix != ".toml":
        return None
    try:
        data = read_toml(path)
    except InputError:
        return None
    if "base" in data:
        return "file of a sweep"
    return "file of a run" if {"task", "model"} <= data.keys() else None

"""The manifest of a run: what made it, how it ended, and a hash of every file. Written last."""

import os
import platform
from pathlib import Path
from typing import Any

from ..files import find_list_error, read_regular, read_sealed, sha256
from ..versions import NUMERICAL, installed
from ._names import MANIFEST as NAME


def made_by() -> dict[str, Any]:
    """The versions and the devices that decide the bits of a run."""
    import jax

    devices = jax.devices()
    return {
        "versions": {"python": platform.python_version()} | installed(*NUMERICAL, "numpy"),
        "device": {
            "backend": jax.default_backend(),
            "kind": devices[0].device_kind,
            "count": len(devices),
            "machine": platform.machine(),
        },
    }


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None if there is none, or none that is as it was written."""
    return open_manifest(folder)[0]


def open_manifest(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The manifest of a folder, and what is wrong with it: neither where there is none."""
    try:
        content = read_sealed(folder / NAME)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"`{NAME}` cannot be read: {error.strerror}"
    except ValueError as error:
        return None, f"`{NAME}` {error}"
    wrong = find_list_error(content) or _wrong_types(content)
    return (content, None) if wrong is None else (None, f"`{NAME}` {wrong}")


def _wrong_types(content: dict[str, Any]) -> str | None:
    """What a manifest says of itself as something that it cannot be."""
    kinds = {"statistics": dict, "versions": dict, "result": str, "loss": float | int,
             "config_hash": str, "sweep_hash": str, "runs": int, "batches": int}  # fmt: skip
    for name, kind in kinds.items():
        # A run that did not begin has no loss.
        missing = name not in content or (name == "loss" and content[name] is None)
        if not missing and not isinstance(content[name], kind):
            return f"has a `{name}` that is no {_WORDS[kind]}"
    seconds = content.get("statistics", {}).get("seconds")
    if seconds is not None and not isinstance(seconds, float | int):
        return "has `statistics.seconds` that are no number"
    if "sweep_hash" in content and not {"runs", "batches"} <= content.keys():
        return "does not say how many runs the sweep has"
    return None


_WORDS: dict[Any, str] = {dict: "table", str: "text", int: "whole number", float | int: "number"}


def damage(folder: Path) -> list[str]:
    """What is wrong with the files of a run or a sweep that calls itself complete, a sentence
    each."""
    if not os.path.lexists(folder / NAME):
        return []
    manifest, wrong = open_manifest(folder)
    if manifest is None:
        told = (wrong or "").removeprefix(f"`{NAME}` ")
        return [f"`{folder / NAME}` {told}: it is damaged."]
    found = []
    for name, wanted in manifest["files"].items():
        try:
            content = read_regular(folder / name)
        except OSError as error:
            found.append(f"`{folder / name}` cannot be read: {error.strerror}.")
            continue
        if sha256(content) != wanted:
            found.append(f"`{folder / name}` does not match its hash: it is damaged.")
    return found

"""The manifest of a run: what made it, how it ended, and a hash of every file. Written last."""

import json
import platform
from pathlib import Path
from typing import Any

from ..files import is_sealed, sha256
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
    try:
        text = (folder / NAME).read_text()
        content = json.loads(text)
    except (OSError, ValueError):
        return None
    whole = isinstance(content, dict) and "files" in content and is_sealed(text)
    return content if whole else None


def damage(folder: Path) -> list[str]:
    """What is wrong with the files of a run or a sweep that calls itself complete, a sentence
    each."""
    if not (folder / NAME).exists():
        return []
    manifest = read_manifest(folder)
    if manifest is None:
        return [f"`{folder / NAME}` does not match its hash: it is damaged."]
    found = []
    for name, wanted in manifest["files"].items():
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            found.append(f"`{folder / name}` cannot be read: {error.strerror}.")
            continue
        if sha256(content) != wanted:
            found.append(f"`{folder / name}` does not match its hash: it is damaged.")
    return found

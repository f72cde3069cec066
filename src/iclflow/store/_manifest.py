"""The manifest of a run: what made it, how it ended, and a hash of every file. Written last."""

import math
import os
import platform
from pathlib import Path
from typing import Any

from ..files import find_list_error, read_regular, read_sealed, sha256
from ..runtime import NUMERICAL, installed_versions
from ._names import MANIFEST as NAME


def provenance() -> dict[str, Any]:
    """The versions and the devices that decide the bits of a run.

    **Example:**

    ```pycon
    >>> from iclflow import store
    >>> sorted(store.provenance()["device"])
    ['backend', 'count', 'kind', 'machine']
    ```
    """
    import jax

    devices = jax.devices()
    return {
        "versions": {"python": platform.python_version()} | installed_versions(*NUMERICAL, "numpy"),
        "device": {
            "backend": jax.default_backend(),
            "kind": devices[0].device_kind,
            "count": len(devices),
            "machine": platform.machine(),
        },
    }


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None if it is missing or was changed.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = icl.run("linear/white", out=root, progress=False)
    >>> store.read_manifest(root)["result"]
    'converged'
    ```
    """
    return open_manifest(folder)[0]


def open_manifest(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The manifest of a folder, and what is wrong with it; both None where there is none."""
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
    """The first entry of a manifest that has the wrong type, as the end of a sentence."""
    kinds = {"statistics": dict, "versions": dict, "result": str, "loss": float | int,
             "config_hash": str, "sweep_hash": str, "runs": int, "batches": int}  # fmt: skip
    for name, kind in kinds.items():
        # A run that did not begin has no loss.
        missing = name not in content or (name == "loss" and content[name] is None)
        if not missing and not _is_a(kind, content[name]):
            return f"has a `{name}` that is no {_WORDS[kind]}"
    seconds = content.get("statistics", {}).get("seconds")
    if seconds is not None and not _is_a(float | int, seconds):
        return "has `statistics.seconds` that are no number"
    if "sweep_hash" in content and not {"runs", "batches"} <= content.keys():
        return "does not say how many runs the sweep has"
    return None


_WORDS: dict[Any, str] = {dict: "table", str: "text", int: "whole number", float | int: "number"}


def _is_a(kind: Any, value: Any) -> bool:
    """Whether a value has a type; numbers must be finite, so that they can be shown as JSON."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    try:
        return not isinstance(value, float | int) or math.isfinite(float(value))
    except OverflowError:  # a whole number with hundreds of digits
        return False


def find_damage(folder: Path) -> list[str]:
    """What is wrong with the files of a complete run or sweep, one sentence per file.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = icl.run("linear/white", out=root, progress=False)
    >>> store.find_damage(root)
    []
    >>> _ = (root / store.CONFIG).write_text("changed")
    >>> len(store.find_damage(root))
    1
    ```
    """
    if not os.path.lexists(folder / NAME):
        return []
    manifest, wrong = open_manifest(folder)
    if manifest is None:
        problem = (wrong or "").removeprefix(f"`{NAME}` ")
        return [f"`{folder / NAME}` {problem}: it is damaged."]
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

"""Plain data as TOML: the standard library reads the format, and does not write it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import shorten


def to_toml(data: Mapping[str, Any]) -> str:
    """Plain data as TOML: single values first, then one table per section."""
    return "\n".join(_lines(data, ())) + "\n"


def _lines(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in data.items() if key not in tables and value is not None}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in tables.items():
        below = (*path, str(key))
        header = [f"[{'.'.join(_key(step) for step in below)}]"]
        lines += ([""] if lines else []) + header + _lines(value, below)
    return lines


def _key(key: Any) -> str:
    return str(key) if re.fullmatch(r"[A-Za-z0-9_-]+", str(key)) else _value(str(key))


def _value(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    raise TypeError(f"TOML has no way to write {shorten(value)}.")

"""JSON, and the error for a file that cannot be used."""

import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

# Levels of nesting: our own files have four. A limit here spares every later reader one.
_DEEPEST = 100


class FileError(ValueError):
    """A file that cannot be used; the text is one sentence that says why."""


def to_plain(value: Any, digits: int | None = None, spelled: bool = False) -> Any:
    """Data that JSON can hold: arrays as lists, numbers that are not finite as None.

    **Arguments:**

    - `digits`: significant digits to round to; None: all.
    - `spelled`: writes numbers that are not finite as "inf", "-inf" and "nan" instead.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner, digits, spelled) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner, digits, spelled) for inner in value]
    if isinstance(value, decimal.Decimal):  # a type of SQL
        value = float(value)
    if not isinstance(value, float):
        return value if isinstance(value, str | int | None) else str(value)
    if not math.isfinite(value):
        return str(value) if spelled else None
    return value if digits is None else float(f"{value:.{digits}g}")


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text in UTF-8; a `ValueError` says what is wrong with it, such as too
    deep nesting."""
    try:
        content = json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    except ValueError:
        raise ValueError("is not valid JSON") from None
    inside = [content]
    for _ in range(_DEEPEST):
        nested = [value for value in inside if isinstance(value, dict | list)]
        inside = [part for v in nested for part in (v.values() if isinstance(v, dict) else v)]
        if not inside:
            return content
    raise ValueError("is nested too deeply")

"""The content of files, and the error for one that cannot be used."""

import json
from typing import Any

# Levels of nesting: our own files have four. A limit here spares every later reader one.
_DEEPEST = 100


class FileError(ValueError):
    """A file that cannot be used; the text is one sentence that says why."""


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

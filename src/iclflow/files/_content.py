"""What files hold, and how it is told of in one sentence."""

import json
from typing import Any

# As much of a value as a sentence can hold.
_LONGEST_VALUE = 60
# Of brackets within brackets: what we write has four. Whoever walks through it needs no limit.
_DEEPEST = 100


class FileError(ValueError):
    """A file that cannot be used; the text is one sentence that says why."""


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text in UTF-8; a `ValueError` that says why it is none, also where
    brackets are nested so deeply that Python cannot follow."""
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


def shorten(value: Any) -> str:
    """A value of a file or of a user as it can stand in a sentence: on one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no more digits than some thousands
        return "a number with thousands of digits"
    except RecursionError:
        return "a value that is nested too deeply"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"

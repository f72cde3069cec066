"""What files hold, and how it is told of in one sentence."""

import json
from typing import Any

# As much of a value as a sentence can hold.
_LONGEST_VALUE = 60


class FileError(ValueError):
    """A file that cannot be used; the text is one sentence that says why."""


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text; a `ValueError` that says why it is none, also where brackets are
    nested so deeply that Python cannot follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:
        raise ValueError("is not valid JSON") from None


def shorten(value: Any) -> str:
    """A value of a file or of a user as it can stand in a sentence: on one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no more digits than some thousands
        return "a number with thousands of digits"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"

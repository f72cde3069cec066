"""Numbers and settings as short, safe text. Everything that enters the page passes through here."""

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..claims import Check

# Longer lists show their ends and their length.
_LONGEST_LIST = 6


def escape(text: Any) -> str:
    """Text that cannot be taken for markup, inside elements and attributes alike."""
    return html.escape(str(text), quote=True)


def anchor(prefix: str, name: str) -> str:
    """An id for a link, made of safe characters."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name)
    return f"{prefix}-{safe}"


def number(value: Any, digits: int = 6) -> str:
    """A single value: integers in full, others to a few digits."""
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return {math.inf: "∞", -math.inf: "−∞"}.get(float(value), "not a number")
        return f"{float(value):.{digits}g}".replace("-", "−")
    return str(value)


def value_text(value: Any) -> str:
    """A prediction or a measurement in short."""
    if hasattr(value, "tolist"):
        value = np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items())
    if not isinstance(value, list | tuple):
        return number(value)
    if any(isinstance(inner, list | tuple) for inner in value):
        shape = np.shape(value) if _is_array(value) else (len(value),)
        if math.prod(shape) > _LONGEST_LIST:
            return _extremes(value, shape)
        return "; ".join(value_text(inner) for inner in value)
    if not value:
        return "none"
    if len(value) <= _LONGEST_LIST:
        return ", ".join(number(inner) for inner in value)
    ends = [number(inner) for inner in (*value[:2], *value[-2:])]
    return f"{ends[0]}, {ends[1]}, …, {ends[2]}, {ends[3]} ({len(value)} values)"


def _extremes(value: Any, shape: tuple[int, ...]) -> str:
    size = " × ".join(str(length) for length in shape)
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return f"{size} values"
    return f"{size} values from {number(array.min())} to {number(array.max())}"


def _is_array(value: Any) -> bool:
    try:
        np.asarray(value, float)
    except (TypeError, ValueError):
        return False
    return True


def error_text(check: Check) -> str:
    """How far a measurement is from its prediction, beside what is allowed."""
    if check.comparison == "equal":
        return "equal" if check.passed else "not equal"
    relation = "≤" if check.passed else ">"
    unit = " s.e." if check.comparison == "standard errors" else ""
    return f"{number(check.error, 2)} {relation} {number(check.tolerance, 2)}{unit}"


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    if seconds < 0.95:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 119.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"

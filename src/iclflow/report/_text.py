"""Numbers and settings as short, safe text. All text of the page passes through here."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..papers import TIERS, Check, Claim, Outcome

# A claim whose power is worse than this says so in its line.
COARSE = 0.1
# A sign for each verdict: readers who do not see colours can tell them apart.
SIGNS = {"holds": "✓", "fails": "✗", "inconclusive": "?", "misstated": "≠", "overread": "⊄"}
# Signs of one-sided comparisons.
_BOUNDS = {"at least": "≥", "at most": "≤", "above": ">", "below": "<"}
# Longer lists show their ends and their length.
_LONGEST_LIST = 6


def escape(text: Any) -> str:
    """Text escaped for HTML, inside elements and attributes alike."""
    return html.escape(str(text), quote=True)


def anchor(prefix: str, name: str) -> str:
    """An id for a link, made of safe characters."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name)
    return f"{prefix}-{safe}"


def count_of(count: int, noun: str) -> str:
    """A number with its noun, such as "2 runs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def number(value: Any, digits: int = 6) -> str:
    """A single value: integers in full, others to a few digits."""
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):  # before integers: a bool is one
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return {math.inf: "∞", -math.inf: "−∞"}.get(float(value), "not a number")
        return f"{float(value):.{digits}g}".replace("-", "−")  # a minus sign, not a hyphen
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
        return _rows_text(value)
    if not value:
        return "none"
    if len(value) <= _LONGEST_LIST:
        return ", ".join(number(inner) for inner in value)
    ends = [number(inner) for inner in (*value[:2], *value[-2:])]
    return f"{ends[0]}, {ends[1]}, …, {ends[2]}, {ends[3]} ({len(value)} values)"


def _rows_text(rows: Sequence[Any]) -> str:
    """Nested lists: a few numbers in full, of many the size and the extremes."""
    try:
        array = np.asarray(rows, float)
    except (TypeError, ValueError):  # texts, or rows of different lengths
        array = None
    shape = (len(rows),) if array is None else array.shape
    if math.prod(shape) <= _LONGEST_LIST:
        return "; ".join(value_text(inner) for inner in rows)
    size = f"{' × '.join(map(str, shape))} values"
    return size if array is None else f"{size} from {number(array.min())} to {number(array.max())}"


def predicted_text(check: Check) -> str:
    """A prediction in short, with its sign if it is a bound."""
    sign = f"{_BOUNDS[check.comparison]} " if check.comparison in _BOUNDS else ""
    return sign + value_text(check.predicted)


def error_text(check: Check) -> str:
    """The error of a measurement and its tolerance; for a bound, the measurement and the bound."""
    if check.mismatch:
        return check.mismatch
    if check.comparison == "equal":
        return "equal" if check.passed else "not equal"
    if check.comparison in _BOUNDS:
        return _bound_text(check)
    relation = "≤" if check.passed else ">"
    unit = " s.e." if check.comparison == "standard errors" else ""
    return f"{number(check.error, 2)} {relation} {number(check.tolerance, 2)}{unit}"


def _bound_text(check: Check) -> str:
    """The measurement that violates its bound most, or comes nearest to violating it."""
    sign, lower = _BOUNDS[check.comparison], check.comparison in ("at least", "above")
    measured, bound = np.asarray(check.measured, float), np.asarray(check.predicted, float)
    bound = np.broadcast_to(bound, measured.shape)
    spare = np.where(lower, measured - bound, bound - measured)
    # NaN satisfies no bound, and counts as worse than any number.
    worst = np.unravel_index(np.argmin(np.where(np.isnan(spare), -np.inf, spare)), spare.shape)
    relation = sign if check.passed else f"not {sign}"
    text = f"{number(float(measured[worst]), 4)} {relation} {number(float(bound[worst]), 4)}"
    if check.tolerance:
        text += f" {'−' if lower else '+'} {number(check.tolerance, 2)}"
    return text


def left_out_text(claims: Sequence[Claim]) -> str:
    """How many claims belong to slower tiers, and the command that computes them."""
    highest = max(claims, key=lambda claim: TIERS.index(claim.tier)).tier
    names = f" ({', '.join(claim.id for claim in claims)})" if len(claims) <= _LONGEST_LIST else ""
    verb = "belongs" if len(claims) == 1 else "belong"
    return (
        f"{count_of(len(claims), 'more claim')}{names} {verb} to a tier that takes longer: "
        f"iclflow verify --tier {highest}"
    )


def duration(seconds: float) -> str:
    """A time in milliseconds, seconds or minutes."""
    # The limits lie where rounding would show 1000 ms, and where minutes read better.
    if seconds < 0.95:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 119.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"


def power_text(outcome: Outcome) -> str:
    """How large an error of its predictions a claim would have noticed; empty if that has no
    meaning."""
    power = outcome.power
    if power is None:
        return ""
    if power == 0:
        return "notices any change of its predictions"
    # Two digits, but never as 6.5e+02.
    share = f"{float(f'{100 * power:.2g}'):g} %"
    if power > COARSE:
        return f"coarse: notices a prediction only if it is off by more than {share}"
    return f"notices a prediction that is off by {share}"

"""Numbers and lists as the sentences of the page write them."""

from collections.abc import Sequence

import numpy as np

# Below this size a number is zero up to rounding.
_ZERO = 1e-12
# Up to this many things are named one by one.
MOST_NAMED = 4


def number(value: float) -> str:
    """Four digits, with thousands set apart."""
    size = abs(value)
    if size < _ZERO:
        return "0"
    # Thousands are easier to read in full than in powers of ten.
    if 1e3 <= size < 1e7:
        text = f"{size:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    else:
        text = f"{size:.4g}" if size >= 1e-3 else f"{size:.2g}"
    return f"−{text}" if value < 0 else text


def percent(share: float) -> str:
    """Two digits, or as many as stand before the point."""
    value = 100 * share
    if value < 0.01:
        return "less than 0.01 %"
    if value < 1:
        return f"{value:.2g} %"
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"  # 9.95 would round to 10.0


def percent_done(share: float) -> str:
    """How much of something is complete; "100 %" only if nothing is left."""
    if not 0.99 < share < 1:
        return percent(min(max(share, 0.0), 1.0))
    # Rounded down: 99.96 % must not become 100 %.
    return f"{np.floor(1000 * share) / 10:.1f} %"


def list_numbers(noun: str, numbers: Sequence[int]) -> str:
    """Things by their numbers: "task 2", "tasks 1, 3"."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def sentence(parts: Sequence[str]) -> str:
    """Clauses as one sentence."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."

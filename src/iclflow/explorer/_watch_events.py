"""What a page is told of a training in another process: numbers as text, states as sentences."""

import json
import math
from array import array
from typing import Any

from ..watching import Columns, State, Turn

# Digits of the numbers of curves: a page has fewer points than they tell apart.
_DIGITS = "{:.5g}".format
_STATES: dict[State, str] = {
    "waiting": "No look yet: the training has begun, or will.",
    "running": "Running",
    "silent": "No look for longer than expected: the training may be stopped, or dead",
    "ended": "The training has ended, or was stopped: no process holds its record any more",
    "gone": "There is no record in this folder yet.",
}


def encode(type: str, **content: Any) -> str:
    """One event of a stream."""
    text = json.dumps({"type": type, **content}, separators=(",", ":"))
    return f"data: {text}\n\n"


def encode_points(columns: Columns, start: int, end: int) -> str:
    """Some looks as an event, column by column."""
    numbers = {name: _numbers(column[start:end]) for name, column in columns.numbers.items()}
    # Steps are whole numbers, and may have more digits.
    numbers["step"] = "[" + ",".join(f"{step:.0f}" for step in columns.steps[start:end]) + "]"
    parts = ",".join(f'"{name}":{text}' for name, text in numbers.items())
    labels = ",".join(
        "{" + ",".join(f"{json.dumps(name)}:{_numbers(column[start:end])}"
                       for name, column in known.items()) + "}"
        for known in columns.distances
    )  # fmt: skip
    return f'data: {{"type":"points","from":{start},{parts},"distances":[{labels}]}}\n\n'


def _numbers(column: array) -> str:
    if not any(math.isnan(value) or math.isinf(value) for value in column):
        return "[" + ",".join(map(_DIGITS, column)) + "]"
    texts = (_DIGITS(value) if math.isfinite(value) else "null" for value in column)
    return "[" + ",".join(texts) + "]"


def state_words(state: State, pace: float | None) -> str:
    """What a training does, in one sentence."""
    words = _STATES[state]
    if state == "running" and pace is not None:
        return f"{words}, a look every {_duration(pace)}."
    if state == "silent" and pace is not None:
        return f"{words}. The last looks came every {_duration(pace)}."
    return words if words.endswith(".") else f"{words}."


def verdicts_content(verdicts: dict[str, Any] | None) -> dict[str, Any]:
    """The verdicts of claims, and how many claims are about other trainings."""
    if verdicts is None:
        return {"step": None, "claims": [], "others": 0}
    about = [claim for claim in verdicts["claims"] if claim["verdict"] is not None]
    return {"step": verdicts["step"], "claims": about,
            "others": len(verdicts["claims"]) - len(about)}  # fmt: skip


def turn_words(turn: Turn) -> str:
    """What happened to the record, in one sentence."""
    if turn.kind == "other":
        return "The record was replaced by that of another training."
    if turn.kind == "resumed":
        return "The training was resumed: it goes on with its record."
    return f"The training repeats steps: its looks from step {turn.step or 0:.0f} on are replaced."


def _duration(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.2g} h"

"""The numbers of many looks as columns, straight from the lines of a record."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

Plain = dict[str, Any]
# The numbers of a look that are one per look.
NUMBERS = ("step", "seconds", "loss", "loss_error", "excess", "excess_error")


class Columns:
    """One entry per look in each column; what a look does not have is not a number.

    A record of 50 000 looks takes a few megabytes so, and some hundred as objects.

    **Fields:**

    - `numbers`: by the names of `NUMBERS`.
    - `nearest`, `closeness`: for each label, the name of the nearest estimator (None: not
      compared), and how near it is in one word.
    - `distances`: for each label, by the name of the estimator.
    """

    def __init__(self):
        self.numbers: dict[str, array] = {name: array("d") for name in NUMBERS}
        self.nearest: list[list[str | None]] = []
        self.closeness: list[list[str | None]] = []
        self.distances: list[dict[str, array]] = []

    def __len__(self) -> int:
        return len(self.numbers["step"])

    @property
    def steps(self) -> array:
        return self.numbers["step"]

    def add(self, look: Plain) -> None:
        """Appends a look; a `ValueError`, `TypeError` or `KeyError` for anything else, and then
        nothing is appended."""
        row = _numbers(look)
        labels = [
            {str(each["name"]): float(each["distance"]) for each in label}
            for label in look["distances"]
        ]
        closeness = [str(word) for word in look["closeness"]]
        if len(closeness) != len(labels) or not all(labels):
            raise ValueError("not one word for each label")
        count = len(self)
        while len(self.distances) < len(labels):
            self.distances.append({})
            self.nearest.append([None] * count)
            self.closeness.append([None] * count)
        for name, value in row.items():
            self.numbers[name].append(value)
        for label, known in enumerate(self.distances):
            found = labels[label] if label < len(labels) else {}
            # The nearest comes first.
            self.nearest[label].append(next(iter(found), None))
            self.closeness[label].append(closeness[label] if found else None)
            for name in found.keys() - known.keys():
                known[name] = array("d", [math.nan]) * count
            for name, column in known.items():
                column.append(found.get(name, math.nan))

    def cut(self, count: int) -> None:
        """Keeps only the first looks."""
        for column in (*self.numbers.values(), *self.nearest, *self.closeness):
            del column[count:]
        for known in self.distances:
            for column in known.values():
                del column[count:]


def turns(names: Sequence[str | None]) -> list[int]:
    """The places at which another name begins than the one before; None is passed over."""
    found: list[int] = []
    for index, name in enumerate(names):
        if name is not None and (not found or names[found[-1]] != name):
            found.append(index)
    return found


def named(names: Sequence[str | None]) -> list[str]:
    """The estimators that were the nearest at some look, the last one first.

    **Example:**

    ```pycon
    >>> from iclflow.watching import named
    >>> named(["zero", "zero", None, "one gradient step", "zero"])
    ['zero', 'one gradient step']
    ```
    """
    return list(dict.fromkeys(name for name in reversed(names) if name is not None))


def _numbers(look: Plain) -> dict[str, float]:
    loss, excess = look["loss"], look["excess"] or (math.nan, math.nan)
    step = look["step"]
    if not isinstance(step, int):
        raise TypeError("`step` is not a whole number")
    values = (step, look["seconds"], loss[0], loss[1], excess[0], excess[1])
    return dict(zip(NUMBERS, map(float, values)))

"""A watched training in words."""

import math
from collections.abc import Sequence
from typing import Any

from ._columns import Columns, turns

# Turns that are listed one by one, the last ones.
_MOST_TURNS = 8


def describe(columns: Columns, label: int = 0) -> list[str]:
    """What the model is, since when, and what it was before, for one label.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> folder = tempfile.mkdtemp() + "/record"
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, out=folder)
    >>> look = watch(0)
    >>> watch.close()
    >>> follower = watching.Follower(pathlib.Path(folder))
    >>> turn = follower.read()
    >>> isinstance(follower.columns, watching.Columns), len(watching.describe(follower.columns)) > 0
    (True, True)
    ```
    """
    if not len(columns):
        return []
    found = [_loss(columns)]
    if label < len(columns.nearest):
        found += _algorithm(columns, label)
    return found


def describe_plateaus(plateaus: Sequence[dict[str, Any]], drops: Sequence[float] = ()) -> str:
    """The plateaus of the loss so far and the drops between them, in one sentence.

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> watching.describe_plateaus([])
    'No plateau of the loss so far.'
    ```
    """
    if not plateaus:
        return "No plateau of the loss so far."
    each = ", ".join(
        f"{number(one['level'])} from step {one['start']:.0f} to {one['end']:.0f}"
        for one in plateaus
    )
    noun = "plateau" if len(plateaus) == 1 else "plateaus"
    steps = ", ".join(f"{step:.0f}" for step in drops)
    between = f"; half-way from one to the next at step {steps}" if drops else ""
    return f"{len(plateaus)} {noun} of the loss so far: {each}{between}."


def _loss(columns: Columns) -> str:
    last = {name: column[-1] for name, column in columns.numbers.items()}
    words = f"Step {last['step']:.0f}: loss {number(last['loss'])} ± {last['loss_error']:.1g}"
    if not math.isnan(last["excess"]):
        words += f", {number(last['excess'])} above Bayes"
    return f"{words}."


def _algorithm(columns: Columns, label: int) -> list[str]:
    nearest = columns.nearest[label]
    if nearest[-1] is None:
        return ["Its predictions are too large to be compared with estimators."]
    places = turns(nearest)
    found = [_now(columns, label, places[-1])]
    before = places[:-1][-_MOST_TURNS:]
    if before:
        earlier = len(places) - 1 - len(before)
        words = f"Before that, after {earlier} others: " if earlier else "Before that: "
        listed = (_then(columns, label, at) for at in before)
        found.append(f"{words}{', '.join(listed)}.")
    return found


def _now(columns: Columns, label: int, since: int) -> str:
    name, away = _nearest(columns, label, len(columns) - 1)
    end = f"since step {columns.steps[since]:.0f}, now {away} away."
    if columns.closeness[label][-1] == "unknown":
        return f"No known estimator: {name} is the nearest, {end}"
    return f"Nearest: {name}, {end}"


def _then(columns: Columns, label: int, at: int) -> str:
    name, away = _nearest(columns, label, at)
    return f"{name} from step {columns.steps[at]:.0f} ({away} away)"


def _nearest(columns: Columns, label: int, at: int) -> tuple[str, str]:
    """The nearest estimator at a look, and its distance in percent."""
    name = str(columns.nearest[label][at])
    return name, percent(columns.distances[label][name][at])


def percent(distance: float, digits: int = 3) -> str:
    """A relative distance in per cent: a model in float32 repeats an estimator no better than to
    1e-4, and below that digits mean nothing."""
    if distance < 1e-4:
        return "below 0.01 %"
    # Without an exponent: 100 %, and not 1e+02 %.
    is_long = 10.0 ** (digits - 1) <= 100 * distance < 1e6
    return f"{100 * distance:.0f} %" if is_long else f"{100 * distance:.{digits}g} %"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"

"""Power: the smallest relative change of a prediction that a check would have noticed.

A prediction p that had been p(1 + δ) would have failed the check against the same measurement as
soon as one of its values left the tolerance. The power is the smallest |δ| from which on this
holds for both signs of δ. A check that barely passes on one side notices a small change to that
side and needs a larger one to the other: the larger counts.
"""

import math

import numpy as np

from ._check import Check


def power_of(check: Check) -> float | None:
    """The power of a check; None if its prediction is zero, so that no relative change exists, and
    the check has no `scale`, or if nothing can be compared.

    Counts, orders and names notice every change, so their power is 0.

    **Example:**

    ```pycon
    >>> icl.papers.power_of(icl.papers.Check("loss", predicted=0.5, measured=0.5, tolerance=0.01))
    0.02
    ```
    """
    if check.comparison == "equal":
        return 0.0
    if check.mismatch:
        return None
    predicted = np.asarray(check.predicted, float)
    measured = np.broadcast_to(np.asarray(check.measured, float), np.shape(check.measured))
    predicted = np.broadcast_to(predicted, measured.shape)
    size = predicted if check.scale is None else np.asarray(check.scale, float)
    size = np.broadcast_to(size, measured.shape)
    if not size.any():
        return None
    # As arrays: NumPy makes a number of an array without axes.
    spare, allowed = np.asarray(measured - predicted), _allowed(check, predicted)
    moves = (np.asarray(size * sign) for sign in (1.0, -1.0))
    return max(_noticed(check, spare, move, allowed) for move in moves)


def _allowed(check: Check, predicted: np.ndarray) -> np.ndarray:
    """The deviation that the check allows for each value."""
    if check.comparison == "relative":
        return np.asarray(check.tolerance * np.abs(predicted))
    if check.comparison == "standard errors":
        error = np.asarray(check.standard_error, float)
        return np.asarray(check.tolerance * np.broadcast_to(error, predicted.shape))
    return np.full(predicted.shape, check.tolerance)


def _noticed(check: Check, spare: np.ndarray, move: np.ndarray, allowed: np.ndarray) -> float:
    """The smallest change to one side at which some value leaves its tolerance.

    **Arguments:**

    - `spare`: measured − predicted.
    - `move`: of the prediction, for a relative change of 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # The change at which predicted − measured reaches ± allowed, on the side it moves to.
        over = (allowed + spare) / move
        under = (-allowed + spare) / move
    reached = np.where(move > 0, over, under)
    if check.comparison in ("at least", "above"):  # fails if the limit rises above the measurement
        reached = np.where(move > 0, over, math.inf)
    elif check.comparison in ("at most", "below"):
        reached = np.where(move < 0, under, math.inf)
    if np.any(np.isinf(spare)):  # a measurement that is infinite notices nothing
        return math.inf
    changes = reached[np.isfinite(reached)]
    if changes.size == 0:
        # A limit that moves away from the measurement is never noticed; the other side counts.
        return 0.0
    return float(max(np.min(changes), 0.0))

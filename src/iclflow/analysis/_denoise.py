"""A loss curve without its sampling noise, at every time scale at once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view
from scipy.optimize import isotonic_regression

from ..trajectory import Trajectory

# A turn of the curve is real when it is larger than this many standard deviations of the noise
# and than this share of the range.
_TURN_IN_NOISE = 10.0
_TURN_IN_RANGE = 0.02
# The steps that monotone regression leaves in a noisy slope, in units of their typical size.
_RIPPLE = 4.0
# Noise depends on the loss, so it is measured in windows of this many points.
_WINDOW = 50


class Curve(NamedTuple):
    """A loss curve, and what is left of it when its noise is taken away.

    **Fields:**

    - `smooth`: the curve without noise; a monotone curve that had none is left as it is.
    - `noise`: the standard deviation of the noise, where it is largest.
    - `ripple`: changes of `smooth` smaller than this may come from noise.
    """

    times: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, " T"]
    smooth: Float[np.ndarray, " T"]
    noise: float
    ripple: float


def curve(run, losses=None) -> Curve:
    """The curve of a run, or of times and losses.

    Between its turning points a loss only falls or only rises: monotone regression finds the
    best such curve. It has no time scale of its own, so that a drop of ten steps and a plateau
    of a million survive side by side, and a monotone curve without noise comes out as it was.
    """
    times, losses = _checked(run, losses)
    turn = max(_TURN_IN_NOISE * _roughness(losses), _TURN_IN_RANGE * float(np.ptp(losses)))
    inner = [i for i in zigzag(losses, turn) if 0 < i < len(losses) - 1]
    smooth = losses.copy()
    for first, last in zip([0, *inner], [*inner, len(losses) - 1]):
        piece = smooth[first : last + 1]
        rises = bool(losses[last] > losses[first])
        piece[:] = isotonic_regression(losses[first : last + 1], increasing=rises).x
    squares = (losses - smooth) ** 2
    noise = float(np.sqrt(np.max(_windows(squares).mean(-1))))
    # On a slope of n points monotone regression makes steps of about (noise² · height / n)^(1/3).
    ripple = _RIPPLE * (noise**2 * float(np.ptp(smooth)) / len(losses)) ** (1 / 3)
    return Curve(times, losses, smooth, noise, ripple)


def zigzag(values: Float[np.ndarray, " n"], threshold: float) -> list[int]:
    """The turning points of a sequence that stand out by `threshold` or more.

    They alternate between high and low, and neighbours differ by at least the threshold. Empty
    if the sequence never moves that far.
    """
    turns: list[int] = []
    low = high = 0
    rising = None
    for i, value in enumerate(values):
        low = i if value < values[low] else low
        high = i if value > values[high] else high
        if rising is not True and value - values[low] >= threshold and value > values[low]:
            turns.append(low)
            rising, high = True, i
        elif rising is not False and values[high] - value >= threshold and value < values[high]:
            turns.append(high)
            rising, low = False, i
    return turns if rising is None else [*turns, high if rising else low]


def _checked(run, losses) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(run, Trajectory):
        if losses is not None:
            raise TypeError("A run brings its own losses: give `run` alone, or times and losses.")
        times, losses = run.times, run.losses
    elif losses is None:
        raise TypeError("Give a `Trajectory`, or times and losses.")
    else:
        times = run
    times, losses = np.asarray(times, np.float64), np.asarray(losses, np.float64)
    if times.ndim != 1 or times.shape != losses.shape or len(times) < 2:
        raise ValueError(
            f"`times` has shape {times.shape} and `losses` {losses.shape}: must be two sequences "
            "of one length, of at least 2 points."
        )
    if not (np.all(np.isfinite(times)) and np.all(np.isfinite(losses))):
        raise ValueError("`times` or `losses` holds NaN or infinity: must be finite.")
    if np.any(np.diff(times) <= 0):
        raise ValueError("`times` must increase strictly.")
    return times, losses


def _roughness(losses: np.ndarray) -> float:
    """The noise as seen in second differences; a smooth curve of well-placed points has little."""
    if len(losses) < 3:
        return 0.0
    # Noise of deviation σ has second differences of deviation √6 σ; 1.48 turns a median
    # absolute deviation into a standard one.
    jumps = np.abs(np.diff(losses, 2))
    return float(1.48 / 6**0.5 * np.max(np.median(_windows(jumps), -1)))


def _windows(values: np.ndarray) -> np.ndarray:
    return sliding_window_view(values, min(_WINDOW, len(values)))

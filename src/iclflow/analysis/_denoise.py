"""A loss curve without its sampling noise, at every time scale at once."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import InputError, Refusal
from ..trajectory import Trajectory

# A turning point of the curve is real above this share of the range, and above this many standard
# deviations of the noise. (The median filter leaves a quarter of the noise: about ten of those.)
_TURN_IN_RANGE = 0.05
_TURN_IN_NOISE = 3.0
# The width of that filter, in points.
_MEDIAN = 21
# Noise depends on the loss, so it is measured in windows of this many points.
_WINDOW = 51
# Roughness is noise if monotone regression removes at least this share of it. If not, the curve is
# smooth and has few points.
_EVIDENCE = 0.05
# Turns a median absolute deviation of normal noise into a standard deviation.
_MEDIAN_TO_DEVIATION = 1.48
# The height over which the steps left by monotone regression average out, in units of their
# typical size. Calibrated on noisy straight lines, which must come out without plateaus.
_RIPPLE = 7.0


class Curve(NamedTuple):
    """A loss curve with and without its noise.

    **Fields:**

    - `smooth`: the curve without noise; a monotone curve without noise is unchanged.
    - `ripple`: changes of `smooth` below this may come from noise; 0 if there is none.
    """

    times: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, " T"]
    smooth: Float[np.ndarray, " T"]
    ripple: Float[np.ndarray, " T"]


# What has a curve: a run, times (with losses beside them), or a curve that was denoised before.
Source = Trajectory | Curve | ArrayLike


def curve(run: Source, losses: ArrayLike | None = None) -> Curve:
    """The curve of a run, or of times and losses; a `Curve` itself.

    Between its turning points a loss only falls or only rises: monotone regression finds the
    nearest such curve. It has no time scale, so that a drop of ten steps and a plateau of a million
    are both kept, and it leaves a monotone curve without noise as it is.
    """
    if isinstance(run, Curve):
        return run
    times, losses = _check_curve(run, losses)
    smooth, roughness = losses.copy(), _roughness(times, losses)
    pieces = list(_monotone_pieces(losses, float(roughness.max())))
    for piece, rises in pieces:
        smooth[piece] = scipy.optimize.isotonic_regression(losses[piece], increasing=rises).x
    with np.errstate(over="ignore"):  # losses of a run that diverges may be 1e190
        squares = (losses - smooth) ** 2
    taken = np.sqrt(np.maximum(_box_mean(squares), 0.0))
    # Where the slope is as large as the noise, the regression removes too little of it: there the
    # roughness is the better estimate.
    noise = np.where(taken > _EVIDENCE * roughness, np.maximum(taken, roughness), taken)
    noise = scipy.ndimage.maximum_filter1d(noise, _WINDOW, mode="nearest")
    # On a slope (per point) monotone regression makes steps of about (noise² · slope)^(1/3).
    mean_slope = float(np.ptp(smooth)) / len(smooth)
    least = _RIPPLE * np.cbrt(noise**2 * mean_slope)
    for piece, rises in pieces:
        _cut_spikes(smooth[piece], losses[piece], rises, noise[piece], least[piece])
    ripple = _RIPPLE * np.cbrt(noise**2 * np.maximum(_slope(smooth), mean_slope))
    return Curve(times, losses, smooth, ripple)


def zigzag(values: Float[np.ndarray, " n"], threshold: float) -> list[int]:
    """The turning points of a sequence, alternately high and low, that differ by `threshold` or
    more from their neighbours; empty if the sequence never moves that far.

    The ends of the sequence can be among them.
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


def _monotone_pieces(losses: np.ndarray, noise: float) -> Iterator[tuple[slice, bool]]:
    """The pieces between turning points, and whether the loss rises there."""
    # Not more than a tenth of a short curve.
    width = min(_MEDIAN, 2 * (len(losses) // 20) + 1)
    filtered = scipy.ndimage.median_filter(losses, width, mode="nearest")
    turn = max(_TURN_IN_NOISE * noise, _TURN_IN_RANGE * float(np.ptp(filtered)))
    turns = zigzag(filtered, turn)[1:-1]
    for first, last in zip([0, *turns], [*turns, len(losses) - 1]):
        yield slice(first, last + 1), bool(filtered[last] > filtered[first])


def _cut_spikes(
    smooth: np.ndarray, losses: np.ndarray, rises: bool, noise: np.ndarray, ripple: np.ndarray
) -> None:
    """Keeps monotone regression from following single points at its two ends, in place.

    Its first value on a falling curve is the largest mean over the first j points, for any j. Here
    j must be so large that this mean is known to a third of the ripple.
    """
    for end in (slice(None), slice(None, None, -1)):
        if ripple[end][0] == 0:
            continue
        count = min(int(np.ceil((3 * noise[end][0] / ripple[end][0]) ** 2)), len(losses))
        means = np.cumsum(losses[end])[count - 1 :] / np.arange(count, len(losses) + 1)
        if rises == (end.step is None):
            np.maximum(smooth, means.min(), out=smooth)
        else:
            np.minimum(smooth, means.max(), out=smooth)


def _roughness(times: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """The noise around each point: its distance from the cubic through its four neighbours.

    It is almost 0 for a smooth curve that is well sampled, and σ for white noise of deviation σ.
    """
    if len(losses) < 5:  # too few for a cubic
        return np.zeros_like(losses)
    # Lagrange weights of the two neighbours on each side; points need not be evenly spaced.
    offsets = np.stack([times[i : len(times) - 4 + i] - times[2:-2] for i in (0, 1, 3, 4)])
    weights = np.stack(
        [
            np.prod([offsets[j] / (offsets[j] - offsets[i]) for j in range(4) if j != i], axis=0)
            for i in range(4)
        ]
    )
    around = np.stack([losses[i : len(losses) - 4 + i] for i in (0, 1, 3, 4)])
    gaps = np.abs(losses[2:-2] - np.sum(weights * around, 0)) / np.sqrt(1 + np.sum(weights**2, 0))
    width = min(_WINDOW, len(gaps))
    local = _MEDIAN_TO_DEVIATION * scipy.ndimage.median_filter(gaps, width, mode="nearest")
    return np.pad(local, 2, mode="edge")


def _slope(smooth: np.ndarray) -> np.ndarray:
    """The change per point before or after each point, whichever is smaller: a drop next to a
    plateau leaves no ripple on it."""
    half = min(_WINDOW // 2, len(smooth) - 1)
    path = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(smooth)))])
    around = np.pad(path, half, mode="edge")
    before = path - around[: len(path)]
    after = around[2 * half :] - path
    return np.minimum(before, after) / half


def _box_mean(values: np.ndarray) -> np.ndarray:
    return scipy.ndimage.uniform_filter1d(values, min(_WINDOW, len(values)), mode="nearest")


def crossing_time(times: np.ndarray, values: np.ndarray, left: int, target: float) -> float:
    """When a curve that is linear between its points reaches `target` after point `left`."""
    low, high = values[left], values[left + 1]
    share = (target - low) / (high - low) if high != low else 0.0
    return float(times[left] + min(max(share, 0.0), 1.0) * (times[left + 1] - times[left]))


def _check_curve(
    run: Trajectory | ArrayLike, losses: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(run, Trajectory):
        if losses is not None:
            raise TypeError("A run brings its own losses: give `run` alone, or times and losses.")
        run, losses = run.times, run.losses
    elif losses is None:
        raise TypeError("Give a `Trajectory`, or times and losses.")
    times, losses = np.asarray(run, np.float64), np.asarray(losses, np.float64)
    if times.ndim != 1 or times.shape != losses.shape:
        raise InputError(
            f"`times` has shape {times.shape} and `losses` {losses.shape}: must be two sequences "
            "of one length."
        )
    # A run that was stopped early, or diverged, may have these: refused, not a wrong argument.
    if len(times) < 2:
        raise Refusal(f"`times` has {len(times)} points: a curve needs at least 2 points.")
    if not (np.all(np.isfinite(times)) and np.all(np.isfinite(losses))):
        raise Refusal("`times` or `losses` holds NaN or infinity: must be finite.")
    if np.any(np.diff(times) <= 0):
        raise InputError("`times` must increase strictly.")
    return times, losses

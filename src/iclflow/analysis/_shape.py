"""The shape of a whole loss curve: abrupt, stepwise, or exponential."""

from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import InputError, Refusal
from ..trajectory import Trajectory
from ._drops import passage_times

# The search for the rate of an exponential: on a grid from a hundredth to a hundred times that of
# the half-way point (e^±4.6), then between the neighbours of the best, to this accuracy.
_RATE_GRID = np.linspace(-4.6, 4.6, 47)
_GRID_STEP = 0.2
_RATE_TOLERANCE = 1e-10


def sharpness(run: Trajectory, floor: float | None = None, top: float | None = None) -> float:
    """t₁₀/t₉₀, the times at a tenth and at nine tenths of the way down.

    It is 1 for a step, ln(10/9)/ln 10 = 0.0458 for an exponential, and NaN if the run ends before.

    **Arguments:**

    - `floor`: the smallest loss; by default the last of the run.
    - `top`: the loss that the way down starts from; by default the first of the run.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> round(icl.analysis.sharpness(run), 1)
    0.2
    ```
    """
    top = float(run.losses[0]) if top is None else top
    floor = float(run.losses[-1]) if floor is None else floor
    early, late = passage_times(run, [0.1, 0.9], top=top, bottom=floor)
    return float(early / late)


def plateau_fraction(
    run: Trajectory, levels: ArrayLike, within: float = 0.02, end: float = 0.999
) -> float:
    """The share of the time until `end` of the way down that the loss spends on plateaus.

    **Arguments:**

    - `levels`: the losses of all plateaus, from the largest to the smallest; the last is where
      learning ends and does not count as a plateau.
    - `within`: the largest distance from a level, as a share of the whole way from first to last.
    - `end`: the share of that way where the clock stops; at the latest where the run ends.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> levels = [1.0, 0.4585, 0.0884]
    >>> round(icl.analysis.plateau_fraction(run, levels), 1)
    1.0
    ```
    """
    levels = np.asarray(levels, np.float64)
    if levels.ndim != 1 or len(levels) < 2 or not np.all(np.diff(levels) < 0):
        raise InputError("levels", levels, "must be at least 2 numbers that fall from the first")
    (stop,) = passage_times(run, [end], top=levels[0], bottom=levels[-1])
    stop = float(run.times[-1]) if np.isnan(stop) else float(stop)
    start = float(run.times[0])
    band = within * (levels[0] - levels[-1])
    bounds = [(level - band, level + band) for level in levels[-2::-1]]
    inside = sum(
        _time_between(run, low, high, start, stop) for low, high in _merge_intervals(bounds)
    )
    return inside / (stop - start)


class ExponentialFit(NamedTuple):
    """The exponential floor + height · exp(−rate · t) that is nearest to a loss curve.

    **Fields:**

    - `deviation`: the largest distance between the two, as a share of the way down.
    """

    rate: float
    floor: float
    height: float
    deviation: float

    def loss(self, times: ArrayLike) -> np.ndarray:
        return self.floor + self.height * np.exp(-self.rate * np.asarray(times))


def exponential_fit(run: Trajectory, points: int = 200) -> ExponentialFit:
    """How well one exponential describes a run, as it must in the lazy limit with one rate.

    The fit is by least squares at moments that are equally spaced in loss, so that each part of the
    way down counts alike, however long it takes and however it was saved.

    **Arguments:**

    - `points`: the number of these moments.

    **Example:**

    ```pycon
    >>> times = np.linspace(0, 5, 200)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> still = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (200, *leaf.shape)), model)
    >>> run = icl.Trajectory(times, 0.1 + np.exp(-2 * times), still)
    >>> fit = icl.analysis.exponential_fit(run)
    >>> round(fit.rate, 2), round(fit.floor, 2)
    (2.0, 0.1)
    ```
    """
    top, bottom = float(run.losses[0]), float(run.losses[-1])
    if not bottom < top:
        raise Refusal(f"The loss ends at {bottom:g} and starts at {top:g}: must fall.")
    shares = np.linspace(0, 1, points + 2)[1:-1]
    times = passage_times(run, shares, top=top, bottom=bottom)
    times, losses = np.append(run.times[0], times), np.append(top, top + shares * (bottom - top))

    def fit(log_rate: float) -> tuple[float, np.ndarray]:
        features = np.stack([np.ones_like(times), np.exp(-np.exp(log_rate) * times)], -1)
        weights = np.linalg.lstsq(features, losses, rcond=None)[0]
        return float(np.sum((features @ weights - losses) ** 2)), weights

    guesses = np.log(np.log(2) / times[len(times) // 2]) + _RATE_GRID
    best = guesses[int(np.argmin([fit(guess)[0] for guess in guesses]))]
    near = (best - _GRID_STEP, best + _GRID_STEP)
    options = {"xatol": _RATE_TOLERANCE}
    found: Any = scipy.optimize.minimize_scalar(
        lambda g: fit(g)[0], bounds=near, method="bounded", options=options
    )
    _, (floor, height) = fit(found.x)
    rate = float(np.exp(found.x))
    deviation = np.max(np.abs(floor + height * np.exp(-rate * times) - losses)) / (top - bottom)
    return ExponentialFit(rate, float(floor), float(height), float(deviation))


def _time_between(run: Trajectory, low: float, high: float, start: float, stop: float) -> float:
    """How long the loss, linear between saved points, lies between two values."""
    times = np.clip(run.times, start, stop)
    losses = np.interp(times, run.times, run.losses)
    before, after = losses[:-1], losses[1:]
    bottom, top = np.minimum(before, after), np.maximum(before, after)
    width = top - bottom
    overlap = np.clip(np.minimum(top, high) - np.maximum(bottom, low), 0.0, None)
    flat = (bottom >= low) & (top <= high)
    share = np.where(width > 0, overlap / np.where(width > 0, width, 1.0), flat)
    return float(np.sum(np.diff(times) * share))


def _merge_intervals(bounds: list[tuple[float, float]]) -> Float[np.ndarray, "n 2"]:
    """Merges sorted intervals that overlap, so that no moment counts for two levels."""
    disjoint: list[list[float]] = []
    for low, high in bounds:
        if disjoint and low <= disjoint[-1][1]:
            disjoint[-1][1] = max(disjoint[-1][1], high)
        else:
            disjoint.append([low, high])
    return np.asarray(disjoint)

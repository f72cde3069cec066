"""Checks of the numbers that the theory of softmax attention is a function of.

One isotropic task is three numbers (arXiv 2503.12734): x, q ~ N(0, I_d), β ~ N(0, I/d),
y = β·x + ε with Var ε = σ², and L labelled pairs. E(β·x)² = 1, so losses count in units of the
signal; they include the noise σ² of the query label.
"""

from typing import NamedTuple

import numpy as np

from ..precision import check_made_in_float64
from ..tasks import LinearRegression, MultiTaskRegression, is_whole


class Setting(NamedTuple):
    """d, L and σ², checked."""

    dim: float
    length: float
    noise: float

    @property
    def across(self) -> float:
        """(d − 1)/d + σ²: what a label tells beside its part along the query, plus noise."""
        return (self.dim - 1) / self.dim + self.noise

    @property
    def spread(self) -> float:
        """a = (1 + σ²)/L, the variance that an average over all labels has."""
        return (1 + self.noise) / self.length


def checked_setting(dim, length, noise, shortest: float = 1) -> Setting:
    """d ≥ 1, L ≥ `shortest` and σ² ≥ 0, all finite; L need not be whole."""
    for name, value, least in (("dim", dim, 1), ("length", length, shortest), ("noise", noise, 0)):
        if not np.isfinite(value) or value < least:
            raise ValueError(f"`{name}` = {value}: must be finite and at least {least}.")
    return Setting(float(dim), float(length), float(noise))


def checked_whole(name: str, value, least: int = 1) -> int:
    """`value` as a whole number from `least` up."""
    # A string of digits is told with its quotes: it looks like a number without them.
    if isinstance(value, str) or not is_whole(value) or value < least:
        told = repr(value) if isinstance(value, str) else value
        raise ValueError(f"`{name}` = {told}: must be a whole number from {least} up.")
    return int(value)


def checked_softmax_heads(omega, mu) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of the heads, one finite number each."""
    omega, mu = np.asarray(omega, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    if omega.ndim != 1 or omega.shape != mu.shape or not len(omega):
        raise ValueError(
            f"`omega` has shape {omega.shape} and `mu` {mu.shape}: both must be one number a head."
        )
    if not (np.all(np.isfinite(omega)) and np.all(np.isfinite(mu))):
        raise ValueError("`omega` or `mu` holds NaN or infinity: every entry must be finite.")
    return omega, mu


def checked_times(times) -> np.ndarray:
    """A vector of finite times that does not decrease, from 0 up."""
    times = np.asarray(times, dtype=np.float64)
    rising = times.ndim == 1 and len(times) > 0 and times[0] >= 0 and np.all(np.diff(times) >= 0)
    if not rising or not np.isfinite(times[-1]):
        raise ValueError("`times` must be a vector that does not decrease, from 0 up, and finite.")
    return times


def only_length(task: LinearRegression | MultiTaskRegression) -> int:
    """The one context length of a task."""
    if len(task.contexts) != 1:
        raise ValueError(f"`task` has the lengths {task.contexts}: must have one context length.")
    return task.contexts[0]


def isotropic_numbers(task: LinearRegression) -> tuple[int, int, float]:
    """(d, L, σ²) of an isotropic task, as the functions of softmax attention take them.

    The task must have Λ = I, E[ββᵀ] = I/d, one context length, and noise on the query label too.
    """
    check_made_in_float64(task=task)
    length = only_length(task)
    identity = np.eye(task.dim)
    given = (task.covariance, np.asarray(task.weight_second_moment) * task.dim)
    if any(np.max(np.abs(np.asarray(matrix) - identity)) > 1e-10 for matrix in given):
        raise ValueError(
            "`task` is not isotropic: inputs must have covariance I and task vectors E[ββᵀ] = I/d."
        )
    if not task.noisy_query and float(task.noise) > 0:
        raise ValueError("`task` has a noiseless query: losses here include its noise σ².")
    return task.dim, length, float(task.noise)

"""What the multi-task theory needs to know of a task: its blocks of coordinates."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...precision import check_made_in_float64
from ...tasks import MultiTaskRegression
from .._softmax_setting import only_length


class Blocks(NamedTuple):
    """I tasks, each on d_i coordinates of its own: y_i = β_i·x_i + ε_i, β_i ~ N(0, λ_i I).

    **Fields:**

    - `sizes`: d_i.
    - `signal`: λ_i.
    - `noise`: σ_i².
    - `length`: L, the context length; any real number.
    """

    sizes: Float[np.ndarray, " I"]
    signal: Float[np.ndarray, " I"]
    noise: Float[np.ndarray, " I"]
    length: float

    @property
    def power(self) -> Float[np.ndarray, " I"]:
        """λ_i d_i: the loss of predicting zero, beyond the noise."""
        return self.signal * self.sizes

    @property
    def phi(self) -> Float[np.ndarray, " I"]:
        """φ_i = 1 + σ_i²/(λ_i d_i): the variance of a label over that of its signal."""
        return 1 + self.noise / self.power

    @property
    def samples(self) -> Float[np.ndarray, " I"]:
        """κ_i = L/(φ_i d_i): samples a coordinate, discounted for noise."""
        return self.length / (self.phi * self.sizes)


def blocks_of(task: MultiTaskRegression) -> Blocks:
    """The numbers of a task whose coordinate sets do not overlap; rotations change nothing.

    The task needs one context length, and signal in every label.
    """
    if not isinstance(task, MultiTaskRegression):
        raise TypeError(f"`task` is a {type(task).__name__}: must be a MultiTaskRegression.")
    check_made_in_float64(task=task)
    if not task.disjoint:
        raise ValueError(f"`task.coordinates` = {task.coordinates}: must not overlap.")
    sizes = np.array([len(coordinates) for coordinates in task.coordinates], float)
    signal, noise = (np.asarray(value, float) for value in (task.signal, task.noise))
    if not np.all(signal > 0):
        raise ValueError(f"`task.signal` = {signal.tolist()}: must be positive, for every task.")
    return Blocks(sizes, signal, noise, float(only_length(task)))

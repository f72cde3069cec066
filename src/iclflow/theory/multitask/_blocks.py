"""The numbers that describe several tasks, each on its own block of coordinates."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...runtime.precision import check_made_in_float64
from ...tasks import MultiTaskRegression
from .._check import TasksLike, check_numbers, check_positive
from .._softmax_setting import only_length


@dataclass(frozen=True, eq=False)
class Blocks:
    """I tasks, each on its own d_i coordinates: y_i = β_i·x_i + ε_i, β_i ~ N(0, λ_i I).

    Every function of a task with several labels also takes `Blocks` in its place. A task can be
    sampled, so its sizes and its length are whole numbers; limits and curves over d/L need others.

    **Fields:**

    - `sizes`: d_i.
    - `signal`: λ_i.
    - `noise`: σ_i².
    - `length`: L, the context length; any real number.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3, 4]], context=40, noise=0.1)
    >>> blocks = icl.theory.multitask.Blocks.of(task)
    >>> blocks.sizes, blocks.signal.round(3), blocks.length
    (array([2., 3.]), array([0.5  , 0.333]), 40.0)
    >>> blocks.samples.round(3)
    array([18.182, 12.121])
    >>> # Any real length: the loss of one head per task on contexts of 100.5 pairs.
    >>> icl.theory.multitask.gradient_flow_limit(blocks.with_length(100.5)).losses.round(4)
    array([0.0562, 0.0819])
    ```
    """

    sizes: Float[np.ndarray, " I"]
    signal: Float[np.ndarray, " I"]
    noise: Float[np.ndarray, " I"]
    length: float

    def __init__(self, sizes: TasksLike, signal: TasksLike, noise: TasksLike, length: float):
        found = {"sizes": check_numbers("blocks.sizes", sizes, 1)}
        for name, value in (("signal", signal), ("noise", noise)):
            found[name] = check_numbers(f"blocks.{name}", value, 1, found["sizes"].shape)
        for name in ("sizes", "signal"):
            if not np.all(found[name] > 0):
                raise Refusal(f"`blocks.{name}` = {found[name].tolist()}: must be positive.")
        if np.any(found["noise"] < 0):
            raise Refusal(f"`blocks.noise` = {found['noise'].tolist()}: must not be negative.")
        length = check_positive("blocks.length", length)
        for name, value in {**found, "length": length}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, task: "Tasks") -> "Blocks":
        """The numbers of a task whose coordinate sets do not overlap; rotations do not change them.

        The task needs one context length, and signal in every label; others are refused.
        """
        if isinstance(task, Blocks):
            return task
        if not isinstance(task, MultiTaskRegression):
            raise TypeError(f"`task` is a {type(task).__name__}: must be a MultiTaskRegression.")
        check_made_in_float64(task=task)
        if not task.disjoint:
            raise Refusal(f"`task.coordinates` = {task.coordinates}: must not overlap.")
        sizes = np.array([len(coordinates) for coordinates in task.coordinates], float)
        signal, noise = (np.asarray(value, float) for value in (task.signal, task.noise))
        if not np.all(signal > 0):
            raise Refusal(f"`task.signal` = {signal.tolist()}: must be positive, for every task.")
        return cls(sizes, signal, noise, float(only_length(task)))

    def with_length(self, length: float) -> "Blocks":
        """The same tasks with contexts of another length."""
        return replace(self, length=length)

    @property
    def count(self) -> int:
        """I, the number of tasks."""
        return len(self.sizes)

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
        """κ_i = L/(φ_i d_i): samples per coordinate, discounted for noise."""
        return self.length / (self.phi * self.sizes)


Tasks = MultiTaskRegression | Blocks

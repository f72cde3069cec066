"""The common interface of linear regressions, with labels as an axis."""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._base import AbstractTask

if TYPE_CHECKING:
    from ._linear_regression import LinearRegression


class AbstractRegression(AbstractTask):
    """Labels y_i = w_i·x + ε_i on inputs x ~ N(0, Λ), with Gaussian w_i independent of each other.

    Code that needs no more than this works for every subclass: `parts` are the regressions of
    single labels, which hold the prior of each w_i, and `output_rotation` mixes the labels.

    **Fields:**

    - `covariance`: Λ.
    - `noise`: the variance of ε, one number or one for each label.
    - `contexts`, `context_probabilities`: the context lengths and their probabilities.
    - `noisy_query`: whether the query labels have noise too.
    - `output_rotation`: P, if tokens hold Py instead of y.

    **Example:**

    ```pycon
    >>> for task in (icl.isotropic(4), icl.MultiTaskRegression([[0, 1], [2, 3]])):
    ...     print(type(task).__name__, task.labels, len(task.parts), task.masks.shape)
    LinearRegression 1 1 (1, 4)
    MultiTaskRegression 2 2 (2, 4)
    ```
    """

    covariance: eqx.AbstractVar[Float[Array, "D D"]]
    noise: eqx.AbstractVar[Float[Array, "*I"]]
    contexts: eqx.AbstractVar[tuple[int, ...]]
    context_probabilities: eqx.AbstractVar[Float[Array, " K"]]
    noisy_query: eqx.AbstractVar[bool]
    output_rotation: eqx.AbstractVar[Float[Array, "I I"] | None]

    @property
    @abc.abstractmethod
    def parts(self) -> tuple["LinearRegression", ...]:
        """The regression of each label alone, on all inputs, before a rotation of the labels."""

    @property
    @abc.abstractmethod
    def masks(self) -> Float[Array, "I D"]:
        """1 where a label depends on an input, else 0, in the coordinates of `input_basis`."""

    @property
    @abc.abstractmethod
    def input_basis(self) -> Float[np.ndarray, "D D"] | None:
        """The directions of the inputs (columns) in which the task is diagonal; None: the axes."""

    @property
    def max_context(self) -> int:
        return max(self.contexts)

    @property
    def query_noise(self) -> Float[Array, "*I"]:
        """The variance of the noise of the query labels: σ², or 0 if the query has none."""
        return self.noise if self.noisy_query else jnp.zeros_like(self.noise)

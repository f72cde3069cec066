"""Regression whose task vector is one of finitely many: pretraining on K tasks."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..errors import InputError
from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import check_array, check_choice, check_count, check_key, is_real
from ._draw import draw_sequences
from ._linear_regression import LinearRegression, symmetric_root
from ._posterior import discrete_posterior

TaskLaw = Literal["gaussian", "sphere"]
"""How task vectors are drawn.

**Example:**

```pycon
>>> icl.tasks.TaskLaw.__args__
('gaussian', 'sphere')
```
"""


class FiniteTasks(AbstractTask):
    """One label, y = w·x + ε, whose task vector w is one of K, all equally likely
    (arXiv 2306.15063).

    A model that is trained on it may learn the K tasks, or the algorithm that solves unseen ones:
    `fresh` is the task to test that on. Linear attention without its full form sees the tasks
    through their second moment alone; with it, through the moments in `docs/theory/linear.md`.

    **Example:**

    ```pycon
    >>> fresh = icl.isotropic(4, context=20, noise=0.1)
    >>> task = icl.FiniteTasks.draw(jr.key(0), 3, fresh, law="sphere")
    >>> model = icl.Attention.separate(jr.key(1), dim=4, heads=4)
    >>> icl.available_kinds(task, model)
    ('exact', 'dataset', 'minibatch', 'sampled')
    ```

    **Fields:**

    - `vectors`: w of each task, one row each.
    - `fresh`: the same sequences with unseen tasks: it holds the law of inputs, noise and lengths,
      which all tasks share, and the prior of unseen task vectors.
    """

    vectors: Float[Array, "K D"]
    fresh: LinearRegression

    def __init__(self, vectors: ArrayLike | Sequence[Sequence[float]], fresh: LinearRegression):
        """**Arguments:**

        - `vectors`: w of each task, one row each. Tasks that coincide count as often as they occur.
        - `fresh`: the law of inputs, noise and lengths, and of unseen tasks. Its prior may differ
          from what `vectors` were drawn from: then it tests another distribution of tasks.
        """
        _check_regression(fresh)
        rows = check_array("vectors", vectors, 2)
        if rows.shape[1] != fresh.dim:
            raise InputError(
                "vectors",
                problem=f"has {rows.shape[1]} columns",
                allowed=f"must have {fresh.dim}, one per input",
            )
        self.vectors, self.fresh = as_float(rows), fresh

    @staticmethod
    def draw(
        key: PRNGKeyArray,
        count: int,
        fresh: LinearRegression,
        law: TaskLaw = "gaussian",
        clusters: int | None = None,
        spread: float = 0.0,
    ) -> "FiniteTasks":
        """K tasks drawn from the prior of `fresh`, or with its mean and covariance.

        **Arguments:**

        - `count`: K.
        - `law`: `"gaussian"` draws from the prior N(w₀, Γ); `"sphere"` gives w = w₀ + √D Γ^½ u with
          u of norm 1.
        - `clusters`: the number of centres that tasks are near, in turn; by default none.
        - `spread`: the share of the variance that is within clusters, from 0 to 1.
        """
        _check_regression(fresh)
        check_key(key)
        count = check_count("count", count)
        check_choice("law", law, get_args(TaskLaw))
        if not is_real(spread) or not 0 <= spread <= 1:
            raise InputError("spread", spread, "must lie between 0 and 1")
        if clusters is None:
            unit = _directions(key, count, fresh.dim, law)
        else:
            clusters = check_count("clusters", clusters, count)
            key_centre, key_task = jr.split(key)
            centres = _directions(key_centre, clusters, fresh.dim, law)
            own = _directions(key_task, count, fresh.dim, law)
            unit = np.sqrt(1 - spread) * centres[np.arange(count) % clusters]
            unit = unit + np.sqrt(spread) * own
        root = np.asarray(symmetric_root(fresh.prior_covariance))
        return FiniteTasks(np.asarray(fresh.prior_mean) + unit @ root, fresh)

    @property
    def dim(self) -> int:
        return self.fresh.dim

    @property
    def count(self) -> int:
        """K, the number of tasks."""
        return self.vectors.shape[0]

    @property
    def max_context(self) -> int:
        return self.fresh.max_context

    @property
    def weight_second_moment(self) -> Float[Array, "D D"]:
        """M = (1/K) Σ w_k w_kᵀ."""
        return _second_moment(self.vectors)

    @property
    def matched(self) -> LinearRegression:
        """The regression with Gaussian tasks of the same mean and covariance.

        What depends on the tasks through their first two moments alone, such as the risk of reduced
        linear attention, is the same on both.
        """
        mean = jnp.mean(self.vectors, 0)
        # About the mean: for one task the covariance is exactly zero.
        covariance = _second_moment(self.vectors - mean)
        return eqx.tree_at(
            lambda task: (task.prior_mean, task.prior_covariance), self.fresh, (mean, covariance)
        )

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            w = self.vectors[jr.randint(key, (count,), 0, self.count)]
            return jnp.einsum("pnd,pd->pn", x, w)[..., None]

        return draw_sequences(
            key,
            count,
            self.dim,
            values,
            self.fresh.noise,
            self.fresh.noisy_query,
            self.fresh.contexts,
            probabilities=self.fresh.context_probabilities,
            root=symmetric_root(self.fresh.covariance),
        )

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return discrete_posterior(sequences, self.vectors, self.fresh.noise).mean

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        found = discrete_posterior(sequences, self.vectors, self.fresh.noise)
        return found.variance + self.fresh.query_noise


def same_moments(task: AbstractTask) -> AbstractTask:
    """A task on which everything is the same that depends on the mean and the covariance of task
    vectors alone: the Gaussian one for finitely many tasks, else the task itself.

    **Example:**

    ```pycon
    >>> task = icl.FiniteTasks([[1.0, 0.0], [0.0, 1.0]], icl.isotropic(2, context=5))
    >>> type(icl.tasks.same_moments(task)).__name__
    'LinearRegression'
    ```
    """
    return task.matched if isinstance(task, FiniteTasks) else task


def _check_regression(fresh: Any) -> None:
    if not isinstance(fresh, LinearRegression):
        raise TypeError(f"`fresh` is a {type(fresh).__name__}: must be a LinearRegression.")


@jax.jit
def _second_moment(rows: Float[Array, "K D"]) -> Float[Array, "D D"]:
    return rows.T @ rows / rows.shape[0]


def _directions(key: PRNGKeyArray, count: int, dim: int, law: TaskLaw) -> Float[np.ndarray, "K D"]:
    """Vectors of mean zero and covariance I."""
    drawn = np.asarray(jr.normal(key, (count, dim)), np.float64)
    if law == "gaussian":
        return drawn
    return np.sqrt(dim) * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

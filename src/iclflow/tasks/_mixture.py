"""In-context and in-weight learning: mixtures of both, and a probe for the latter."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ._base import AbstractTask, Sequences
from ._check import check_draw, check_nonnegative, check_probabilities, check_vector
from ._linear_regression import LinearRegression


class Mixture(AbstractTask):
    """Each sequence comes from one of several linear-regression tasks, drawn at random.

    **Example:**

    ```pycon
    >>> near, far = icl.isotropic(3, noise=0.1), icl.isotropic(3, noise=1.0)
    >>> task = icl.Mixture([near, far], [0.5, 0.5])
    >>> sequences = task.sample(jr.key(0), 4)
    >>> task.component_posterior(sequences).shape
    (2, 4)
    ```
    """

    components: tuple[LinearRegression, ...]
    probabilities: Float[Array, " K"]

    def __init__(
        self,
        components: Sequence[LinearRegression],
        probabilities: ArrayLike | Sequence[float],
    ):
        """**Arguments:**

        - `components`: the tasks; all of one input dimension.
        - `probabilities`: the share of sequences that comes from each of them.
        """
        shares = check_probabilities("probabilities", probabilities, len(components))
        if len({component.dim for component in components}) != 1:
            raise InputError(
                "components", problem="differ in input dimension", allowed="must all have the same"
            )
        self.components = tuple(components)
        self.probabilities = as_float(shares)

    @property
    def dim(self) -> int:
        return self.components[0].dim

    @property
    def max_context(self) -> int:
        return max(component.max_context for component in self.components)

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        check_draw(key, count)
        key_choice, *keys = jr.split(key, 1 + len(self.components))
        choice = jr.choice(key_choice, len(self.components), (count,), p=self.probabilities)
        # Every component draws all sequences, and some of them are used: no shape may depend on
        # the random choice.
        drawn = [
            _pad(component.sample(k, count), self.max_context)
            for component, k in zip(self.components, keys)
        ]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)
        return jax.tree.map(lambda leaf: leaf[choice, jnp.arange(count)], stacked)

    def component_posterior(self, sequences: Sequences) -> Float[Array, "K *batch"]:
        """The probability of each component given the context."""
        # The evidence includes inputs and lengths, which may differ between components too.
        evidence = jnp.stack([c.log_evidence(sequences) for c in self.components])
        prior = jnp.log(self.probabilities).reshape((-1,) + (1,) * (evidence.ndim - 1))
        return jax.nn.softmax(evidence + prior, axis=0)

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        means = jnp.stack([c.bayes_predict(sequences) for c in self.components])
        return jnp.sum(self.component_posterior(sequences)[..., None] * means, 0)

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        weight = self.component_posterior(sequences)[..., None]
        means = jnp.stack([c.bayes_predict(sequences) for c in self.components])
        within = jnp.stack([c.bayes_variance(sequences) for c in self.components])
        return total_variance(weight, means, within)


def total_variance(
    weight: Float[Array, "K *batch 1"],
    means: Float[Array, "K *batch 1"],
    within: Float[Array, "K *batch 1"],
) -> Float[Array, "*batch 1"]:
    """The variance of a mixture, from the probability, mean and variance of each component."""
    # The law of total variance: within components, and between their means.
    mean = jnp.sum(weight * means, 0)
    return jnp.sum(weight * (within + (means - mean) ** 2), 0)


def in_context_in_weight(
    task: LinearRegression,
    fraction: float,
    fixed_weight: ArrayLike | Sequence[float] | None = None,
) -> Mixture | LinearRegression:
    """A fraction p of sequences with a random w, the rest with one fixed w.

    **Arguments:**

    - `task`: the law of sequences with a random w.
    - `fraction`: p, from 0 (in-weight alone) to 1 (in-context alone).
    - `fixed_weight`: the w of the other sequences; by default (1, …, 1), of squared
      norm D, the mean squared norm of a random one.

    **Example:**

    ```pycon
    >>> task = icl.in_context_in_weight(icl.isotropic(dim=3), 0.75, [1.0, 0.0, 0.0])
    >>> task.probabilities, task.components[1].prior_mean
    (Array([0.75, 0.25], dtype=float64), Array([1., 0., 0.], dtype=float64))
    ```
    """
    if not np.isfinite(fraction) or not 0 <= fraction <= 1:
        raise InputError("fraction", fraction, "must lie between 0 and 1")
    given = np.ones(task.dim) if fixed_weight is None else fixed_weight
    weight = check_vector("fixed_weight", given, task.dim)
    fixed = eqx.tree_at(
        lambda t: (t.prior_mean, t.prior_covariance),
        task,
        (as_float(weight), jnp.zeros_like(task.prior_covariance)),
    )
    # At the ends there is one kind of sequence, for which more risks exist in closed form.
    if fraction == 1:
        return task
    if fraction == 0:
        return fixed
    return Mixture((task, fixed), (fraction, 1 - fraction))


class RandomLabels(AbstractTask):
    """Context labels are pure noise; the query label is w·x_q for one fixed w.

    Only a model that stored w in its weights can do better than predicting zero.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10)
    >>> probe = icl.RandomLabels(task, weight=[1.0, 0.0, 0.0])
    >>> sequences = probe.sample(jr.key(0), 3)
    >>> jnp.allclose(sequences.y_query[:, 0], sequences.x_query[:, 0]).item()
    True
    ```
    """

    inputs: LinearRegression
    weight: Float[Array, " D"]
    label_variance: Float[Array, ""]

    def __init__(
        self,
        task: LinearRegression,
        weight: ArrayLike | Sequence[float],
        label_variance: ScalarLike = 1.0,
    ):
        """**Arguments:**

        - `task`: has the input covariance and the context lengths.
        - `weight`: w, the same in every sequence.
        - `label_variance`: of the context labels.
        """
        self.inputs = eqx.tree_at(lambda t: t.noise, task, jnp.zeros_like(task.noise))
        self.weight = as_float(check_vector("weight", weight, task.dim))
        self.label_variance = as_float(check_nonnegative("label_variance", label_variance))

    @property
    def dim(self) -> int:
        return self.inputs.dim

    @property
    def max_context(self) -> int:
        return self.inputs.max_context

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        check_draw(key, count)
        key_inputs, key_labels = jr.split(key)
        drawn = self.inputs.sample(key_inputs, count)
        labels = jr.normal(key_labels, drawn.y.shape, drawn.y.dtype)
        labels = jnp.sqrt(self.label_variance) * labels
        labels = jnp.where(drawn.mask()[..., None], labels, 0.0)
        target = (drawn.x_query @ self.weight)[..., None]
        return eqx.tree_at(lambda s: (s.y, s.y_query), drawn, (labels, target))

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return (sequences.x_query @ self.weight)[..., None]

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return jnp.zeros_like(sequences.y_query)


def _pad(sequences: Sequences, context: int) -> Sequences:
    """The same sequences, padded to `context` pairs."""
    extra = context - sequences.x.shape[-2]
    return eqx.tree_at(
        lambda s: (s.x, s.y),
        sequences,
        (
            jnp.pad(sequences.x, ((0, 0), (0, extra), (0, 0))),
            jnp.pad(sequences.y, ((0, 0), (0, extra), (0, 0))),
        ),
    )

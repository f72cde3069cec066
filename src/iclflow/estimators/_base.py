"""The interface of estimators: fixed in-context algorithms to compare a model with."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..models import AbstractModel
from ..risks import SampledRisk
from ..tasks import AbstractTask, Estimate, Sequences, estimate_mean

# Sequences per batch: few enough to hold in memory at once.
_BATCH = 5000


class AbstractEstimator(AbstractModel):
    """An algorithm that predicts the query labels from the context, with nothing to be trained.

    It can be used wherever a model can: in risks, in comparisons, beside models in a figure.

    **Fields:**

    - `name`: a short name for reports, such as "least squares"; a class variable or a property.

    **Example:**

    ```pycon
    >>> class LastLabel(icl.estimators.AbstractEstimator):
    ...     name = "the last label"
    ...     def predict(self, sequences):
    ...         return sequences.y[..., -1, :]
    >>> task = icl.isotropic(dim=3, noise=0.1)
    >>> bool(LastLabel().risk(task, jr.key(0), 1000).value > 1.5)
    True
    ```
    """

    name: eqx.AbstractVar[str]

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        """Its risk on `task` in closed form; None where there is none."""
        return None

    def risk(self, task: AbstractTask, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """Its risk on `task` from at least `count` fresh sequences, with its standard error.

        The posterior mean replaces the query label: its unpredictable part is integrated out.
        """
        if count < 2:
            raise InputError("count", count, "a standard error needs at least 2 sequences")
        sampled = SampledRisk(task, batch=min(_BATCH, count), posterior_target=True)
        keys = jr.split(key, -(-count // sampled.batch))
        return estimate_mean(
            jnp.concatenate([_losses(sampled, self, k, sampled.batch) for k in keys])
        )


@eqx.filter_jit
def _losses(
    sampled: SampledRisk, estimator: AbstractEstimator, key: PRNGKeyArray, count: int
) -> Float[Array, " count"]:
    """The losses of one batch, compiled as one program instead of hundreds of operations."""
    return sampled.losses(estimator, key, count)


class Bayes(AbstractEstimator):
    """The posterior mean under `task`: no predictor has a smaller risk on it.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20, noise=0.3)
    >>> bayes = icl.estimators.Bayes(task)
    >>> ridge = icl.estimators.Ridge(0.3 * 3)
    >>> sequences = task.sample(jr.key(0), 10)
    >>> jnp.allclose(bayes.predict(sequences), ridge.predict(sequences)).item()
    True
    ```
    """

    name: ClassVar[str] = "Bayes"
    task: AbstractTask

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.task.bayes_predict(sequences)


@eqx.filter_jit
def masked_context(
    sequences: Sequences,
) -> tuple[Float[Array, "*batch N D"], Float[Array, "*batch N I"]]:
    """x and y of the context with zeros at padding, whatever the arrays hold there.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=(2, 5))
    >>> sequences = task.sample(jr.key(0), 3)
    >>> x, y = icl.estimators.masked_context(sequences)
    >>> x.shape, bool((x[~sequences.mask()] == 0).all())
    ((3, 5, 2), True)
    ```
    """
    mask = sequences.mask()[..., None]
    return jnp.where(mask, sequences.x, 0.0), jnp.where(mask, sequences.y, 0.0)


def check_components(components: Any, dim: int | None = None) -> int:
    """A number of components: whole, not negative, at most `dim` where that is known."""
    if isinstance(components, bool) or components != int(components) or components < 0:
        raise InputError("components", components, "must be a whole number from 0 up")
    if dim is not None and components > dim:
        raise InputError("components", components, f"must not exceed the dimension, {dim}")
    return int(components)

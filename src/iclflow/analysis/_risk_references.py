"""Losses that a trained model is compared with, and how well a counted share is known."""

from typing import NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..estimators import Bayes, DebiasedGradientStep, GradientStep
from ..models import AbstractModel
from ..risks import SampledRisk
from ..tasks import AbstractTask

# Sequences at a time: bounds the memory.
_BATCH = 5000


class FreshLoss(NamedTuple):
    """The loss of a model on fresh sequences.

    **Fields:**

    - `bayes`: the loss of the Bayes predictor on the same sequences.
    - `standard_error`: of `loss - bayes`. It is far smaller than that of either loss, because both
      see the same sequences.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.analysis.fresh_loss(pair, task, count=2000)
    >>> bool(found.loss > found.bayes)
    True
    ```
    """

    loss: float
    bayes: float
    standard_error: float


def fresh_loss(
    model: AbstractModel, task: AbstractTask, key: PRNGKeyArray | None = None, count: int = 20_000
) -> FreshLoss:
    """The loss of a model on `count` fresh sequences, beside that of the Bayes predictor.

    The noise of the query label, which no model can predict, is integrated out.

    **Arguments:**

    - `key`: draws the sequences; by default `jax.random.key(0)`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.analysis.fresh_loss(pair, task, count=2000)
    >>> bool(abs(found.loss - icl.risk(task, pair)(pair)) < 0.05)
    True
    ```
    """
    sampled = SampledRisk(task, batch=min(_BATCH, count), posterior_target=True)
    keys = jr.split(jr.key(0) if key is None else key, -(-count // sampled.batch))
    own, bayes = (
        np.concatenate([np.asarray(_losses(sampled, each, key)) for key in keys])
        for each in (model, Bayes(task))
    )
    excess = own - bayes
    error = excess.std(ddof=1) / np.sqrt(len(excess))
    return FreshLoss(float(own.mean()), float(bayes.mean()), float(error))


@eqx.filter_jit
def _losses(sampled: SampledRisk, model: AbstractModel, key: PRNGKeyArray):
    return sampled.losses(model, key, sampled.batch)


def best_step_risk(kind: type[GradientStep | DebiasedGradientStep], task: AbstractTask) -> float:
    """The smallest exact risk of one gradient step over all step sizes.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> round(icl.analysis.best_step_risk(icl.estimators.GradientStep, task), 4)
    0.2398
    ```
    """
    # The risk is a parabola in the step size, which three points determine.
    found = [kind(size).exact_risk(task) for size in (-1.0, 0.0, 1.0)]
    left, middle, right = (float(each) for each in found if each is not None)
    slope, square = (right - left) / 2, (right + left) / 2 - middle
    return middle - slope**2 / (4 * square)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a share, if `hits` of `count` were counted.

    **Example:**

    ```pycon
    >>> low, high = icl.analysis.wilson(60, 64)
    >>> f"{low:.3f} to {high:.3f}"
    '0.850 to 0.975'
    ```
    """
    from scipy.stats import binomtest  # slow to load, and rarely needed

    found = binomtest(hits, count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)

"""Which known estimator a model implements, judged by its predictions alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..errors import InputError, Refusal
from ..estimators import (
    AbstractEstimator,
    Bayes,
    DebiasedGradientStep,
    DiscreteMMSE,
    EmpiricalPCR,
    GradientStep,
    KernelRegression,
    LabelLinear,
    LeastSquares,
    PopulationPCR,
    Ridge,
    SubspaceLeastSquares,
    Zero,
    best_ridge,
)
from ..models import AbstractModel, Normaliser
from ..risks import available_kinds
from ..tasks import (
    AbstractTask,
    Estimate,
    FiniteTasks,
    LinearRegression,
    estimate_mean,
    is_whole,
)
from ._fitted_estimators import (
    fit_each_label,
    is_white,
    one_label_sequences,
    one_label_task,
    predict,
    unrotated_labels,
)
from ._function import as_model
from ._match import Algorithm, rank_estimators

# Sequences predicted at a time: bounds the memory.
MOST_PREDICTED_AT_ONCE = 5000
"""The most sequences whose predictions are computed together.

**Example:**

```pycon
>>> icl.analysis.MOST_PREDICTED_AT_ONCE
5000
```
"""


def which_algorithm(
    model: AbstractModel | Callable[..., Any],
    task: AbstractTask,
    key: PRNGKeyArray | None = None,
    count: int = 20_000,
    estimators: Sequence[AbstractEstimator] | None = None,
    label: int = 0,
) -> Algorithm:
    """Compares a model's predictions on fresh sequences with those of known estimators.

    **Arguments:**

    - `model`: any model, softmax attention too; or a plain function of (x, y, x_query) that returns
      predictions. It gets NumPy arrays: x (n, N, D), y (n, N), or (n, N, I) for several labels, and
      x_query (n, D). (`icl.watching.Torch` makes one of a module of PyTorch.)
    - `task`: where the sequences come from.
    - `key`: draws them; by default `jax.random.key(0)`.
    - `count`: how many. The standard error of a distance is about distance/√count.
    - `estimators`: those to compare with; by default all that exist for `task`, and those of
      `fitted_estimators`. Steps of gradient descent get the step size that fits best.
    - `label`: which of several labels. Estimators then see the coordinates that this label depends
      on, and no other label.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.which_algorithm(pair, task, count=500)
    >>> found.best.name
    'one debiased gradient step'
    >>> [match.name for match in found.matches][:2]
    ['one debiased gradient step', 'one gradient step']
    ```
    """
    if not 0 <= label < task.labels:
        raise InputError("label", label, f"must lie between 0 and {task.labels - 1}")
    return _compare(model, task, key, count, estimators, (label,)).algorithms[0]


class Comparison(NamedTuple):
    """A model on fresh sequences.

    **Fields:**

    - `algorithms`: the result of `which_algorithm` for each label.
    - `loss`: its mean squared error, summed over labels, with the standard error.
    """

    algorithms: tuple[Algorithm, ...]
    loss: Estimate


def compare(
    model: AbstractModel | Callable[..., Any],
    task: AbstractTask,
    key: PRNGKeyArray | None = None,
    count: int = 20_000,
) -> Comparison:
    """`which_algorithm` for every label of a task, and the loss, on the same sequences.

    Arguments: as there.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.analysis.compare(pair, task, count=500)
    >>> found.algorithms[0].best.name, found.loss.value.round(1)
    ('one debiased gradient step', Array(0.2, dtype=float64))
    ```
    """
    return _compare(model, task, key, count, None, tuple(range(task.labels)))


def _compare(
    given: AbstractModel | Callable[..., Any],
    task: AbstractTask,
    key: PRNGKeyArray | None,
    count: int,
    estimators: Sequence[AbstractEstimator] | None,
    labels: tuple[int, ...],
) -> Comparison:
    if not is_whole(count) or count < 2:
        raise InputError("count", count, "a standard error needs at least 2 sequences")
    key = jr.key(0) if key is None else key
    model = as_model(given, task.labels)
    if not isinstance(model, AbstractEstimator):
        available_kinds(task, model)  # refuses a model and a task of different sizes
    batch = min(count, MOST_PREDICTED_AT_ONCE)
    # Parameters are fitted on other sequences than those that distances are measured on.
    rivals = (
        _rivals(model, task, jr.fold_in(key, 1), batch, labels)
        if estimators is None
        else {label: tuple(estimators) for label in labels}
    )
    parts = [_predictions(model, rivals, task, k, batch) for k in jr.split(key, -(-count // batch))]
    errors, *rows = (np.concatenate(each, axis=-1) for each in zip(*parts))
    if not all(np.all(np.isfinite(own)) for _, own, *_ in rows):
        raise Refusal("`model` predicts NaN or infinity: it implements no algorithm.")
    found = tuple(
        rank_estimators(truth, own, theirs, rivals[label])
        for (truth, own, *theirs), label in zip(rows, labels)
    )
    return Comparison(found, estimate_mean(jnp.asarray(errors)))


def _rivals(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray,
    batch: int,
    labels: tuple[int, ...],
) -> dict[int, tuple[AbstractEstimator, ...]]:
    """The estimators that a model is compared with, for each label."""
    normaliser: Any = getattr(model, "normaliser", "context")
    fitted = fit_each_label(model, task, key, labels, batch)
    return {
        label: (*known_estimators(one_label_task(task, label), normaliser), *fitted[label])
        for label in labels
    }


def known_estimators(
    task: AbstractTask, normaliser: Normaliser = "context"
) -> tuple[AbstractEstimator, ...]:
    """All estimators that exist for a task, including PCR with every number of components. (White
    inputs have no principal components, and so no PCR.)

    **Arguments:**

    - `normaliser`: that of the model; one gradient step and PCR use the same.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> for estimator in icl.analysis.known_estimators(task):
    ...     print(estimator.name)
    one gradient step
    one debiased gradient step
    least squares
    Bayes
    PCR with 0 components
    PCR with 1 component
    PCR with 2 components
    least squares in 1 population component
    PCR with 1 in-context component
    ```
    """
    found: list[AbstractEstimator] = [GradientStep(1.0, normaliser), DebiasedGradientStep(1.0)]
    if isinstance(task, FiniteTasks):
        return (*found, *_of_finite_tasks(task, normaliser))
    found += [LeastSquares(), Bayes(task)]
    if not isinstance(task, LinearRegression):
        return (Zero(), *found)
    found += _of_components(task, is_white(task), normaliser)
    if task.noise > 0:
        # The penalty that is optimal for an isotropic prior of the same mean squared norm.
        size = jnp.trace(task.weight_second_moment) / task.dim
        found.append(Ridge(task.noise / size))
    return tuple(found)


def _of_finite_tasks(task: FiniteTasks, normaliser: Normaliser) -> list[AbstractEstimator]:
    """What recalls the tasks of the training, what is best for unseen ones, and what is between."""
    found: list[AbstractEstimator] = [LeastSquares(), DiscreteMMSE(task.vectors, task.fresh.noise)]
    found += _of_components(task, is_white(task.fresh), normaliser)
    # Without noise the best of these predictors is least squares.
    if task.fresh.noise > 0:
        found += [LabelLinear(task), best_ridge(task.fresh)]
    return found


def _of_components(
    task: AbstractTask, white: bool, normaliser: Normaliser
) -> list[AbstractEstimator]:
    """The estimators that select principal components; zero if there are none."""
    if white:
        return [Zero()]
    found: list[AbstractEstimator] = []
    found += [PopulationPCR(task, m, normaliser) for m in range(task.dim + 1)]
    # With every component the subspace is the whole space, which is least squares.
    for m in range(1, task.dim):
        found += [SubspaceLeastSquares(task, m), EmpiricalPCR(m)]
    return found


def _predictions(
    model: AbstractModel,
    rivals: dict[int, tuple[AbstractEstimator, ...]],
    task: AbstractTask,
    key: PRNGKeyArray,
    batch: int,
) -> list[np.ndarray]:
    """The errors of the model on fresh sequences; then for each label the labels themselves, and
    the predictions of the model and of each estimator."""
    sequences = task.sample(key, batch)
    own = _predict_alike(model, sequences)
    found = [np.asarray(sequences.squared_error(own))]
    for label, estimators in rivals.items():
        seen = one_label_sequences(task, sequences, label)
        theirs = [_predict_alike(each, seen)[..., 0] for each in estimators]
        rows = [seen.y_query[..., 0], unrotated_labels(task, own)[..., label], *theirs]
        found.append(np.stack([np.asarray(row) for row in rows]))
    return found


def _predict_alike(model: AbstractModel, sequences: Any) -> Array:
    """The predictions of a model or an estimator, in the least time including compilation."""
    # Most estimators consist of parts that are compiled already.
    if isinstance(model, KernelRegression) or not isinstance(model, AbstractEstimator):
        return predict(model, sequences)
    return (_bayes_as_ridge(model) if isinstance(model, Bayes) else model).predict(sequences)


def _bayes_as_ridge(bayes: Bayes) -> AbstractEstimator:
    """For w ~ N(0, λI), the same predictor by ridge regression, which is quicker."""
    task = bayes.task
    if not isinstance(task, LinearRegression) or np.any(np.asarray(task.prior_mean)):
        return bayes
    prior = np.asarray(task.prior_covariance)
    if prior[0, 0] <= 0 or np.any(prior != prior[0, 0] * np.eye(task.dim)):
        return bayes
    return Ridge(task.noise / prior[0, 0]) if task.noise > 0 else LeastSquares()

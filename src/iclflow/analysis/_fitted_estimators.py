"""One label of a task, and estimators whose parameters are fitted to the predictions of a model."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, PRNGKeyArray

from ..estimators import (
    AbstractEstimator,
    DebiasedPreconditionedStep,
    KernelRegression,
    centred_correlation,
    correlation,
)
from ..models import AbstractModel, Normaliser
from ..runtime.precision import as_float
from ..tasks import (
    AbstractRegression,
    AbstractTask,
    LinearRegression,
    MultiTaskRegression,
    Sequences,
    same_moments,
)
from ._components import ROUNDING
from ._descent_fits import DescentFits
from ._function import Function

# Sequences that parameters are fitted on.
_COUNT = 2000
# Predictions below this share of the size of the labels are no algorithm yet.
ALMOST_NOTHING = 0.01
# The ω of kernels, in units of 1/(mean variance of an input). Above the largest a kernel puts all
# weight on one pair; below the smallest it is a gradient step.
RANGE = np.geomspace(0.05, 3.0, 12)

T = TypeVar("T", bound=AbstractTask)


def one_label_task(task: T, label: int) -> T | LinearRegression:
    """The regression on the coordinates that one label depends on; a task with one label itself."""
    if not isinstance(task, MultiTaskRegression):
        return task
    size = len(task.coordinates[label])
    return LinearRegression(
        np.ones(size),
        context=task.contexts,
        noise=float(task.noise[label]),
        prior_covariance=float(task.signal[label]) * np.eye(size),
        noisy_query=task.noisy_query,
    )


def one_label_sequences(task: AbstractTask, sequences: Sequences, label: int) -> Sequences:
    """The same sequences with one label and its coordinates alone, rotations undone."""
    if not isinstance(task, MultiTaskRegression):
        return sequences.label(label)
    x, query = sequences.x, sequences.x_query
    if task.input_rotation is not None:
        x, query = x @ task.input_rotation, query @ task.input_rotation
    read = np.asarray(task.coordinates[label])
    y, y_query = (unrotated_labels(task, part) for part in (sequences.y, sequences.y_query))
    return Sequences(x[..., read], y, query[..., read], y_query, sequences.length).label(label)


def unrotated_labels(
    task: AbstractTask, labels: Float[Array, "*batch I"]
) -> Float[Array, "*batch I"]:
    """Labels, or predictions of them, with the rotation of the labels undone."""
    rotation = task.output_rotation if isinstance(task, MultiTaskRegression) else None
    return labels if rotation is None else labels @ rotation


def fitted_estimators(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray,
    count: int = _COUNT,
    label: int = 0,
) -> tuple[AbstractEstimator, ...]:
    """Kernel regression with the width and the factor, and a debiased step with the matrix, that
    come nearest to the predictions of `model`.

    The matrix is fitted only if inputs are anisotropic: else a step size does the same, and the
    matrix would always win. Linear attention is a step with a matrix by construction, so nothing is
    fitted to it; nor to a model that predicts almost nothing. To a model of L layers 2 … L steps of
    gradient descent are fitted too: of one size, of own sizes, preconditioned by the inverse input
    covariance, with momentum, and two of GD++. Of several labels only `label` is
    compared, on the coordinates that it depends on.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.analysis.fitted_estimators(pair, task, jr.key(0), count=500)
    >>> [estimator.name for estimator in found]
    ['kernel regression']
    ```
    """
    return fit_each_label(model, task, key, (label,), count, count)[label]


def fit_each_label(
    model: AbstractModel,
    task: AbstractTask,
    key: PRNGKeyArray,
    labels: Sequence[int],
    drawn: int,
    count: int = _COUNT,
) -> dict[int, tuple[AbstractEstimator, ...]]:
    """`fitted_estimators` for several labels, on the same sequences.

    **Arguments:**

    - `drawn`: how many sequences are drawn, of which `count` are used. Drawing the number that
      the caller draws, too, needs no further compilation, which takes longer than drawing.
    """
    # What is fitted needs to know the inputs alone; the sequences are those of the task itself.
    if model.form != "general" or not isinstance(same_moments(task), AbstractRegression):
        return dict.fromkeys(labels, ())
    several: Any = task.sample(key, max(drawn, count))
    predicted = predict(model, several)
    several, predicted = jax.device_put(
        jax.tree.map(lambda part: np.asarray(part)[:count], (several, predicted))
    )
    return {
        label: _fit(
            np.asarray(unrotated_labels(task, predicted)[..., label]),
            one_label_sequences(task, several, label),
            cast(LinearRegression, same_moments(one_label_task(task, label))),
            count_steps(model),
            model.divides_by,
        )
        for label in labels
    }


def count_steps(model: AbstractModel) -> int:
    """How many steps of gradient descent a model can make: one in each layer.

    **Example:**

    ```pycon
    >>> icl.analysis.count_steps(icl.ScalarStack.init(jr.key(0), dim=3, depth=2))
    2
    ```
    """
    return int(getattr(model, "depth", 1))


def _fit(
    own: np.ndarray,
    sequences: Sequences,
    task: LinearRegression,
    steps: int,
    normaliser: Normaliser,
) -> tuple[AbstractEstimator, ...]:
    """The estimators that are nearest to the predictions of one label."""
    power, labels = np.mean(own**2), float(np.mean(sequences.y_query**2))
    if not np.all(np.isfinite(own)) or power < ALMOST_NOTHING**2 * labels:
        return ()
    found: list[AbstractEstimator] = [_kernel(own, sequences, task)]
    if not is_white(task):
        found.append(_preconditioned(own, sequences))
    if steps > 1:
        fits = DescentFits(sequences, steps, normaliser, preconditioner(task))
        found += [estimator for estimator, _ in fits.fit(own)]
    return tuple(found)


def preconditioner(task: LinearRegression) -> Float[np.ndarray, "D D"] | None:
    """The input covariance, whose inverse could precondition steps; None if that changes nothing or
    has no inverse."""
    values = np.linalg.eigvalsh(np.asarray(task.covariance))
    singular = values[0] <= ROUNDING * values[-1]
    return (
        None if singular or np.ptp(values) <= ROUNDING * values[-1] else np.asarray(task.covariance)
    )


def is_white(task: LinearRegression) -> bool:
    """Whether the inputs have the same variance in every direction."""
    values = np.linalg.eigvalsh(np.asarray(task.covariance))
    return task.dim > 1 and bool(np.ptp(values) <= ROUNDING * values.max())


def _kernel(own: np.ndarray, sequences: Sequences, task: LinearRegression) -> KernelRegression:
    unit = task.dim / float(jnp.trace(task.covariance))

    def fit(logarithm: float, sign: float) -> tuple[float, float]:
        """The mean squared distance at this ω with the best factor, and that factor."""
        other = np.asarray(predict(KernelRegression(sign * np.exp(logarithm)), sequences))[:, 0]
        power = float(np.mean(other**2))
        factor = float(np.mean(own * other)) / power if power > 0 else 0.0
        return float(np.mean((own - factor * other) ** 2)), factor

    grid = np.log(RANGE * unit)
    # A head with negative ω attends to the least similar inputs, and changes the sign of labels.
    distances = np.asarray([[fit(point, sign)[0] for point in grid] for sign in (1.0, -1.0)])
    row, best = np.unravel_index(np.argmin(distances), distances.shape)
    sign = 1.0 if row == 0 else -1.0
    near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found: Any = scipy.optimize.minimize_scalar(
        lambda p: fit(p, sign)[0], bounds=near, method="bounded"
    )
    chosen = float(found.x)
    return KernelRegression(sign * np.exp(chosen), fit(chosen, sign)[1])


def predict(model: AbstractModel, sequences: Any) -> Array:
    """The predictions of a model or an estimator. Compiled once for all weights of a shape; plain
    functions, which may be of any library, are called."""
    return model.predict(sequences) if isinstance(model, Function) else _compiled(model, sequences)


@eqx.filter_jit
def _compiled(model: AbstractModel, sequences: Any) -> Array:
    return model.predict(sequences)


def _preconditioned(own: np.ndarray, sequences: Sequences) -> DebiasedPreconditionedStep:
    matrix = np.linalg.lstsq(correlation_features(sequences), own, rcond=None)[0]
    return DebiasedPreconditionedStep(as_float(matrix.reshape(sequences.x_query.shape[1], -1)))


def correlation_features(sequences: Sequences, centred: bool = True) -> Float[np.ndarray, "n DD"]:
    """The entries of β x_qᵀ, in which a step is linear; with β of the centred context, a debiased
    one."""
    average = centred_correlation if centred else correlation
    beta, query = np.asarray(average(sequences))[:, 0], np.asarray(sequences.x_query)
    return np.einsum("pd,pe->pde", beta, query).reshape(len(query), -1)

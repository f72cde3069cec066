"""Estimators that are fitted to the predictions of a model, again and again on the same sequences.

What does not depend on the model is computed once; a fit then takes milliseconds.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy
from jaxtyping import Array, Float, ScalarLike

from ..estimators import (
    AbstractEstimator,
    DebiasedPreconditionedStep,
    KernelRegression,
    PreconditionedStep,
    Ridge,
    masked_context,
)
from ..runtime.precision import as_float
from ..tasks import AbstractTask, LinearRegression, Sequences
from ._fitted_estimators import RANGE, correlation_features, is_white

# A matrix is fitted up to this many entries: the time of its pseudoinverse grows as their square.
_LARGEST_MATRIX = 64
# Each part of the sequences is compared with a matrix that was fitted on the rest.
_PARTS = 5
# Penalties of ridge regression, in units of the mean eigenvalue of Σ xₙxₙᵀ. Below the smallest it
# is least squares.
_PENALTIES = np.geomspace(1e-4, 10.0, 11)


class Fitted(NamedTuple):
    """An estimator, and its predictions on the sequences that distances are measured on."""

    estimator: AbstractEstimator
    predictions: Float[np.ndarray, " n"]


class AbstractFit(abc.ABC):
    """A family of estimators on fixed sequences."""

    @abc.abstractmethod
    def fit(self, own: Float[np.ndarray, " n"]) -> Fitted:
        """The estimator of the family that is nearest to a model, from its predictions."""


class KernelFit(AbstractFit):
    """Kernel regression: its ω is one of a few, its factor the best one."""

    def __init__(self, sequences: Any, unit: float):
        """**Arguments:**

        - `unit`: that of ω, 1/(mean variance of an input).
        """
        self._widths = unit * np.concatenate([RANGE, -RANGE])
        self._kernels = np.asarray(_kernels(self._widths, sequences))[..., 0]
        self._powers = np.maximum(np.mean(self._kernels**2, 1), np.finfo(float).tiny)

    def fit(self, own: Float[np.ndarray, " n"]) -> Fitted:
        factors = np.mean(self._kernels * own, 1) / self._powers
        best = int(np.argmax(factors**2 * self._powers))
        width, factor = float(self._widths[best]), float(factors[best])
        return Fitted(KernelRegression(width, factor), factor * self._kernels[best])


class MatrixFit(AbstractFit):
    """One step with the matrix that fits best: ŷ = βᵀAx_q, with β of the context, or of the
    centred one. Matrices have many entries: predictions on a part of the sequences are those of a
    matrix that was fitted on the rest. The estimator has the mean of these matrices."""

    def __init__(self, sequences: Any, centred: bool):
        self._step = DebiasedPreconditionedStep if centred else PreconditionedStep
        self._features = correlation_features(sequences, centred)
        self._part = np.arange(len(self._features)) % _PARTS
        rest = (self._features[self._part != part] for part in range(_PARTS))
        self._solvers = [np.linalg.pinv(features) for features in rest]

    def fit(self, own: Float[np.ndarray, " n"]) -> Fitted:
        fitted = [solver @ own[self._part != part] for part, solver in enumerate(self._solvers)]
        matrices = np.stack(fitted)
        predictions = np.einsum("pk,pk->p", self._features, matrices[self._part])
        dim = round(matrices.shape[1] ** 0.5)
        step = self._step(as_float(matrices.mean(0).reshape(dim, dim)))
        return Fitted(step, predictions)


class RidgeFit(AbstractFit):
    """Ridge regression with the penalty that fits best, for tasks whose noise is not known."""

    def __init__(self, sequences: Sequences):
        context, labels = (np.asarray(part) for part in masked_context(sequences))
        self._squares, vectors = np.linalg.eigh(np.einsum("pnd,pne->pde", context, context))
        along = np.einsum("pdk,pnd,pn->pk", vectors, context, labels[..., 0])
        self._products = along * np.einsum("pdk,pd->pk", vectors, np.asarray(sequences.x_query))
        self._unit = float(np.mean(self._squares))

    def _predict(self, penalty: ScalarLike) -> Float[np.ndarray, " n"]:
        return np.sum(self._products / (self._squares + penalty), 1)

    def fit(self, own: Float[np.ndarray, " n"]) -> Fitted:
        miss = lambda logarithm: float(np.mean((own - self._predict(np.exp(logarithm))) ** 2))
        grid = np.log(self._unit * _PENALTIES)
        best = int(np.argmin([miss(point) for point in grid]))
        near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found: Any = scipy.optimize.minimize_scalar(miss, bounds=near, method="bounded")
        penalty = float(np.exp(found.x))
        return Fitted(Ridge(penalty), self._predict(penalty))


def choose_fits(
    task: AbstractTask, sequences: Sequences, any_model: bool
) -> tuple[AbstractFit, ...]:
    """What is fitted to models on the sequences of one label of a task.

    **Arguments:**

    - `any_model`: whether models may be linear attention, and tasks may be known by their samples
      alone.
    """
    is_known = isinstance(task, LinearRegression)
    if not (is_known or (any_model and np.any(np.asarray(sequences.x_query)))):
        return ()
    found: list[AbstractFit] = [KernelFit(sequences, _kernel_unit(task, sequences))]
    most = min(_LARGEST_MATRIX, sequences.count * (_PARTS - 1) // _PARTS)
    if not (is_known and is_white(task)) and task.dim**2 <= most:
        found.append(MatrixFit(sequences, centred=True))
        if any_model:
            found.append(MatrixFit(sequences, centred=False))
    if not is_known:
        found.append(RidgeFit(sequences))
    return tuple(found)


def _kernel_unit(task: AbstractTask, sequences: Sequences) -> float:
    if isinstance(task, LinearRegression):
        return task.dim / float(np.trace(np.asarray(task.covariance)))
    return 1 / float(np.mean(np.asarray(sequences.x_query) ** 2))


@eqx.filter_jit
def _kernels(widths: Any, sequences: Any) -> Array:
    """The predictions of kernel regression for each ω, one after the other to bound the memory."""
    return jax.lax.map(lambda width: KernelRegression(width).predict(sequences), widths)

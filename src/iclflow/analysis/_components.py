"""The directions of the inputs that a model learns, and how strong it should be along each."""

import contextlib

import numpy as np

from ..estimators import PopulationPCR, eigenvectors
from ..models import Normaliser
from ..tasks import AbstractTask, LinearRegression, Mixture, MultiTaskRegression


def component_basis(task: AbstractTask) -> np.ndarray | None:
    """The eigenvectors of the inputs, the largest eigenvalue first; None where inputs are white by
    construction. Along the axes, equal eigenvalues are in the order of the axes."""
    if not isinstance(task, LinearRegression | Mixture):
        return None
    vectors = np.asarray(eigenvectors(task))
    axes = np.argmax(np.abs(vectors), axis=0)
    if not np.array_equal(np.abs(vectors), np.eye(task.dim)[:, axes]):
        return vectors
    values = input_variances(task, vectors)
    return np.eye(task.dim)[:, axes[np.lexsort((axes, -values))]]


def input_variances(task: LinearRegression | Mixture, basis: np.ndarray) -> np.ndarray:
    """The variance of the inputs along each column of a basis."""
    part = task.components[0] if isinstance(task, Mixture) else task
    return np.einsum("dk,de,ek->k", basis, np.asarray(part.covariance), basis)


def best_strengths(task: AbstractTask, normaliser: Normaliser = "context") -> np.ndarray | None:
    """a_d*, the strength of each component with the smallest risk; None where no task has such.

    **Arguments:**

    - `normaliser`: what the model divides its sums by.
    """
    basis = component_basis(task)
    if basis is None:
        return None
    with contextlib.suppress(ValueError, TypeError):
        best = PopulationPCR(task, task.dim, normaliser)
        # In the order of our components, which differs where eigenvalues are equal.
        matrix = np.asarray(best.coefficients())
        return np.einsum("dk,de,ek->k", basis, matrix, basis)
    return None


def best_steps(task: MultiTaskRegression) -> np.ndarray:
    """The step with the smallest loss for each task alone; see `PopulationPCR` for the formula."""
    sizes = np.array([len(read) for read in task.coordinates], float)
    noise, signal = np.asarray(task.noise, float), np.asarray(task.signal, float)
    relative = noise / np.where(signal > 0, signal, 1.0)
    return 1 / (1 + (1 + sizes + relative) / task.max_context)


def component_strengths(attention: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What each head adds to the strength e_dᵀ A e_d of each component, (…, H, D).

    **Arguments:**

    - `attention`: the key-query circuits in the basis of the components, (…, H, tokens, D).
    - `values`: the output-value circuits of one label, (…, H, tokens).
    """
    dim = attention.shape[-1]
    diagonal = np.diagonal(attention[..., :dim, :], axis1=-2, axis2=-1)
    # The second part is there where heads read inputs and look at labels: (u·β)(h·x_q).
    return values[..., dim:] * diagonal + values[..., :dim] * attention[..., dim, :]

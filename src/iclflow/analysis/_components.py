"""The principal components of the inputs, and how strong a model should be along each."""

import contextlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..circuits import Circuits, circuits, stacked_circuits
from ..estimators import PopulationPCR, eigenvectors
from ..models import AbstractModel, AttentionStack, Normaliser
from ..tasks import AbstractTask, LinearRegression, Mixture, MultiTaskRegression
from ..trajectory import Trajectory

# Variances that differ by less than this share of the largest are equal up to rounding.
ROUNDING = 1e-9


class Components(NamedTuple):
    """The eigenvectors of the input covariance as columns of `basis`, the largest variance first.

    Eigenvectors along the axes that have equal variances are in the order of the axes.
    """

    variances: Float[np.ndarray, " D"]
    basis: Float[np.ndarray, "D D"]

    @property
    def distinct(self) -> bool:
        """Whether some components have more variance than others."""
        return bool(np.ptp(self.variances) > ROUNDING * self.variances.max())


def components(task: AbstractTask) -> Components | None:
    """The components of the inputs of a task; None if inputs are white by construction.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.1, 0.4], context=31)
    >>> icl.analysis.components(task).variances
    array([0.4, 0.1])
    >>> icl.analysis.components(icl.DecisionTree(dim=3)) is None
    True
    ```
    """
    if not isinstance(task, LinearRegression | Mixture):
        return None
    part = task.components[0] if isinstance(task, Mixture) else task
    along = lambda basis: np.einsum("dk,de,ek->k", basis, np.asarray(part.covariance), basis)
    vectors = np.asarray(eigenvectors(task))
    axes = np.argmax(np.abs(vectors), axis=0)
    if np.array_equal(np.abs(vectors), np.eye(task.dim)[:, axes]):
        # LAPACK does not fix the order of equal eigenvalues.
        vectors = np.eye(task.dim)[:, axes[np.lexsort((axes, -along(vectors)))]]
    return Components(along(vectors), vectors)


def component_circuits(source: AbstractModel | Trajectory, task: AbstractTask) -> Circuits:
    """The circuits of a model, or at every point of a run, in the basis of the components of a
    task; for a task without components, in its coordinates.

    A stack of layers is left in the coordinates of its tokens, because later layers read what
    earlier ones wrote, not the inputs.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> found = icl.analysis.component_circuits(run, task)
    >>> found.attention.shape == (len(run), 2, 3, 2)
    True
    ```
    """
    found = components(task)
    basis = None if found is None else found.basis
    if not isinstance(source, Trajectory):
        return circuits(source, task, basis)
    if isinstance(source.models, AttentionStack):
        return stacked_circuits(source.models)
    return stacked_circuits(source.models, task, basis)


def best_strengths(
    task: AbstractTask, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " D"] | None:
    """a_d*, the strength of each component with the smallest risk; None if it is not known.

    **Arguments:**

    - `normaliser`: that of the model.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.1], context=31)
    >>> icl.analysis.best_strengths(task).round(3)
    array([2.331, 8.378])
    ```
    """
    found = components(task)
    if found is None:
        return None
    with contextlib.suppress(ValueError, TypeError):
        best = PopulationPCR(task, task.dim, normaliser)
        # In the order of our components, which differs where eigenvalues are equal.
        matrix = np.asarray(best.coefficients())
        return np.einsum("dk,de,ek->k", found.basis, matrix, found.basis)
    return None


def best_steps(task: MultiTaskRegression) -> Float[np.ndarray, " I"]:
    """The step with the smallest loss for each task alone; see `PopulationPCR` for the formula.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40, noise=[0.0, 1.0])
    >>> icl.analysis.best_steps(task).round(3)
    array([0.93 , 0.889])
    ```
    """
    sizes = np.array([len(read) for read in task.coordinates], float)
    noise, signal = np.asarray(task.noise, float), np.asarray(task.signal, float)
    relative = noise / np.where(signal > 0, signal, 1.0)
    return 1 / (1 + (1 + sizes + relative) / task.max_context)

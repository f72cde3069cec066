"""What the risk of a stack of linear attention depends on in a task."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ..limits import StackFacts
from ..models import AbstractLinearStack, AbstractModel, Normaliser, attention_length, name_of
from ..tasks import AbstractTask, LinearRegression

# How far a covariance may be from a multiple of the identity, relative to it: rounding.
_ROUNDING = 1e-12


class Lengths(NamedTuple):
    """Context lengths of a task, each with its probability.

    **Fields:**

    - `gains`: N over what the model divides sums over the context by; it multiplies every Γ_l.
    """

    counts: tuple[int, ...]
    probabilities: Float[np.ndarray, " K"]
    gains: Float[np.ndarray, " K"]

    @staticmethod
    def of(task: LinearRegression, normaliser: Normaliser) -> "Lengths":
        counts = np.asarray(task.contexts, float)
        gains = counts / np.asarray(attention_length(counts, normaliser))
        return Lengths(task.contexts, np.asarray(task.context_probabilities, float), gains)


def stack_facts(task: AbstractTask, model: AbstractModel) -> StackFacts | None:
    """The facts that decide which exact risk a stack has; None for any other model."""
    if not isinstance(model, AbstractLinearStack):
        return None
    regression = isinstance(task, LinearRegression)
    covariance = np.asarray(task.covariance) if regression else np.zeros((1, 1))
    return StackFacts(
        weights=model.shape,
        depth=model.depth,
        moving=model.moving,
        attended=model.self_attention,
        regression=regression,
        white=_equal(covariance, np.mean(np.diag(covariance)) * np.eye(len(covariance))),
        diagonal=_equal(covariance, np.diag(np.diag(covariance))),
    )


def _equal(matrix: np.ndarray, other: np.ndarray) -> bool:
    """Whether two matrices are equal to rounding."""
    return bool(np.max(np.abs(matrix - other)) <= _ROUNDING * np.max(np.abs(matrix)))


def require_stack(model: AbstractModel, normaliser: Normaliser, dim: int) -> AbstractLinearStack:
    """`model`, after a check that a risk with these settings is about it."""
    if not isinstance(model, AbstractLinearStack) or model.self_attention:
        raise TypeError(
            "This risk is of stacks of linear attention whose query is no key; got "
            f"{name_of(model)}."
        )
    if model.normaliser != normaliser:
        raise InputError(
            "normaliser", model.normaliser, f"this risk is of stacks with {normaliser!r}"
        )
    if model.dim != dim:
        raise ValueError(f"The model has D = {model.dim} and the task D = {dim}: must be equal.")
    return model

"""The polynomial that a stack of linear attention applies, drawn over the spectrum of contexts."""

import numpy as np

from ..analysis import shares_left
from ..models import AbstractLinearStack, AbstractModel
from ..tasks import AbstractTask, LinearRegression
from ..theory import wishart_spectrum
from ._panel import LARGEST_SERIES, Levels, Panel

# Polynomials are computed up to this dimension, where products of matrices are cheap, and drawn to
# this far beyond the edge of the spectrum of large contexts.
_LARGEST_POLYNOMIAL, _REACH = 16, 1.3


def polynomial_panel(task: AbstractTask, model: AbstractModel) -> Panel | None:
    """What a stack of linear attention leaves of a task, over the spectrum of its contexts.

    None for other models, where the query is attended, and for matrices that would slow the curve
    down.
    """
    if not isinstance(model, AbstractLinearStack) or not isinstance(task, LinearRegression):
        return None
    if model.self_attention or task.dim > _LARGEST_POLYNOMIAL:
        return None
    dim, contexts = task.dim, task.contexts
    end = _REACH * (1 + np.sqrt(dim / min(contexts))) ** 2
    levels = np.linspace(0.0, end, LARGEST_SERIES)
    half = levels[1] / 2
    edges, mass = np.append(levels - half, end + half), np.zeros(len(levels))
    for count, share in zip(contexts, np.asarray(task.context_probabilities)):
        rule = wishart_spectrum(dim, count)
        # What lies below each edge: nodes themselves fall into bins unevenly.
        below = np.cumsum(rule.weights) - rule.weights / 2
        parts = np.diff(np.interp(edges, rule.values / count, below))
        parts[0] += rule.zeros
        mass += float(share) * parts
    return Panel(
        "polynomial",
        "What the layers leave of a task",
        "p(s), the share of a task that is not predicted where a context has the covariance sΛ, "
        "the mean over directions, at this moment. Behind it, which s contexts have.",
        "p(s)",
        "levels",
        lambda points: shares_left(points.models, task, levels),
        series=tuple(f"s = {level:.3g}" for level in levels),
        over=Levels(
            "eigenvalue s of S, in units of Λ",
            tuple(map(float, levels)),
            tuple(map(float, mass / mass.max())),
            "spectrum of S",
        ),
    )

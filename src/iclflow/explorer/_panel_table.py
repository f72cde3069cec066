"""The panels below the loss, as tables: what each says, which axis it has, what measures it."""

import numpy as np

from ..analysis import (
    best_strengths,
    component_shares,
    component_strengths,
    conserved_drift,
    diagonal_shares,
    has_conserved,
    head_shares,
    head_sizes,
    label_shares,
    pair_balance,
    unmixed_share,
    zero_sum,
)
from ..circuits import weight_sets
from ..experiment import Experiment
from ..tasks import MultiTaskRegression
from ._panel import Panel
from ._panel_polynomial import polynomial_panel

# Conserved quantities are computed up to this size, heads times squared dimension: beyond it they
# would slow the curve down.
_LARGEST_CONSERVED = 512


_STRENGTHS = Panel(
    "strengths",
    "Strength of each component",
    "0 before a principal component is learned, 1 at the strength with the smallest loss.",
    "strength / best strength",
    "components",
    lambda points: component_strengths(points.circuits).sum(1) / points.best,
)
_ALIGNMENT = Panel(
    "alignment",
    "Alignment of each head with its component",
    "The share of a head's key-query matrix along the component nearest to it: 1 when key and "
    "query both point along it.",
    "share",
    "heads",
    lambda points: component_shares(points.circuits).max(-1),
)
_UNMIXED = Panel(
    "diagonal",
    "How diagonal the model is",
    "The share of the squared norm of all heads together that lies along single components; the "
    "rest mixes components.",
    "share",
    "all",
    lambda points: unmixed_share(points.circuits)[:, None],
)
_VALUES = Panel(
    "values",
    "Value of each head",
    "v, the weight with which a head reads labels.",
    "v",
    "heads",
    lambda points: points.circuits.mu[..., 0],
)
_SIZES = Panel(
    "sizes",
    "Size of each key-query matrix",
    "Its Frobenius norm.",
    "‖KQ‖",
    "heads",
    lambda points: head_sizes(points.circuits),
)
_CONSERVED = Panel(
    "conserved",
    "What gradient flow conserves",
    "The largest change since the start in the differences between the squared norms of values, "
    "keys and queries. Gradient flow conserves them; finite steps do not.",
    "change",
    "all",
    lambda points: conserved_drift(points.models, points.start)[:, None],
    log=True,
)
_HEADS = (
    Panel(
        "omega",
        "What each head attends to",
        "ω, the mean of the diagonal of key-query on the inputs: above 0 a head attends to similar "
        "inputs, below 0 to opposite ones.",
        "ω",
        "heads",
        lambda points: points.circuits.omega[..., 0],
    ),
    Panel(
        "mu",
        "What each head reads from labels",
        "μ, the weight with which the label of a token enters the prediction.",
        "μ",
        "heads",
        lambda points: points.circuits.mu[..., 0],
    ),
)
_STEPS = Panel(
    "steps",
    "Gradient step of all heads together",
    "The sum over heads of μ times the diagonal of key-query: the step along each direction, to "
    "first order in the attention.",
    "step size",
    "directions",
    lambda points: component_strengths(points.circuits).sum(1),
)
_DIAGONALS = Panel(
    "diagonal",
    "How diagonal key-query is",
    "The norm of its diagonal as a share of the whole: 1 for a head that compares inputs "
    "coordinate by coordinate.",
    "share",
    "heads",
    lambda points: diagonal_shares(points.circuits),
)
_LAST = Panel(
    "last",
    "How much of output-value is the label",
    "|μ| as a share of everything that a head reads: 1 when it reads labels alone.",
    "share",
    "heads",
    lambda points: label_shares(points.circuits),
)
_SUMS = Panel(
    "sums",
    "Do positive and negative heads cancel?",
    "The sum of μ over heads as a share of the sum of |μ|, and the same for what positive and "
    "negative heads add to the step: both are 0 for a debiased step.",
    "share",
    "sums",
    lambda points: np.stack(
        [
            zero_sum(points.circuits.mu[..., 0]),
            pair_balance(points.circuits.omega[..., 0], points.circuits.mu[..., 0]),
        ],
        -1,
    ),
)
_TASKS = (
    Panel(
        "share",
        "Which head works for which task",
        "What a head adds to the gradient step on a task, as a share of what all heads add.",
        "share of the task",
        "tasks",
        lambda points: head_shares(points.circuits.strength),
    ),
    Panel(
        "step",
        "Step of each head on each task",
        "μω, what a head adds to the gradient step on a task, to first order.",
        "step size",
        "tasks",
        lambda points: points.circuits.mu * points.circuits.omega,
    ),
    Panel(
        "omega",
        "What each head attends to",
        "ω, by head and task.",
        "ω",
        "tasks",
        lambda points: points.circuits.omega,
    ),
    Panel(
        "mu",
        "What each head reads from labels",
        "μ, by head and task.",
        "μ",
        "tasks",
        lambda points: points.circuits.mu,
    ),
)


def choose_panels(experiment: Experiment, heads: int) -> tuple[Panel, ...]:
    """The panels that exist for an experiment, in the order of the page."""
    task, model, config = experiment.task, experiment.model, experiment.config
    if weight_sets(model) is not None:
        polynomial = polynomial_panel(task, model)
        return _HEADS if polynomial is None else (polynomial, *_HEADS)
    if isinstance(task, MultiTaskRegression):
        return _TASKS
    kind = config.model.kind
    if best_strengths(task, model.divides_by) is not None and not config.model.softmax:
        small = config.model.heads * task.dim**2 <= _LARGEST_CONSERVED
        conserved = has_conserved(model) and config.flow.kind != "adam" and small
        chosen = {
            _STRENGTHS: True,
            _ALIGNMENT: kind in ("separate", "convolutional"),
            _UNMIXED: True,
            _VALUES: True,
            _SIZES: True,
            _CONSERVED: conserved,
        }
    else:
        matrices = kind != "structured" or getattr(config.model, "per_coordinate")
        full = getattr(config.model, "form", "reduced") == "full"
        chosen = {
            **dict.fromkeys(_HEADS, True),
            _STEPS: matrices,
            _DIAGONALS: matrices,
            _LAST: kind == "factored" or full,
            _SUMS: heads > 1,
        }
    return tuple(panel for panel, exists in chosen.items() if exists)

"""Predictions for runs of softmax attention (arXiv 2503.12734)."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from ..models import AbstractModel, Attention, Diagonal
from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression, isotropic
from ..theory import (
    Setting,
    any_heads_bound,
    bayes_risk_isotropic,
    debiased_optimum,
    heads_needed,
    one_head_optimum,
    pair_flow,
    pair_optimum,
    shared_steps,
    task_floors,
)
from ._build import Experiment
from ._prediction import Overlay

PAIR, BOUND = "best opposite pair", "lower bound, any heads"
# Inputs up to which the Bayes risk, an integral over eigenvalues, takes well below a second.
_LARGEST_BAYES = 100
# Tolerance for two heads to be an opposite pair.
_ROUNDING = 1e-12

Reference = tuple[str, float]


def softmax_overlay(experiment: Experiment) -> Overlay | None:
    """The prediction for a run of softmax attention; None if theory has none."""
    config, task = experiment.config, experiment.task
    if config.risk.kind == "large_context" or config.exact:
        moving = _pair(experiment)
        if moving is not None:
            return moving
    if not (config.exact or config.sampled):
        return None
    if isinstance(task, MultiTaskRegression):
        references, source = _several(experiment, task), "shared debiased steps"
    else:
        references, source = _isotropic(experiment, task), "known losses on this task"
    return Overlay(np.zeros(0), np.zeros(0), None, source, references) if references else None


def _pair(experiment: Experiment) -> Overlay | None:
    """The flow of two opposite heads, which stay opposite."""
    model, task, unit = experiment.model, experiment.task, experiment.clock_unit
    if unit is None or not isinstance(task, LinearRegression):
        return None
    heads = _opposite_pair(model)
    if heads is None:
        return None
    try:
        setting = Setting.of(task)
    except ValueError:
        return None
    w, mu = heads
    loss = "exact" if experiment.config.exact else "large_context"

    def curve(clock: np.ndarray) -> np.ndarray:
        return pair_flow(setting, np.asarray(clock) * unit, w, mu, loss=loss).loss

    references = ()
    # The large-context loss has no best pair: its flow drifts for ever.
    if loss == "exact":
        references = tuple(_compute([(PAIR, lambda: pair_optimum(setting).loss)]))
    source = "the flow of an opposite pair, from the initial weights alone"
    levels = np.array([level for _, level in references])
    return Overlay(levels, np.zeros(0), curve, source, references, whole=True)


def _opposite_pair(model: AbstractModel) -> tuple[float, float] | None:
    """w and μ, if the model is two heads (w, μ) and (−w, −μ), one number ω each."""
    if not isinstance(model, Attention) or model.self_attention:
        return None
    circuits = model.circuits
    if not isinstance(circuits, Diagonal) or circuits.omega.shape != (2,) or circuits.labels != 1:
        return None
    weights = np.stack([np.asarray(circuits.omega), np.asarray(circuits.mu)[:, 0]])
    if np.max(np.abs(weights.sum(1))) > _ROUNDING * np.max(np.abs(weights)):
        return None
    return float(weights[0, 0]), float(weights[1, 0])


def _isotropic(experiment: Experiment, task: AbstractTask) -> tuple[Reference, ...]:
    """The losses of estimators, one head and a pair on an isotropic task of any scale."""
    settings, model = experiment.config.task, experiment.config.model
    alone = not getattr(model, "self_attention", False)
    if not (isinstance(task, LinearRegression) and settings.isotropic and len(task.contexts) == 1):
        return ()
    dim, length = task.dim, task.contexts[0]
    # Scaled so that a noiseless label has variance 1, this is the task of the paper.
    power = float(np.sum(np.asarray(task.covariance) * np.asarray(task.weight_second_moment)))
    if power == 0:
        return ()
    paper_task = isotropic(dim, length, float(task.noise) / power)
    cheap = min(dim, length) <= _LARGEST_BAYES
    losses: list[tuple[str, Callable[[], float]]] = []
    if alone:
        losses += [("best single head", lambda: one_head_optimum(paper_task).loss)]
    losses += [("best debiased step", lambda: debiased_optimum(paper_task).risk)]
    if alone:
        losses += [(PAIR, lambda: pair_optimum(paper_task).loss)]
    if alone and model.kind == "structured" and not model.per_coordinate:
        losses += [(BOUND, lambda: any_heads_bound(paper_task))]
    if cheap:
        losses += [("Bayes", lambda: bayes_risk_isotropic(paper_task))]
    unseen = 0.0 if task.noisy_query else float(task.noise)
    return tuple((name, power * loss - unseen) for name, loss in _compute(losses))


def _several(experiment: Experiment, task: MultiTaskRegression) -> tuple[Reference, ...]:
    """The losses of small heads on all tasks together: a debiased step for each, or less."""
    model = experiment.config.model
    # Heads must be free to read each coordinate with its own weight, in the basis of the tasks.
    own = getattr(model, "per_coordinate", True)
    if task.rotated or not own or getattr(model, "self_attention", False):
        return ()
    noise = float(np.sum(np.asarray(task.noise))) if task.noisy_query else 0.0
    enough = heads_needed(task)
    floors = (
        f"each task its own debiased step (from {enough} heads on)",
        lambda: float(task_floors(task).sum()) + noise,
    )
    losses = [floors]
    if 2 <= model.heads < enough:
        best = lambda: float(shared_steps(task, model.heads).excess.sum()) + noise
        losses.insert(0, (f"best debiased steps of {model.heads} heads", best))
    return tuple(_compute(losses))


def _compute(losses: list[tuple[str, Callable[[], float]]]) -> Iterator[Reference]:
    """The losses that exist for these numbers; theory refuses the others, such as for L = 1."""
    for name, compute in losses:
        with contextlib.suppress(ValueError):
            yield name, float(compute())

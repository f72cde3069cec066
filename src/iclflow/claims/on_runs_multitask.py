"""Claims of arXiv 2402.19442 on a run of decomposable attention that somebody made."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..analysis import allocation, decomposition, learning_phases
from ..config import Config, MultiTask
from ..tasks import MultiTaskRegression
from ..theory import multitask
from ._base import Check, Inconclusive
from ._lab import Lab
from ._on_runs import Given, on_run
from ._run_needs import gradient_flow

# A head that leads by less is not surely ahead, and one with less of a task may still lose it.
_LEAD = 0.01
_OWNED = 0.9


def spectral(config: Config) -> str | None:
    """Decomposable softmax heads on tasks with coordinates of their own, one length."""
    model, task = config.model, config.task
    if model.kind != "multi_spectral":
        return f'speaks of decomposable heads: `model.kind` = "{model.kind}"'
    if not model.label_blind and getattr(model, "weights") != "tokens":
        return "speaks of softmax attention over the context alone: `model` is other attention"
    if not isinstance(task, MultiTask) or not task.disjoint:
        return "speaks of tasks on coordinates of their own: those of `task.coordinates` overlap"
    if isinstance(task.context, tuple) and len(task.context) > 1:
        return "speaks of one context length: `task.context` has several"
    if task.signal is not None and min(task.signal) <= 0:
        return "speaks of tasks with a signal: one of `task.signal` is zero"
    return None


def large_context(config: Config) -> str | None:
    """The closed form of the loss."""
    if config.risk.kind == "large_context":
        return None
    return f'speaks of the large-context risk: `risk.kind` = "{config.risk.kind}"'


def balanced(config: Config) -> str | None:
    """Factors in balance."""
    for name in ("key_imbalance", "value_imbalance"):
        value = getattr(config.model, name)
        if value != 0:
            return f"speaks of factors in balance: `model.{name}` = {value:g}"
    return None


def moving(config: Config) -> str | None:
    """A start that is not zero."""
    for name in ("omega", "mu"):
        if getattr(config.model, name) == 0:
            return f"speaks of positive starts: `model.{name}` = 0"
    return None


def free(config: Config) -> str | None:
    """Weights that could leave the decomposable ones."""
    weights = getattr(config.model, "weights")
    if weights in ("matrices", "tokens"):
        return None
    return f'is true of these weights by construction: `model.weights` = "{weights}"'


def several_heads(config: Config) -> str | None:
    """Heads of which one can be ahead."""
    if config.model.heads > 1:
        return None
    return "speaks of heads of which one is ahead: `model.heads` = 1"


_FLOW = (spectral, large_context, gradient_flow, balanced, moving)


@on_run(
    "multitask/spectral-flow",
    *_FLOW,
    tolerance_reason="Both sides solve an ODE to 1e-8 a step or better; 1e-5 of the largest ω and "
    "μ and 1e-5 of the loss leave room for a drop that comes late by 1e-6 of its time.",
)
def spectral_flow(given: Given, lab: Lab) -> list[Check]:
    """ω, μ and the loss over the whole run, from those at t = 0."""
    start = _start(given)
    flow = multitask.spectral_flow(
        given.run.times, start.omega[0], start.mu[0], start.blocks, start.width
    )
    return [
        Check(f"{name}(t)", lab.predict(predicted), found, 1e-5 * float(np.max(np.abs(predicted))))
        for name, predicted, found in (("ω", flow.omega, start.omega), ("μ", flow.mu, start.mu))
    ] + [Check("loss(t)", lab.predict(flow.loss + start.noise), given.run.losses, 1e-5, "relative")]


@on_run(
    "multitask/decomposable",
    spectral,
    large_context,
    gradient_flow,
    free,
    tolerance_reason="The forbidden gradients are sums that cancel; what is left is rounding, "
    "which grows near the limit of the flow, a saddle: 1e-8.",
)
def decomposable(given: Given, lab: Lab) -> list[Check]:
    """The largest part of the weights that no decomposable model has, along the run."""
    found = decomposition(given.run, _task(given)).preservation
    assert found is not None
    return [Check("largest defect", lab.predict(0.0, wrong=1e-3), float(found.largest.max()), 1e-8)]


@on_run(
    "multitask/three-phases",
    *_FLOW,
    tolerance_reason="Times are read between saved points by a monotone cubic: 1 % of them.",
)
def three_phases(given: Given, lab: Lab) -> list[Check]:
    """When 5 %, 50 % and 95 % of the drop are done, for starts with another head ahead on each."""
    start = _start(given)
    _distinct(start)
    times = multitask.phase_times(start.omega[0], start.mu[0], start.blocks, start.width)
    due = times <= 0.95 * given.end
    if not due.any():
        raise Inconclusive(f"warm-up is predicted to end at {times[0]:.4g}, after the run's end")
    floor = multitask.gradient_flow_limit(start.blocks).loss + start.noise
    found = learning_phases(given.run, floor=floor)
    measured = np.array([found.emergence, found.half, found.convergence])
    name = "times of 5 %, 50 % and 95 % of the drop"
    return [Check(name, lab.predict(times[due]), measured[due], 0.01, "relative")]


@on_run(
    "multitask/heads-ahead",
    *_FLOW,
    several_heads,
    tolerance_reason="Owners: they are the predicted ones or not. Heads must lead by 1 % at the "
    "start, as the claim says, and have 90 % of their tasks at the end.",
)
def heads_ahead(given: Given, lab: Lab) -> list[Check]:
    """Which head has each task, and which was ahead at the start."""
    start = _start(given)
    _distinct(start)
    owners = _owners(given)
    ahead = tuple(int(head) for head in start.ahead)
    wrong = tuple(head + 1 for head in ahead)
    return [Check("owners", lab.predict(ahead, wrong=wrong), owners, comparison="equal")]


@on_run(
    "multitask/limit-loss",
    *_FLOW,
    tolerance_reason="ω on other tasks falls as 1/(rt) from the end of the emergence on, r being "
    "the rate that theory has, and costs `tail_excess`. Heads that share a task have less of it "
    "each, and lose the others more slowly: what the last weights have of other tasks is costed "
    "too. Half as much again as the larger is allowed, for heads that were late, where that is "
    "below 1 % of the limit.",
)
def limit_loss(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end, for starts with another head ahead on each task."""
    start = _start(given)
    _distinct(start)
    count = len(start.blocks.sizes)
    limit = multitask.gradient_flow_limit(start.blocks).loss
    emerged = multitask.phase_times(
        start.omega[0], start.mu[0], start.blocks, start.width, fractions=(0.95,)
    )[0]
    since = given.end - float(emerged)
    rate = float(np.min(multitask.convergence_rates(start.blocks, start.width).omega))
    left = 1 / (rate * since) if since > 0 else np.inf
    tail = multitask.tail_excess(np.full((count, count), min(left, 1.0)), start.blocks)
    allowed = 1.5 * max(tail, _cost_of_others(start))
    if allowed > 0.01 * limit:
        raise Inconclusive(f"the run ends at {given.end:.4g}, before its loss is near a limit")
    limit += start.noise
    # Rounding of the solver, where the tail is below it.
    allowed = max(allowed, 1e-7 * limit)
    return [Check("loss at the end", lab.predict(limit), given.run.losses[-1], allowed)]


@on_run(
    "multitask/shared-heads",
    *_FLOW,
    tolerance_reason="The loss falls to that of its division algebraically: 1 % is allowed where "
    "it has come to rest, changing by less than 0.1 % of its drop.",
)
def shared_heads(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end, beside that of the division of the tasks which the heads have made."""
    start, owners = _start(given), _owners(given)
    if not learning_phases(given.run, tolerance=1e-3).settled:
        raise Inconclusive("the loss has not come to rest")
    limit = multitask.divided_limit(owners, start.blocks).loss + start.noise
    return [Check("loss at the end", lab.predict(limit), given.run.losses[-1], 0.01, "relative")]


def _cost_of_others(start: "_Start") -> float:
    """`tail_excess` of the last weights, for any number of heads a task.

    Label i pays (φ_i/L) λ_i d_i μ_iᵀ E μ_i, E = exp⟨h, k⟩: for heads along task i, and small ω_hj
    on others, this grows by e Σ_j d_j (Σ_h μ_hi ω_hj)².
    """
    blocks, omega, mu = start.blocks, np.abs(start.omega[-1]), np.abs(start.mu[-1])
    together = mu.T @ omega
    np.fill_diagonal(together, 0.0)
    cost = np.e / blocks.length * blocks.power * blocks.phi
    return float(np.sum(cost[:, None] * blocks.sizes * together**2))


class _Start(NamedTuple):
    """The singular values along a run, and what theory needs beside them."""

    blocks: multitask.Blocks
    width: int
    noise: float
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    ahead: Int[np.ndarray, " I"]
    leads: Float[np.ndarray, " I"]


def _task(given: Given) -> MultiTaskRegression:
    assert isinstance(given.task, MultiTaskRegression)
    return given.task


def _start(given: Given) -> _Start:
    task, model = _task(given), given.config.model
    found = decomposition(given.run, task).preservation
    assert found is not None
    blocks = multitask.blocks_of(task)
    width = getattr(model, "width") or given.config.task.dim
    noise = float(np.sum(np.asarray(task.noise))) if task.noisy_query else 0.0
    starts = multitask.head_starts(found.omega[0], found.mu[0], blocks, width)
    ranked = np.sort(starts, 0)
    leads = ranked[-1] / ranked[-2] - 1 if len(starts) > 1 else np.full(len(blocks.sizes), np.inf)
    return _Start(blocks, width, noise, found.omega, found.mu, np.argmax(starts, 0), leads)


def _leads(start: _Start) -> None:
    if np.min(start.leads) < _LEAD:
        lead = 100 * float(np.min(start.leads))
        raise Inconclusive(f"the head that is ahead on a task leads by {lead:.2g} %, less than 1 %")


def _distinct(start: _Start) -> None:
    _leads(start)
    if len(set(start.ahead.tolist())) < len(start.ahead):
        raise Inconclusive("one head is ahead on several tasks: the claim is for another on each")


def _owners(given: Given) -> tuple[int, ...]:
    found = allocation(given.run.final, _task(given))
    if min(found.owners) < 0 or np.min(found.own_share) < _OWNED:
        raise Inconclusive("the tasks are not divided among the heads at the end of the run")
    return found.owners

"""Claims on arXiv 2402.19442 on training with sampled sequences of a finite length."""

from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from ... import theory
from ...analysis import allocation, decomposition
from ...flows import SaveEvenly, gradient_flow, sgd
from ...models import Attention, BalancedSpectral
from ...risks import IntegratedRisk, exact_multi_risk, risk
from ...tasks import isotropic
from ...theory import multitask
from ...trajectory import Trajectory
from .. import Checks, Lab, claim, once, study
from .runs import (
    CONTEXT,
    FULL_WEIGHTS,
    SIZES,
    WIDTH,
    blocks_of_sizes,
    full_start,
    note_paper,
    paper_heads,
    paper_start,
    paper_task,
    paper_values,
)

_STUDY: Any = study("multitask/sampled")
_RATE = _STUDY.flow.learning_rate
# The time of flow from which on heads are at rest.
_RESTED = 30.0
# Values of ω on the own task: late in the warm-up, in the emergence, after it.
_LEVELS = (0.03, 0.158, 0.25)


@once
def sampled_run(lab: Lab) -> Trajectory:
    """Full factors trained by stochastic gradient descent on fresh sequences of Figure 1.

    Labels are integrated out of every step; contexts and queries are drawn.
    """
    data = IntegratedRisk(paper_task(), _batch(lab), precision=_STUDY.risk.precision)
    save = SaveEvenly(_STUDY.save.count)
    return sgd(full_start(), data, _RATE, _STUDY.flow.steps, key=jr.key(6), save=save,
               progress=False)  # fmt: skip


def _batch(lab: Lab) -> int:
    size = _STUDY.risk.batch
    return lab.scaled(size, size, 512)


def _flow_times(run: Trajectory) -> np.ndarray:
    """One step of rate η is a time of 2η: the flow follows half the gradient."""
    return 2 * _RATE * run.times


def _note(lab: Lab) -> None:
    note_paper(
        lab, rate=_RATE, steps=_STUDY.flow.steps, batch=_batch(lab), weights=FULL_WEIGHTS,
        optimiser="stochastic gradient descent, labels integrated out",
    )  # fmt: skip


def _own(values: np.ndarray) -> np.ndarray:
    """The weights of the own heads over time, averaged over tasks."""
    return np.einsum("tii->t", values) / values.shape[1]


@claim(
    "multitask/sampled-training",
    """Full factors that are trained on sampled sequences follow the spectral flow, a step of rate η
    being a time of 2η: each head selects the task on which it is ahead, and ω rises when it
    should.""",
    source="Figure 1, 'numerical simulations based on data' in the caption of Figure 3",
    tolerance_reason="""The flow is that of the closed form, whose exact counterpart at L = 100 is
    up to 10 % higher after the emergence (`multitask/closed-form-error`). In batches of 1024, with
    little noise, ω passes the three levels late by 1.6, 1.8 and 3.0 %, and is 3.7 % larger on other
    tasks at the end: 4 % and 5 %, as between seeds the rise moves by 1 %. Both were set with these
    deviations in view: at this length they say how far the closed form is off, and other seeds are
    the test.""",
)
def sampled_training(lab: Lab) -> Checks:
    """Owners, and when the mean ω of the own heads passes three levels."""
    _note(lab)
    run, task = sampled_run(lab), paper_task()
    times = _flow_times(run)
    found = decomposition(run, task).preservation
    assert found is not None
    expected = multitask.spectral_flow(task, times, *paper_values(), WIDTH)
    passed = lambda omega: np.array([np.interp(level, _own(omega), times) for level in _LEVELS])
    other = lambda omega: (omega.sum((1, 2)) / 3 - _own(omega)) / 2
    late = passed(expected.omega)
    yield lab.equal("owners", [0, 1, 2], allocation(run, task).owners, wrong=[1, 2, 0])
    name = "times at which ω passes 0.03, 0.158 and 0.25"
    yield lab.relative(name, late, passed(found.omega), 0.04)
    rest, name = other(expected.omega), "ω on other tasks at all times"
    yield lab.relative(name, rest, other(found.omega), 0.05)


@claim(
    "multitask/sampled-end",
    """Training on sampled sequences, with labels integrated out, comes to a plateau at the exact
    optimum of one head for each task at the length L, whose loss is 10 % above that of the closed
    form. It is a plateau: with drawn labels it is left (`multitask/left-by-sgd`).""",
    source="""Theorem 2 and Figure 1, whose simulations are 'based on data'; the exact optimum is
    derived in docs/theory/softmax.md""",
    tolerance_reason="""Heads on different tasks are orthogonal, so that each solves a problem of
    one head. What is left of ω on other tasks, and noise of steps that do not shrink, shift means
    over the last quarter of the run: ω by up to 0.5 %, μ by 1 %, the loss by 1 to 2 %, as runs
    showed; the tolerances of 1, 1.5 and 2.5 % were set with that known, and other seeds are the
    test.""",
)
def sampled_end(lab: Lab) -> Checks:
    """Means over the last quarter of the run, beside the exact optimum of one head."""
    _note(lab)
    run, task = sampled_run(lab), paper_task()
    rested = _flow_times(run) >= _RESTED
    found = decomposition(run, task).preservation
    assert found is not None
    best = theory.one_head_optimum(isotropic(SIZES[0], CONTEXT, 0.0))
    yield lab.relative("ω of the own heads", best.omega, _own(found.omega)[rested].mean(), 0.01)
    yield lab.relative("μ of the own heads", best.mu, _own(found.mu)[rested].mean(), 0.015)
    loss = run.losses[rested].mean()
    yield lab.relative("loss", sum(SIZES) * best.loss, loss, 0.025)


@claim(
    "multitask/exact-limit",
    """The flow of the exact risk at the sizes of Figure 1, without the closed form, from the same
    balanced start: each head takes its own task and comes to the exact optimum of one head, with
    the loss 7.0633 at L = 100.""",
    source="Theorems 1 and 2; the exact optimum is derived in docs/theory/softmax.md",
    tier="paper",
    tolerance_reason="""At t = 40 ω on other tasks, which falls as 1/t, still costs what it costs in
    the closed form, 0.7 % of the loss, to a tenth of itself; the exact risk has three digits of the
    loss of predicting zero, 0.1 % of 30, which is 0.5 % of this loss.""",
)
def exact_limit(lab: Lab) -> Checks:
    """Owners, own weights and the loss at t = 40 of the flow of the exact risk."""
    task, end = paper_task(), 40.0
    note_paper(lab, end=end, risk="exact, three digits", weights="balanced singular values")
    run = lab.compute(_exact_flow, end)
    found = decomposition(run, task).preservation
    assert found is not None
    best = theory.one_head_optimum(isotropic(SIZES[0], CONTEXT, 0.0))
    closed = multitask.spectral_flow(task, np.array([0.0, end]), *paper_values(), WIDTH)
    tail = closed.loss[-1] / multitask.gradient_flow_limit(task).loss
    lab.note(exact_limit=sum(SIZES) * best.loss, losses=run.losses)
    owners = np.argmax(found.omega[-1] * found.mu[-1], 0).tolist()
    yield lab.equal("owners", [0, 1, 2], owners, wrong=[0, 2, 1])
    yield lab.relative("ω of the own heads", best.omega, float(_own(found.omega)[-1]), 0.01)
    yield lab.relative("μ of the own heads", best.mu, float(_own(found.mu)[-1]), 0.015)
    expected = sum(SIZES) * best.loss * tail
    yield lab.relative("loss at the end", expected, float(run.losses[-1]), 0.008)


def _exact_flow(end: float) -> Trajectory:
    """Gradient flow of the exact risk; one weight for each pair of factors keeps its balance."""
    model = Attention(BalancedSpectral.of(*paper_values(), blocks_of_sizes(SIZES), width=WIDTH))
    exact = exact_multi_risk(paper_task(), paper_heads(*multitask.limit_heads(paper_task())), 3)
    return gradient_flow(model, exact, end=end, save=SaveEvenly(21), rtol=1e-4, progress=False)


@claim(
    "multitask/closed-form-error",
    """Along the flow the closed form of the loss is right to 0.1 %, up or down, until the
    emergence, and too low after it; at its limit it is 9.2 % too low for blocks of 10 and 100
    samples.""",
    source="Lemma 2, an approximation for long contexts and large blocks",
    tier="paper",
    tolerance_reason="""The exact risk is right to four digits; the loss of one head, by other code,
    to more. Until the emergence heads take at most 5 % off the loss, and while dω² is small the
    closed form neglects some 2/L = 2 % of what they take: 0.1 %.""",
)
def closed_form_error(lab: Lab) -> Checks:
    """The exact risk beside the closed form along theory's flow, and at its limit."""
    task = paper_task()
    times = np.array([0.0, 4.0, 8.0, 12.0, 16.0, 24.0, 40.0])
    lab.note(sizes=SIZES, context=CONTEXT, noise=0.0, heads=3, width=WIDTH, times=times)
    flow = multitask.spectral_flow(task, times, *paper_values(), WIDTH)
    exact = risk(task, paper_start(), "exact", digits=4)
    value = eqx.filter_jit(lambda model: exact(model))
    along = np.array([float(value(paper_heads(w, m))) for w, m in zip(flow.omega, flow.mu)])
    omega, mu = multitask.limit_heads(task)
    alone = theory.kernel_regression_risk(isotropic(SIZES[0], CONTEXT, 0.0), omega[0, 0], mu[0, 0])
    limit = float(value(paper_heads(omega, mu)))
    closed = multitask.gradient_flow_limit(task).loss
    error = along / flow.loss - 1
    lab.note(exact_over_closed=1 + error, score_variance=np.max(SIZES[0] * flow.omega**2, (1, 2)))
    together = sum(SIZES) * alone
    yield lab.relative("exact loss of the limit", together, limit, 1e-4)
    name = "closed form over exact loss there"
    yield lab.relative(name, closed / together, closed / limit, 1e-4)
    yield lab.close("error until t = 8", np.zeros(3), error[:3], 1e-3, scale=1.0)
    yield lab.equal("whether it is too low later", [True] * 4, error[3:] > 0)

"""Claims on arXiv 2503.12734 on other tasks: correlated inputs, several tasks, curved labels."""

import jax.random as jr
import numpy as np

from ... import theory
from ...analysis import superposition
from ...risks import IntegratedRisk
from ...tasks import HermiteRegression, isotropic
from .. import Checks, Lab, claim
from .runs import CONTEXT, DIM, NOISE, SETTING, paper_task
from .runs_descent import (
    anisotropic_mean,
    anisotropic_task,
    descent_settings,
    two_task_excess,
    two_task_run,
    two_task_settings,
    two_tasks,
)
from .runs_sampling import best_pair, sampled_losses

_TASKS = ("softmax/tasks",)
# Variance and degrees of the curved part of labels.
_CURVED, _DEGREES = 0.36, (2, 3)


@claim(
    "softmax/preconditioner",
    """With correlated inputs, of covariance Λ, the pair learns preconditioned gradient descent on
    centred inputs, with the matrix Γ* = [Λ + (tr Λ + dσ²)/L]⁻¹.""",
    source="the extension to anisotropic covariates; derived in docs/theory/softmax.md",
    tolerance_reason="""Weights are averaged over the second half of the run. Finite attention
    changes what a head of given matrix returns by about 1 %, and a few thousandths are left of the
    noise of batches: 2 % of the largest entry. The loss is drawn with a standard error of 0.22 %,
    and finite attention and noise cost 0.3 %: 1 %.""",
    figures=("softmax/anisotropic",),
)
def preconditioner(lab: Lab) -> Checks:
    """Σ μ_h W_h of the trained pair in the eigenbasis of Λ, and its loss."""
    task, model = anisotropic_task(), anisotropic_mean(lab)
    lab.note(**descent_settings(lab), eigenvalues=np.diag(np.asarray(task.covariance)))
    learned = np.einsum("hde,h->de", model.circuits.U, model.circuits.v)
    best = theory.debiased_matrix(task)
    count = lab.scaled(40_000, 80_000, 400_000)
    loss = lab.compute(
        lambda: IntegratedRisk(task, 5000, precision="float32").estimate(model, jr.key(10), count)
    )
    name = "matrix in the eigenbasis / its largest entry"
    yield lab.close(name, best / best.max(), learned / best.max(), 0.02)
    yield lab.relative("loss", theory.debiased_matrix_optimum(task), float(loss.value), 0.01)


@claim(
    "softmax/heads-for-tasks",
    """I + 1 heads are enough for I tasks on overlapping coordinates: with three heads each of two
    tasks reaches the floor of its own debiased gradient descent, with two they cannot.""",
    source="the extension to several tasks; derived in docs/theory/softmax.md",
    tolerance_reason="""Floors are limits of vanishing attention. At the finite attention of a
    trained model three heads leave 2 to 2.6 % of them over eight seeds, two heads 0.9 %; the two
    floors are 34 % apart. The loss is drawn, with a standard error of 0.4 %.""",
    figures=_TASKS,
)
def heads_for_tasks(lab: Lab) -> Checks:
    """Mean excess of two and of three trained heads."""
    task = two_tasks()
    lab.note(**two_task_settings(lab, (2, 3)))
    few = float(theory.shared_steps(task, 2).excess.mean())
    enough = float(theory.task_floors(task).mean())
    found = {heads: float(two_task_excess(lab, heads).value) for heads in (2, 3)}
    # Finite attention leaves up to 2.6 %; the floor of two heads is 34 % higher.
    reached = [heads for heads, excess in found.items() if excess < 1.03 * enough]
    name = "heads from which floors are reached"
    yield lab.equal(name, theory.heads_needed(task), min(reached, default=0), wrong=4)
    yield lab.relative("excess of two heads", few, found[2], 0.015, wrong=enough)
    yield lab.relative("excess of three heads", enough, found[3], 0.03, wrong=few)


@claim(
    "softmax/superposition",
    """With I + 1 ≤ H < 2I heads some head works for several tasks at once. With more it need not,
    but nothing keeps it from it: in most runs five heads on two tasks reach both floors while some
    head goes on working for both.""",
    source="the superposition of tasks; above 2I as measured",
    tolerance_reason="""Three heads must share, so that one is counted at least. For five the share
    of seeds is only held to a half: it depends on the start and on where the line is drawn (of 16
    seeds 16 have such a head if the second task gets a quarter of the first, 11 if it gets half),
    and shorter runs from other starts ended without one. The loss is drawn: four standard errors,
    1.5 %.""",
    figures=_TASKS,
)
def superposed(lab: Lab) -> Checks:
    """Heads that work for both tasks, among three and among five."""
    task = two_tasks()
    lab.note(**two_task_settings(lab, (3, 5)))
    seeds = _seeds(lab)
    lab.note(seeds=seeds, regimes={heads: theory.head_regime(task, heads) for heads in (3, 5)})
    floor = float(theory.task_floors(task).mean())
    yield lab.at_least("superposed heads of three", 1, _count_superposed(lab, 3, 1)[0])
    measured = float(np.mean(np.array(_count_superposed(lab, 5, seeds)) > 0))
    yield lab.at_least("share of seeds with a superposed head of five", 0.5, measured)
    yield lab.relative("excess of five heads", floor, float(two_task_excess(lab, 5).value), 0.015)


def _seeds(lab: Lab) -> int:
    return lab.scaled(3, 3, 16)


def _count_superposed(lab: Lab, heads: int, seeds: int) -> list[int]:
    """The number of heads that work for both tasks, seed by seed."""
    finals = [two_task_run(lab, heads, seed).final for seed in range(seeds)]
    return [superposition(final, two_tasks()).superposed for final in finals]


@claim(
    "softmax/one-task-a-head",
    "With more than 2I heads each active head learns exactly one task.",
    source="the extension to several tasks, as stated",
    tolerance_reason="""A count: no head may give its second task more than a quarter of what the
    first gets.""",
    figures=_TASKS,
    corrected_by="softmax/superposition",
    undecided="measured with diagonal heads; the notebook trains free Q, K, V and O",
)
def one_task_a_head(lab: Lab) -> Checks:
    """Heads that work for both tasks, among five, as stated: none."""
    seeds = _seeds(lab)
    lab.note(**two_task_settings(lab, 5), seeds=seeds)
    measured = _count_superposed(lab, 5, seeds)
    yield lab.equal("superposed heads, seed by seed", [0] * seeds, measured, wrong=[-1] * seeds)


@claim(
    "softmax/curved-labels",
    """On labels with a Hermite component of degree k ≥ 2 the pair keeps the linear part alone: the
    component acts as noise that grows with |x|², E[f_k²|x|²] = V_k(d + 2k).""",
    source="beyond the paper; derived in docs/theory/softmax.md",
    tolerance_reason="""Monte Carlo over inputs, with all weights and noise averaged over by hand:
    four standard errors, each below 0.5 % of the loss. Noise of the same variance that did not grow
    with |x|² would make the loss 4 % or more smaller.""",
    figures=("softmax/estimators",),
)
def curved_labels(lab: Lab) -> Checks:
    """The risk of the best pair for linear labels on labels with a part of degree 2 and of 3."""
    count = lab.scaled(20_000, 40_000, 400_000)
    lab.note(**SETTING, variance=_CURVED, degrees=_DEGREES, contexts=count)
    gain, predictors = theory.pair_optimum(paper_task()).gain, {"pair": best_pair(paper_task())}
    sampled, expected, plain = [], [], []
    for degree in _DEGREES:
        task = HermiteRegression(DIM, CONTEXT, degree=degree, variance=_CURVED, noise=NOISE)
        setting = (DIM, CONTEXT, NOISE, count, task)
        found = lab.compute(lambda at=setting: sampled_losses(predictors, *at)["pair"])
        sampled.append(found)
        expected.append(theory.transfer_risk(paper_task(), gain, {degree: _CURVED}))
        # As if the component were noise like any other.
        naive = theory.debiased_risk(isotropic(DIM, CONTEXT, NOISE + _CURVED), gain)
        plain.append((found.value - naive) / found.standard_error)
    yield lab.sampled("risk", np.array(expected), *np.array(sampled).T)
    name = "least distance from that of plain noise, in standard errors"
    yield lab.at_least(name, 4.0, min(plain))

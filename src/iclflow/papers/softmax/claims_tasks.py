"""Claims on arXiv 2503.12734 on other tasks: correlated inputs, several tasks, curved labels."""

import jax.random as jr
import numpy as np

from ... import theory
from ...analysis import wilson
from ...risks import IntegratedRisk
from ...tasks import HermiteRegression, isotropic
from .. import Checks, Lab, claim
from .runs import CONTEXT, DIM, NOISE, SETTING, paper_task
from .runs_descent import (
    anisotropic_mean,
    anisotropic_task,
    descent_settings,
    two_task_excess,
    two_task_settings,
    two_tasks,
)
from .runs_heads import share_of, toeplitz_heads, two_task_heads
from .runs_sampling import best_pair, sampled_losses
from .runs_seeds import (
    RHO,
    TWO_TASKS,
    authors_two_tasks,
    toeplitz_task,
    toeplitz_training,
    two_task_training,
)

_TASKS = ("softmax/tasks",)
# Variance and degrees of the curved part of labels.
_CURVED, _DEGREES = 0.36, (2, 3)


@claim(
    "softmax/preconditioner",
    """With correlated inputs, of covariance Λ, the pair learns preconditioned gradient descent on
    centred inputs, with the matrix Γ* = [Λ + (tr Λ + dσ²)/L]⁻¹.""",
    source="abstract; derived in docs/theory/softmax.md",
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
    "softmax/free-preconditioner",
    """Two free heads trained from random weights on inputs of covariance ρ^|i−j|, ρ = 0.5, learn
    the preconditioner Γ* = [Λ + (tr Λ + dσ²)/L]⁻¹.""",
    tier="paper",
    source="abstract; code: Toeplitz covariance",
    tolerance_reason="""Medians over the seeds that end as a pair. Finite attention changes what a
    head of given matrix returns by 1 to 2 %, and the noise of the steps is left: 3 % of the largest
    entry.""",
    figures=("softmax/anisotropic",),
)
def free_preconditioner(lab: Lab) -> Checks:
    """Σ μ_h W_h of trained free heads in the eigenbasis of Λ, entry by entry."""
    task = toeplitz_task()
    lab.note(**SETTING, rho=RHO, **toeplitz_training(lab).settings(2))
    good, together = toeplitz_heads(lab)
    lab.note(pairs=share_of(good))
    _, basis = np.linalg.eigh(np.asarray(task.covariance))
    best = basis.T @ theory.debiased_matrix(task) @ basis
    learned = basis.T @ np.median(together[good], 0) @ basis
    name = "matrix in the eigenbasis / its largest entry"
    scale = np.ones_like(best)
    yield lab.close(name, best / best.max(), learned / best.max(), 0.03, scale=scale)


@claim(
    "softmax/heads-for-tasks",
    """I + 1 heads are enough for I tasks on overlapping coordinates: with three heads each of two
    tasks reaches the floor of its own debiased gradient descent, with two they cannot.""",
    source="beyond the paper; derived in docs/theory/softmax.md",
    tolerance_reason="""Floors are limits of vanishing attention. At the finite attention of a
    trained model three heads leave 2 to 2.6 % of them over eight seeds, two heads 0.9 %; the two
    floors are 34 % apart. The loss is drawn, with a standard error of 0.4 %. The tolerances were
    set with these values in view.""",
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
    yield lab.equal(name, theory.heads_needed(task), min(reached, default=0))
    yield lab.relative("excess of two heads", few, found[2], 0.015)
    yield lab.relative("excess of three heads", enough, found[3], 0.03)


@claim(
    "softmax/superposition",
    """With I + 1 ≤ H < 2I heads some head works for several tasks at once: three free heads on two
    tasks reach both floors, the output-value entries of each task sum to zero, and a head is shared
    in every seed.""",
    source="abstract; notebook, three heads on two tasks (loss 0.41)",
    tier="paper",
    tolerance_reason="""A count of seeds: three heads must share. The sum over both tasks is above
    the floor by what finite attention and the noise of the rate leave: 3 %. Sums of output-value
    entries: 3 % of their sizes, medians over seeds.""",
    figures=_TASKS,
)
def superposed(lab: Lab) -> Checks:
    """Heads that work for both tasks among three, the loss, and the sums of output-value
    entries."""
    lab.note(**TWO_TASKS, **two_task_training(lab).settings(3))
    found, seeds = two_task_heads(lab, 3), len(two_task_heads(lab, 3).superposed)
    lab.note(shared=share_of(found.superposed > 0), settled=share_of(found.settled))
    yield lab.equal("seeds with a shared head", seeds, int(np.sum(found.superposed > 0)))
    floor = float(theory.task_floors(authors_two_tasks()).mean())
    yield lab.relative("median loss, mean of both tasks", floor, found.median_loss, 0.03)
    name = "|Σμ| / Σ|μ| of each task"
    yield lab.close(name, np.zeros(2), np.median(found.zero_sums, 0), 0.03, scale=np.ones(2))


@claim(
    "softmax/split-heads",
    """Trained for as long as the authors train, most seeds of four free heads on two tasks split up
    into one opposite pair for each task, as in the notebook; in the others a head goes on working
    for both tasks. The median loss is at the floors.""",
    source="notebook, 'split-up', four heads on two tasks",
    tier="paper",
    tolerance_reason="""Most: the 95 % interval of the share lies above a half. A count: each seed
    splits or has a shared head. Finite attention and the noise of the rate leave 0.5 % of the loss
    with one task: 2 % of the floor. At least one seed of each kind was asked first; "most" was
    put in its place after 64 seeds, of which 56 split. It takes the length of training: after
    40 000 steps of 64 sequences at a rate of 3e-3, annealed, 11 of 24 other seeds were split, and
    the median loss was 0.6 % above the floors.""",
    figures=("softmax/split-heads",),
)
def split_heads(lab: Lab) -> Checks:
    """Seeds of four heads in which every head works for one task, a pair for each."""
    lab.note(**TWO_TASKS, **two_task_training(lab).settings(4))
    found = two_task_heads(lab, 4)
    lab.note(split=share_of(found.split), shared=share_of(found.superposed > 0))
    name = "share of seeds that split into pairs, lower end of its interval"
    yield lab.at_least(name, 0.5, wilson(int(found.split.sum()), len(found.split))[0])
    either = int(np.sum(found.split | (found.superposed > 0)))
    yield lab.equal("seeds that split or have a shared head", len(found.split), either)
    floor = float(theory.task_floors(authors_two_tasks()).mean())
    yield lab.relative("median loss, mean of both tasks", floor, found.median_loss, 0.02)


@claim(
    "softmax/one-task-a-head",
    "With more than 2I heads each active head learns exactly one task.",
    source="""code: icl_linear_multitask.ipynb, TL;DR: 'In the experiment we discover that … If H >
    2 * N. Each active head will learn exactly one task', of two tasks at d = 6, L = 48""",
    tier="paper",
    tolerance_reason="""A count of seeds: no head may give its second task more than a quarter of
    what the first gets.""",
    figures=_TASKS,
    corrected_by="softmax/more-than-two-heads-per-task",
)
def one_task_a_head(lab: Lab) -> Checks:
    """Seeds without a shared head, for five, six and eight free heads on two tasks: all."""
    lab.note(**TWO_TASKS, **two_task_training(lab).settings((5, 6, 8)))
    for heads in (5, 6, 8):
        shared = two_task_heads(lab, heads).superposed > 0
        lab.note(**{f"shared_{heads}": share_of(shared)})
        name = f"seeds in which every active head has one task, H = {heads}"
        yield lab.equal(name, len(shared), int(np.sum(~shared)))


@claim(
    "softmax/more-than-two-heads-per-task",
    """With more than 2I heads nothing keeps a head from working for several tasks: the more heads
    there are, the more seeds end with a shared one, and the median loss is at the floors.""",
    source="notebook, TL;DR, corrected; why the loss is indifferent: docs/theory/softmax.md",
    tier="paper",
    tolerance_reason="""An order of counts of seeds. Finite attention and the noise of the rate
    leave 0.5 % of the loss with one task: 2 % of the floor.""",
    figures=_TASKS,
)
def more_than_two_heads(lab: Lab) -> Checks:
    """Seeds with a shared head, and the loss, for five, six and eight free heads on two tasks."""
    lab.note(**TWO_TASKS, **two_task_training(lab).settings((5, 6, 8)))
    floor, counts = float(theory.task_floors(authors_two_tasks()).mean()), []
    for heads in (5, 6, 8):
        found = two_task_heads(lab, heads)
        shared = found.superposed > 0
        lab.note(**{f"shared_{heads}": share_of(shared)})
        counts.append(int(np.sum(shared)))
        name = f"median loss, mean of both tasks, H = {heads}"
        yield lab.relative(name, floor, found.median_loss, 0.02)
    name = "seeds with a shared head grow in number with H"
    yield lab.equal(name, True, 0 < counts[0] < counts[1] < counts[2])


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

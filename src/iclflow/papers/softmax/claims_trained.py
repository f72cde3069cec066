"""Claims of arXiv 2503.12734 on what training finds: the patterns of the heads, the loss, and the
algorithm."""

import numpy as np

from ... import theory
from ...analysis import Patterns, patterns, which_algorithm
from ...estimators import DebiasedGradientStep, GradientStep, LeastSquares
from ...tasks import Estimate
from .. import Check, Checks, Given, Inconclusive, Lab, claim, claim_on_run, once
from .checks_trained import (
    NOISE_REASON,
    best_loss,
    check_end,
    check_share,
    last_loss,
    name_heads,
    own_trained,
    trained_patterns,
)
from .needs import ANY, FREE, any_population, with_heads
from .runs import (
    HEADS,
    SIGNS,
    loss_beside,
    note_training,
    paper_task,
    structured_heads,
    trained_run,
)
from .runs_exact import pair_loss

_FIGURES = ("softmax/heads", "softmax/evolution")
_TRAINING = (
    "Weights keep the noise of the last steps, a few thousandths of their size once the learning "
    "rate has gone to zero; "
)


@claim_on_run(
    "softmax/diagonal-kq",
    """Trained key-query circuits are multiples of the identity: diagonal and homogeneous, with more
    than two heads as far as a head adds to the prediction.""",
    source="Observation 1, key-query pattern",
    on=own_trained(HEADS),
    tolerance_reason=_TRAINING + "a share of 0.99 of the norm on the diagonal leaves room for "
    "that and for nothing else. With more than two heads each counts by |μω|, and 0.95 is asked: "
    "weak heads are formed last.",
    needs=(FREE, with_heads(2), any_population),
    tolerance_on_any_run=NOISE_REASON
    + "A mean share of 0.95 of the norm on the diagonal, each head counted by |μω|, is asked.",
    figures=_FIGURES,
)
def diagonal_kq(given: Given, lab: Lab) -> Checks:
    """Share of the norm of key-query circuits on the diagonal, and how equal the diagonal is."""
    yield check_share(given, lab, "diagonal_share")
    heads = patterns(given.run.final).heads
    if given.own and len(heads) <= 2:
        least = min(head.homogeneity for head in heads)
        yield lab.at_least(f"homogeneity{name_heads(given)}", 0.95, least)


@claim_on_run(
    "softmax/equal-magnitude",
    "Two heads attend with equal strength |ω| and with both signs.",
    source="Observation 1, corrected: derived in docs/theory/softmax.md",
    on=own_trained(2),
    tolerance_reason=_TRAINING + "3 % of |ω| is allowed. For H = 2 equality is a property of the "
    "optimum, beyond it one of the dynamics.",
    needs=(ANY, with_heads(2, 2), any_population),
    tolerance_on_any_run="""The loss is flat around the pair: a pair with |ω| apart by 10 % loses
    what theory computes, and one that is x above the best may be apart by the square root of the
    ratio, times 10 %. x is taken as 1e-4 of the loss where it is less.""",
    figures=_FIGURES,
)
def equal_magnitude(given: Given, lab: Lab) -> Checks:
    """The ratio of the two heads' ω at the end: −1."""
    first, second = (head.omega for head in trained_patterns(given).heads)
    allowed = given.tolerance(0.03, lambda: _allowed_difference(given))
    yield lab.close("ω₂/ω₁", -1.0, second / first, allowed, wrong=-1 - 3 * allowed)
    if given.own:
        yield lab.close("signs of ω", 0.0, np.sign(first) + np.sign(second), 0.0, wrong=2.0)


def _allowed_difference(given: Given) -> float:
    """By which share the |ω| of two heads may differ at the loss that the run has reached."""
    best = theory.pair_optimum(given.task)
    omega = np.array([1.1 * best.w, -best.w])
    # With the values as they are, and with values that make up for it.
    values = (np.array([mu, -best.mu]) for mu in (best.mu, best.mu / 1.1))
    losses = [float(theory.softmax_exact_loss(given.task, omega, mu)) for mu in values]
    above = max(last_loss(given) - best.loss, 1e-4 * best.loss)
    # The loss grows as the square of the difference.
    allowed = 0.1 * float(np.sqrt(above / (min(losses) - best.loss)))
    # A looser bound would hold for most pairs of both signs.
    if allowed > 0.3:
        raise Inconclusive(f"the loss allows for |ω| that are {100 * allowed:.0f} % apart")
    return allowed


@claim(
    "softmax/equal-across-heads",
    "The key-query circuits of all heads are the same multiple of the identity.",
    source="Observation 1, as a summary states it",
    tolerance_reason="""As stated the ratio is 1; 3 % is what training noise explains. With equal
    attention and output-value entries that sum to zero the prediction would vanish.""",
    figures=_FIGURES,
    corrected_by="softmax/equal-magnitude",
)
def equal_across_heads(lab: Lab) -> Checks:
    """The ratio of the two heads' ω, as stated: +1."""
    note_training(lab, 2)
    first, second = (head.omega for head in patterns(trained_run(lab, 2).final).heads)
    yield lab.close("ω₂/ω₁", 1.0, second / first, 0.03, wrong=1.1)


@claim_on_run(
    "softmax/last-entry-ov",
    """Trained output-value circuits read the label of a token and nothing else, with more than two
    heads as far as a head adds to the prediction.""",
    source="Observation 1, output-value pattern",
    on=own_trained(HEADS),
    tolerance_reason=_TRAINING + "a share of 0.99 of the norm leaves room for that. With more than "
    "two heads each counts by |μω|, and 0.95 is asked: weak heads are formed last.",
    needs=(FREE, with_heads(2), any_population),
    tolerance_on_any_run=NOISE_REASON
    + "A mean share of 0.95 of the norm, each head counted by |μω|, is asked.",
    figures=_FIGURES,
)
def last_entry_ov(given: Given, lab: Lab) -> Checks:
    """The share of the norm of output-value circuits in the label's entry, at the end."""
    yield check_share(given, lab, "last_entry_share")


@claim_on_run(
    "softmax/zero-sum-ov",
    "Output-value entries of all heads sum to zero.",
    source="Observation 1, output-value pattern",
    on=own_trained(HEADS[1:]),
    tolerance_reason=_TRAINING + "1 % of Σ|μ| is allowed.",
    needs=(ANY, with_heads(2), any_population),
    tolerance_on_any_run="""A sum Σμ that is not zero adds the mean of all labels to the prediction,
    and (Σμ)²(1 + σ²)/L to the loss. With x of the loss above that of the best pair, Σμ is at most
    √(xL/(1 + σ²)); x is taken as 0.5 % of the loss where it is less, for what heads beyond two may
    gain by it.""",
    figures=_FIGURES,
)
def zero_sum_ov(given: Given, lab: Lab) -> Checks:
    """|Σμ| / Σ|μ| at the end."""
    found = trained_patterns(given)
    allowed = given.tolerance(0.01, lambda: _allowed_sum(given, found))
    name = f"|Σμ| / Σ|μ|{name_heads(given)}"
    yield lab.close(name, 0.0, found.zero_sum, allowed, wrong=10 * allowed)


def _allowed_sum(given: Given, found: Patterns) -> float:
    """The largest |Σμ| / Σ|μ| at the loss that the run has reached."""
    setting = theory.Setting.of(given.task)
    best = best_loss(setting)
    above = max(last_loss(given) - best, 0.005 * best)
    size = sum(abs(head.mu) for head in found.heads)
    allowed = float(np.sqrt(above / setting.spread)) / size
    # A looser bound would hold for many heads of both signs, whatever they learned.
    if allowed > 0.2:
        raise Inconclusive("the loss allows for any sum of the output-value entries")
    return allowed


@claim_on_run(
    "softmax/roles",
    """With more than two heads every head is positive, negative or a dummy, and positive heads
    attend as strongly as negative ones on average.""",
    source="Observation 2",
    on=own_trained((4, 8)),
    tolerance_reason="""A count: no head may work against the others. The mean |ω| of positive and
    negative heads, weighted by what they contribute, agrees to 10 %: among many heads only their
    sums are fixed, and the reduced training leaves some of them on their way.""",
    needs=(ANY, with_heads(3), any_population),
    tolerance_on_any_run="A count: no head works against the others by more than a tenth of what "
    "the strongest adds. " + NOISE_REASON,
    figures=_FIGURES,
)
def roles(given: Given, lab: Lab) -> Checks:
    """The roles of all heads at the end."""
    found = trained_patterns(given)
    total = len(found.roles)
    count = sum(role in ("positive", "negative", "dummy") for role in found.roles)
    yield lab.equal(f"heads with a role{name_heads(given)}", total, count, wrong=total - 1)
    if given.own:
        ratio = _mean_omega(found, "negative") / _mean_omega(found, "positive")
        name = f"|ω| of negative over positive heads{name_heads(given)}"
        yield lab.close(name, 1.0, ratio, 0.1, wrong=1.2)
    else:
        yield lab.equal("signs among them", 2, len(set(found.roles) - {"dummy"}), wrong=1)


def _mean_omega(found: Patterns, role: str) -> float:
    """Mean |ω| of the heads of one role, weighted by |μω|; NaN if there are none."""
    heads = [head for head in found.heads if head.role == role]
    weights = [abs(head.mu * head.omega) for head in heads]
    sizes = [abs(head.omega) for head in heads]
    return float(np.average(sizes, weights=weights)) if heads else np.nan


@claim_on_run(
    "softmax/trained-loss",
    "Two trained heads reach the smallest loss that two heads can have.",
    source="Section 3; the optimum is derived in docs/theory/softmax.md",
    on=own_trained(2),
    tolerance_reason="""1 %: what is left is the drift along the slow manifold (0.2 % at ω = 0.2)
    and the noise of the last steps. The measurement itself has a standard error below 0.1 %, being
    a difference to a pair whose loss is known exactly.""",
    needs=(ANY, with_heads(2, 2), any_population),
    tolerance_on_any_run="""1 %: what is left of the drift along the slow manifold and the noise of
    the last steps. Four standard errors more where the loss is measured on sequences.""",
    figures=("softmax/evolution",),
)
def trained_loss(given: Given, lab: Lab) -> Checks:
    """The loss at the end, beside that of the best pair."""
    if given.own:
        lab.note(standard_error=float(_own_loss(lab, 2).standard_error))
    yield _check_loss(given, lab, "loss")


@claim_on_run(
    "softmax/heads-alike",
    "Models with two, four and eight heads are equally good.",
    source="Observation 2; the authors' notebook",
    on=own_trained(HEADS[1:]),
    tolerance_reason="""More than two heads can gain at most 0.5 % at this size, by the optima of
    three and four heads; 1 % leaves room for training.""",
    needs=(ANY, with_heads(3), any_population),
    tolerance_on_any_run="""More than two heads gain 0.5 % at most by the optima that are known; 1 %
    leaves room for training. Four standard errors more where the loss is measured on sequences.""",
    figures=("softmax/heads",),
)
def heads_alike(given: Given, lab: Lab) -> Checks:
    """The loss at the end, beside that of the best pair."""
    yield _check_loss(given, lab, f"loss{name_heads(given)}")


def _check_loss(given: Given, lab: Lab, name: str) -> Check:
    if not given.own:
        return check_end(given, lab)
    loss = float(_own_loss(lab, given.config.model.heads).value)
    return lab.relative(name, theory.pair_optimum(paper_task()).loss, loss, 0.01)


@once
def _own_loss(lab: Lab, heads: int) -> Estimate:
    """The loss of a trained model, measured beside the best pair."""
    best = theory.pair_optimum(paper_task())
    reference = structured_heads(best.w * SIGNS, best.mu * SIGNS)
    count = lab.scaled(20_000, 60_000, 400_000)
    return loss_beside(trained_run(lab, heads).final, reference, pair_loss(best.w, best.mu), count)


@claim(
    "softmax/head-ablation",
    "Four heads are 21 % worse than eight.",
    source="the ablation of a summary: 0.063 against 0.052",
    tolerance_reason="3 % of the ratio: ten times what training noise does to it.",
    corrected_by="softmax/heads-alike",
)
def head_ablation(lab: Lab) -> Checks:
    """The ratio of the losses of four and of eight heads."""
    note_training(lab, (4, 8))
    ratio = float(_own_loss(lab, 4).value) / float(_own_loss(lab, 8).value)
    yield lab.close("loss of 4 heads / loss of 8", 0.063 / 0.052, ratio, 0.03)


@claim_on_run(
    "softmax/debiased-gradient-descent",
    "The trained pair is one step of debiased gradient descent.",
    source="Section 3, the learned algorithm",
    on=own_trained(2),
    tolerance_reason="""The step size fits η* to 3 % at the finite ω of a trained model, and the
    prediction is nearer to debiased gradient descent than to any other estimator.""",
    needs=(ANY, with_heads(2), any_population),
    tolerance_on_any_run="""The prediction is nearer to debiased gradient descent than to gradient
    descent and to least squares, and the best step agrees with η* to 5 %: at the finite ω of the
    best pair it does to 1 %, and 2 % of the loss are a few per cent of the step.""",
    figures=("softmax/estimators",),
)
def debiased(given: Given, lab: Lab) -> Checks:
    """Which estimator the predictions of the trained model are nearest to, on fresh sequences."""
    trained_patterns(given)
    name, step = "one debiased gradient step", float(theory.debiased_optimum(given.task).step)
    # The explorer checks runs while they are under way: three estimators are fast enough for that.
    few = (GradientStep(1.0), DebiasedGradientStep(1.0), LeastSquares())
    among, words = (None, "nearest estimator") if given.own else (few, "nearest of the steps")
    count = lab.scaled(2000, 4000, 20_000)
    found = lab.compute(which_algorithm, given.run.final, given.task, count=count, estimators=among)
    yield lab.equal(words, name, found.best.name, wrong="one gradient step")
    allowed = given.tolerance(0.03, lambda: 0.05)
    yield lab.relative("step size", step, found[name].step_size, allowed, wrong=1.1 * step)
    if given.own:
        lab.note(sequences=count, distance=found.best.distance)
        measured = found[name].distance / found["one gradient step"].distance
        yield lab.at_most("distance / distance of gradient descent", 0.75, measured)

"""Claims on trained softmax attention: which runs count as trained, and what their end shows."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from ... import theory
from ...analysis import Patterns, learning_phases, patterns
from ...errors import Refusal
from .. import Check, Given, Inconclusive, Lab
from .runs import paper_task
from .runs_heads import CANCELS, STAYS, Heads, pattern_heads, trained_given
from .runs_seeds import note_training, shown_heads

# A model whose loss is above the best by less than this share is trained.
_TRAINED = 0.02
NOISE_REASON = (
    "The model must be within 2 % of the loss of the best opposite pair: that far from it the "
    "weights may be off by the square root of what is left. "
)


def own_trained(heads: int | tuple[int, ...]) -> Callable[[Lab], Iterator[Given]]:
    """Makes a claim's own trained runs, one for each number of heads."""

    def make(lab: Lab) -> Iterator[Given]:
        counts = shown_heads(lab, *np.atleast_1d(heads).tolist())
        note_training(lab, counts)
        for count in counts:
            yield trained_given(lab, count)

    return make


def name_heads(given: Given) -> str:
    """The number of heads as the end of a check's name: a claim's own runs differ in it."""
    return f", H = {given.config.model.heads}" if given.own else ""


def is_zero_sum(found: Patterns) -> bool:
    """Both signs are there, and the output-value entries cancel to 5 %."""
    return {"positive", "negative"} <= set(found.roles) and found.zero_sum < CANCELS


def is_one_sign(found: Patterns) -> bool:
    """All heads, dummies apart, attend and read with one sign: together they are one head."""
    return len(set(found.roles) - {"dummy"}) == 1 and found.zero_sum > STAYS


def trained_patterns(given: Given, or_at_rest: bool = False) -> Patterns:
    """The patterns at the end of a run that is trained, or whose loss at least moves no more."""
    found = patterns(given.run.final)
    if given.own:
        return found
    above = last_loss(given) / best_loss(theory.Setting.of(given.task)) - 1
    if above <= _TRAINED:
        return found
    if is_one_sign(found):
        raise Inconclusive("its heads are caught at one sign, as `softmax/pair-or-trap` says")
    if or_at_rest and is_at_rest(given):
        return found
    raise Inconclusive(f"its loss is {100 * above:.2g} % above that of the best pair")


def check_end(given: Given, lab: Lab) -> Check:
    """The loss at the end of anybody's run beside that of the best pair."""
    trained_patterns(given, or_at_rest=True)
    best = best_loss(theory.Setting.of(given.task))
    allowed = 0.01 + 4 * _error(given) / best
    return lab.relative("loss at the end", best, last_loss(given), allowed)


@functools.lru_cache(maxsize=128)
def best_loss(task: theory.Setting) -> float:
    """The loss of the best opposite pair."""
    return theory.pair_optimum(task).loss


def last_loss(given: Given) -> float:
    """The last loss, if its standard error is known."""
    _error(given)
    return float(given.run.losses[-1])


def _error(given: Given) -> float:
    """The standard error of the last loss; 0 where it is exact."""
    if given.config.exact or given.config.exact_exists:
        return 0.0
    error = given.run.statistics.get("standard_errors", [None])[-1]
    if error is None:
        raise Inconclusive("the loss is measured on sequences, and its standard error is not known")
    return float(error)


def is_at_rest(given: Given) -> bool:
    """Whether the loss moves no more; False where that cannot be decided."""
    try:
        # Ten times stricter than the default, since final losses are compared to 1 %.
        return learning_phases(given.run, tolerance=1e-3).settled
    except Refusal:
        return False


def check_share(given: Given, lab: Lab, share: str) -> Check:
    """How much of the norm of circuits does not have the form of the claim, at the end."""
    if given.own:
        heads = given.config.model.heads
        found = pattern_heads(lab, heads)
        values = found.mean_of_active(getattr(found, share))
        name = f"rest of the {share} share, median over seeds{name_heads(given)}"
        return lab.close(name, 0.0, 1 - float(np.median(values)), rest(lab, heads), scale=1.0)
    # Weak heads are formed last: each counts by what it adds to the prediction.
    found = trained_patterns(given)
    weights = [abs(head.mu * head.omega) for head in found.heads]
    words = {"diagonal": "diagonal_share", "label": "last_entry_share"}[share]
    mean = float(np.average([getattr(head, words) for head in found.heads], weights=weights))
    name = f"rest of the {share} share, weighted by |μω|"
    return lab.close(name, 0.0, 1 - mean, 0.05, scale=1.0)


def rest(lab: Lab, heads: int) -> float:
    """The share of the norm of circuits that noise may take, by tier and number of heads."""
    if lab.tier == "paper":
        # A part E off the diagonal of Γ = ηI costs η²(1 + (1 + σ²)d/L)‖E‖²/d, which is 1 % of the
        # loss where 1 − share is half of it; the noise of two heads is independent: half again.
        best = theory.pair_optimum(paper_task())
        step = theory.debiased_optimum(paper_task()).step
        return 0.01 * best.loss / step
    # A short training: weak heads are formed last.
    return 0.01 if heads <= 2 else 0.05


def median(values: np.ndarray) -> float:
    return float(np.median(values))


def pattern_of(given: Given, lab: Lab) -> Heads:
    """The heads of a claim's own seeds that end in the pattern."""
    return pattern_heads(lab, given.config.model.heads)

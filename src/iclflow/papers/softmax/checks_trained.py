"""Whether a run of softmax attention is trained, and what its end says."""

import functools

import numpy as np

from ... import theory
from ...analysis import Patterns, learning_phases, patterns
from ...errors import Refusal
from .. import Check, Given, Inconclusive, Lab

# A model whose loss is above the best by less than this share is trained.
_TRAINED = 0.02
NOISE_REASON = (
    "The model must be within 2 % of the loss of the best opposite pair: that far from it the "
    "weights may be off by the square root of what is left. "
)


def is_zero_sum(found: Patterns) -> bool:
    """Both signs are there, and the output-value entries cancel to 5 %."""
    return {"positive", "negative"} <= set(found.roles) and found.zero_sum < 0.05


def is_one_sign(found: Patterns) -> bool:
    """All heads, dummies apart, attend and read with one sign: together they are one head."""
    return len(set(found.roles) - {"dummy"}) == 1 and found.zero_sum > 0.5


def trained_patterns(given: Given, or_at_rest: bool = False) -> Patterns:
    """The patterns at the end of a run that is trained, or whose loss at least moves no more."""
    found = patterns(given.run.final)
    above = last_loss(given) / best_loss(theory.Setting.of(given.task)) - 1
    if above <= _TRAINED:
        return found
    if is_one_sign(found):
        raise Inconclusive("its heads are caught at one sign, as `softmax/pair-or-trap` says")
    if or_at_rest and is_at_rest(given):
        return found
    raise Inconclusive(f"its loss is {100 * above:.2g} % above that of the best pair")


def check_end(given: Given, lab: Lab) -> Check:
    """The loss at the end beside that of the best pair."""
    trained_patterns(given, or_at_rest=True)
    best = best_loss(theory.Setting.of(given.task))
    allowed = 0.01 + 4 * _error(given) / best
    return lab.relative("loss at the end", best, last_loss(given), allowed)


@functools.lru_cache(maxsize=128)
def best_loss(task: theory.Setting) -> float:
    """The loss of the best opposite pair."""
    return theory.pair_optimum(task).loss


def last_loss(given: Given) -> float:
    """The last loss, if it is known how far it may be off."""
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
    """Whether the loss moves no more, as far as that can be said."""
    try:
        return learning_phases(given.run, tolerance=1e-3).settled
    except Refusal:
        return False


def check_share(found: Patterns, share: str, lab: Lab, words: str = "") -> Check:
    """The mean of a share over heads, each weighted by what it adds."""
    weights = [abs(head.mu * head.omega) for head in found.heads]
    mean = float(np.average([getattr(head, share) for head in found.heads], weights=weights))
    name = f"{share.replace('_', ' ')} weighted by |μω|{words}"
    return lab.at_least(name, 0.95, mean, wrong=1.01)

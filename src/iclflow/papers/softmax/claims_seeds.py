"""Claims of arXiv 2503.12734 on random initialisations: which of them end in the pattern."""

import numpy as np

from ... import theory
from ...analysis import patterns
from .. import Checks, Given, Inconclusive, Lab, claim, on_run
from .checks_trained import is_at_rest, is_one_sign, is_zero_sum
from .needs import any_population, softmax_attention, with_heads
from .runs import blind_ensemble, final_patterns, seed_settings, trained_ensemble

_FIGURES = ("softmax/seeds",)


@claim(
    "softmax/every-initialisation",
    "The patterns emerge from every random initialisation.",
    source="abstract ('consistently'), read as from every start",
    tolerance_reason="""A share of seeds, all of which must end with one positive and one negative
    head whose output-value entries cancel to 5 %.""",
    figures=_FIGURES,
    corrected_by="softmax/pair-or-trap",
    overread=True,
)
def every_initialisation(lab: Lab) -> Checks:
    """The share of seeds whose two heads end as a pair.

    In the paper's tier all of Q, K, V and O are trained at length; otherwise merged heads, which
    are at their end sooner.
    """
    factored = lab.tier == "paper"
    lab.note(**seed_settings(lab, 2, factored))
    runs = trained_ensemble(lab) if factored else blind_ensemble(lab, 2)
    # Two heads that cancel are one positive and one negative head: there is no room for dummies.
    share = float(np.mean([is_zero_sum(found) for found in final_patterns(runs)]))
    yield lab.close("share of seeds", 1.0, share, 0.0, wrong=1.03)


@on_run(
    softmax_attention("structured", "merged"),
    with_heads(2),
    any_population,
    tolerance_reason="""One of two ends; the sum of the output-value entries is below 5 % of their
    sizes in one of them and above half in the other, once the loss has come to rest.""",
)
def pair_or_trap_on_run(given: Given, lab: Lab) -> Checks:
    """Which of the two ends the run has."""
    if not is_at_rest(given):
        raise Inconclusive("the loss has not come to rest")
    found = patterns(given.run.final)
    count = int(is_zero_sum(found) or is_one_sign(found))
    yield lab.equal("ends that the run is in", 1, count)


@claim(
    "softmax/pair-or-trap",
    """Every random initialisation ends with heads of both signs whose output-value entries cancel,
    or with heads of one sign, which never turn: H merged heads whose growing parts have random
    signs are caught there with probability 2^(1−H).""",
    source="beyond the paper; derived in docs/theory/softmax.md",
    tolerance_reason="""The first check is a count. The share is binomial: four standard errors of
    that many seeds.""",
    figures=_FIGURES,
    on_run=pair_or_trap_on_run,
)
def pair_or_trap(lab: Lab) -> Checks:
    """Shares of seeds that end with both signs, for two and for three heads."""
    lab.note(**seed_settings(lab, (2, 3)))
    for heads in (2, 3):
        found = final_patterns(blind_ensemble(lab, heads))
        both = np.asarray([is_zero_sum(each) for each in found])
        one = np.asarray([is_one_sign(each) for each in found])
        lost, seeds = theory.one_sign_share(heads), len(found)
        error = 4 * np.sqrt(lost * (1 - lost) / seeds)
        name = f"seeds in one of the two ends, H = {heads}"
        yield lab.equal(name, seeds, int(np.sum(both | one)))
        name = f"share that ends with one sign, H = {heads}"
        yield lab.close(name, lost, float(one.mean()), error, wrong=lost + 2 * error)

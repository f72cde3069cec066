"""Claims of arXiv 2503.12734 on random initialisations: which of them end in the pattern."""

import numpy as np

from ... import theory
from ...analysis import Patterns, patterns
from .. import Checks, Given, Inconclusive, Lab, claim, on_run
from .checks_trained import is_at_rest, is_one_sign, is_zero_sum
from .needs import any_population, softmax_attention, with_heads
from .runs import CONTEXT, DIM, NOISE, blind_ensemble, blind_sizes, final_patterns, trained_ensemble

_FIGURES = ("softmax/seeds",)
# Seeds, steps and batch of the ensemble in which everything is trained.
FACTORED = (256, 50_000, 64)


@claim(
    "softmax/every-initialisation",
    "The patterns emerge from every random initialisation.",
    source="Observation 1, over seeds",
    tolerance_reason="""A share of seeds, all of which must end with one positive and one negative
    head whose output-value entries cancel to 5 %.""",
    figures=_FIGURES,
    corrected_by="softmax/pair-or-trap",
)
def every_initialisation(lab: Lab) -> Checks:
    """The share of seeds whose two heads end as a pair.

    In the paper's tier all of Q, K, V and O are trained at length; otherwise merged heads, which
    are at their end sooner.
    """
    if lab.tier == "paper":
        _note(lab, 2, *FACTORED, "Q, K, V, O of width d + 1")
        runs = trained_ensemble(lab, *FACTORED)
    else:
        _note(lab, 2, *blind_sizes(lab), "merged, attention blind to labels")
        runs = blind_ensemble(lab, 2, *blind_sizes(lab))
    share = float(np.mean([is_pair(found) for found in final_patterns(runs)]))
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
    seeds, steps, batch = blind_sizes(lab)
    _note(lab, (2, 3), seeds, steps, batch, "merged, attention blind to labels")
    for heads in (2, 3):
        found = final_patterns(blind_ensemble(lab, heads, seeds, steps, batch))
        both = np.asarray([is_zero_sum(each) for each in found])
        one = np.asarray([is_one_sign(each) for each in found])
        lost = theory.one_sign_share(heads)
        error = 4 * np.sqrt(lost * (1 - lost) / seeds)
        yield lab.equal(
            f"seeds in one of the two ends, H = {heads}", seeds, int(np.sum(both | one))
        )
        name = f"share that ends with one sign, H = {heads}"
        yield lab.close(name, lost, float(one.mean()), error, wrong=lost + 2 * error)


def is_pair(found: Patterns) -> bool:
    """One positive and one negative head that cancel to 5 %."""
    return set(found.roles) == {"positive", "negative"} and is_zero_sum(found)


def _note(lab: Lab, heads, seeds: int, steps: int, batch: int, weights: str) -> None:
    lab.note(
        dim=DIM, context=CONTEXT, noise=NOISE, heads=heads, seeds=seeds, steps=steps, batch=batch,
        weights=weights, optimiser="Adam, annealed from 1e-2",
    )  # fmt: skip

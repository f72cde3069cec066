"""Claims of arXiv 2503.12734 on random initialisations: which of them end in the pattern."""

import numpy as np

from .. import theory
from ..analysis import Patterns, patterns
from ..flows import Ensemble
from ._base import Check
from ._lab import Lab
from ._registry import claim
from ._softmax_runs import CONTEXT, DIM, NOISE, blind_ensemble, trained_ensemble

_FIGURES = ("softmax/seeds",)
# Seeds, steps and batch of the ensemble in which everything is trained.
FACTORED = (256, 50_000, 64)


@claim(
    "softmax/every-initialisation",
    "The patterns emerge from every random initialisation.",
    source="Observation 1, over seeds",
    tolerance_reason="A share of seeds, all of which must end with one positive and one negative "
    "head whose output-value entries cancel to 5 %.",
    figures=_FIGURES,
    misstated=True,
    corrected_by="softmax/pair-or-trap",
)
def every_initialisation(lab: Lab) -> list[Check]:
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
    return [Check("share of seeds", lab.predict(1.0, wrong=1.03), share, 0.0)]


@claim(
    "softmax/pair-or-trap",
    "Every random initialisation ends with heads of both signs whose output-value entries cancel, "
    "or with heads of one sign, which never turn: H merged heads whose growing parts have random "
    "signs are caught there with probability 2^(1−H).",
    source="beyond the paper; derived in docs/theory/softmax.md",
    tolerance_reason="The first check is a count. The share is binomial: four standard errors of "
    "that many seeds.",
    figures=_FIGURES,
)
def pair_or_trap(lab: Lab) -> list[Check]:
    """Shares of seeds that end with both signs, for two and for three heads."""
    seeds, steps, batch = blind_sizes(lab)
    _note(lab, (2, 3), seeds, steps, batch, "merged, attention blind to labels")
    checks = []
    for heads in (2, 3):
        found = final_patterns(blind_ensemble(lab, heads, seeds, steps, batch))
        both = np.asarray([is_zero_sum(each) for each in found])
        one = np.asarray([is_one_sign(each) for each in found])
        lost = theory.one_sign_share(heads)
        error = 4 * np.sqrt(lost * (1 - lost) / seeds)
        checks += [
            Check(f"seeds in one of the two ends, H = {heads}",
                  lab.predict(seeds, wrong=seeds + 1), int(np.sum(both | one)), comparison="equal"),
            Check(f"share that ends with one sign, H = {heads}",
                  lab.predict(lost, wrong=lost + 2 * error), float(one.mean()), error),
        ]  # fmt: skip
    return checks


def blind_sizes(lab: Lab) -> tuple[int, int, int]:
    """Seeds, steps and batch of the ensemble of merged heads."""
    sizes = {"smoke": (16, 1500, 8), "default": (64, 1500, 8), "paper": (1024, 20_000, 32)}
    return sizes[lab.tier]


def final_patterns(runs: Ensemble) -> list[Patterns]:
    """The patterns of every member at its end."""
    return [patterns(run.final) for run in runs]


def is_pair(found: Patterns) -> bool:
    """One positive and one negative head that cancel to 5 %."""
    return set(found.roles) == {"positive", "negative"} and is_zero_sum(found)


def is_zero_sum(found: Patterns) -> bool:
    """Both signs are there, and the output-value entries cancel to 5 %."""
    return {"positive", "negative"} <= set(found.roles) and found.zero_sum < 0.05


def is_one_sign(found: Patterns) -> bool:
    """All heads, dummies apart, attend and read with one sign: together they are one head."""
    return len(set(found.roles) - {"dummy"}) == 1 and found.zero_sum > 0.5


def _note(lab: Lab, heads, seeds: int, steps: int, batch: int, weights: str) -> None:
    lab.note(
        dim=DIM, context=CONTEXT, noise=NOISE, heads=heads, seeds=seeds, steps=steps, batch=batch,
        weights=weights, optimiser="Adam, annealed from 1e-2",
    )  # fmt: skip

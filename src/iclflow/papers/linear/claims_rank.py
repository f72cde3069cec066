"""Claims of arXiv 2501.16265 on keys and queries of rank R."""

import numpy as np

from ... import theory
from .. import Checks, Lab, claim
from .runs import EIGHT, RANKS, SCALES, eight_components, plateau_durations, rank_run

# The share of the run from which on a plateau is called distinct is a matter of taste: all sensible
# ones are tried.
DISTINCT = tuple(np.geomspace(1e-3, 1e-1, 201).tolist())


def growth_of_durations(lab: Lab, rank: int) -> np.ndarray:
    """By how much each plateau lengthens when the initial weights shrink tenfold."""
    large, small = (plateau_durations(rank_run(lab, rank, scale)) for scale in SCALES)
    return small / large


@claim(
    "linear/rank-scaling",
    """With rank R, plateaus at which a new head must start (R divides m) last in proportion to 1/s;
    those inside a head grow only with ln(1/s).""",
    source="Section 5; Figure 4; scaling law beyond the paper",
    tolerance_reason="""Tenfold smaller weights make a 1/s plateau ten times as long, up to
    corrections of the order of the weights (10 %), and a logarithmic one at most about twice; a
    factor of 5 separates the two.""",
    figures=("linear/rank",),
)
def rank_scaling(lab: Lab) -> Checks:
    """The first plateau of each rank, and the plateaus inside the first head."""
    lab.note(**EIGHT, heads=9, ranks=RANKS, scales=SCALES, seed=0)
    for rank in RANKS:
        growth = growth_of_durations(lab, rank)
        name = f"R = {rank}: growth of plateau 0"
        yield lab.relative(name, 10.0, growth[0], 0.1, wrong=5.0)
        if rank > 1:
            name = f"R = {rank}: growth of plateaus 1 to {rank - 1}"
            # Every plateau lengthens, so that a bound of 1 is wrong.
            yield lab.at_most(name, np.full(rank - 1, 5.0), growth[1:rank])


@claim(
    "linear/rank-slope",
    """Inside a head of rank R = D, plateau m lengthens by (1 − λ²_{m+1}/λ²_m)/(v_m λ²_{m+1}) for
    each e-fold of smaller initial weights.""",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="""The law is asymptotic: its corrections fall with the weights. 2.5 % covers
    the two shortest plateaus at weights of 1e-4 and 1e-5.""",
    figures=("linear/rank",),
    tier="default",
)
def rank_slope(lab: Lab) -> Checks:
    """Durations at two scales of one rank-8 model, and their difference over ln 10."""
    scales = (1e-4, 1e-5)
    lab.note(**EIGHT, heads=9, rank=8, scales=scales, seed=0)
    large, small = (plateau_durations(rank_run(lab, 8, scale)) for scale in scales)
    measured = (small - large)[1:] / np.log(10)
    predicted = [theory.log_plateau_slope(eight_components(), 8, m) for m in range(1, 8)]
    yield lab.relative("slopes, m = 1 … 7", predicted, measured, 0.025)


@claim(
    "linear/rank-count",
    "With rank R there are D/R distinct plateaus: 8, 4, 2 and 1 for R = 1, 2, 4 and 8.",
    source="summary: a table",
    tolerance_reason="""Counts at one seed, with every threshold from 0.1 % to 10 % of the run above
    which a plateau may be called distinct: if none makes the sentence true, it is wrong whatever
    one calls distinct.""",
    figures=("linear/rank",),
    corrected_by="linear/rank-scaling",
    undecided="counted at one seed and from other initial weights than those of the paper",
)
def rank_count(lab: Lab) -> Checks:
    """Plateaus before the final one, at every threshold of what counts as one."""
    lab.note(**EIGHT, heads=9, ranks=RANKS, scale=SCALES[0], seed=0)
    lab.note(thresholds=[DISTINCT[0], DISTINCT[-1]], threshold_count=len(DISTINCT))
    runs = [plateau_durations(rank_run(lab, rank, SCALES[0])) for rank in RANKS]
    shares = [durations / durations.sum() for durations in runs]
    counts = [[int(np.sum(share > least)) for share in shares] for least in DISTINCT]
    stated = [8, 4, 2, 1]
    # The thresholds that are fairest to the sentence: they show all plateaus of rank one.
    fair = [count for count in counts if count[0] == stated[0]] or counts
    nearest = min(fair, key=lambda count: float(np.sum(np.abs(np.subtract(count, stated)))))
    name = "plateaus for R = 1, 2, 4, 8 at the best threshold that shows all 8 of R = 1"
    yield lab.equal(name, stated, nearest, wrong=[0, 0, 0, 0])
    name = f"thresholds, of {len(DISTINCT)}, that give 8, 4, 2, 1"
    yield lab.at_least(name, 1, counts.count(stated))

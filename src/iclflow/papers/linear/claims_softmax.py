"""Claims of arXiv 2501.16265 on softmax attention: the same dynamics, qualitatively."""

from ... import analysis
from .. import Checks, Lab, claim
from .runs import FOUR
from .runs_data import SOFTMAX_MERGED, SOFTMAX_SEPARATE, SOFTMAX_SEQUENCES, softmax_run

_REASON = (
    "The statement is qualitative: the count of plateaus on the curve, found without theory, "
    "must be the one that linear attention has, or show more than one drop."
)


@claim(
    "linear/softmax-merged",
    "Softmax attention with merged key-query also learns in one abrupt drop.",
    source="Figure 5",
    tolerance_reason=_REASON,
    figures=("linear/softmax",),
)
def softmax_merged(lab: Lab) -> Checks:
    """Plateaus on the loss curve of the merged softmax twin."""
    run = softmax_run(lab, merged=True)
    lab.note(**FOUR, heads=8, sequences=SOFTMAX_SEQUENCES, rate_and_steps=SOFTMAX_MERGED)
    drops = analysis.drop_count(run)
    yield lab.equal("drops", 1, drops)


@claim(
    "linear/softmax-separate",
    "Softmax attention with separate keys and queries also learns in several drops.",
    source="Figure 5",
    tolerance_reason=_REASON,
    figures=("linear/softmax",),
)
def softmax_separate(lab: Lab) -> Checks:
    """Plateaus on the loss curve of the separate softmax twin."""
    run = softmax_run(lab, merged=False)
    lab.note(**FOUR, heads=8, sequences=SOFTMAX_SEQUENCES, rate_and_steps=SOFTMAX_SEPARATE)
    drops = analysis.drop_count(run)
    yield lab.at_least("drops", 2, drops, wrong=5)

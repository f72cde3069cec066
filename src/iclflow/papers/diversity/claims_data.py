"""Claims on training with finitely many sequences: double descent, and its size at finite d."""

import numpy as np

from .. import Checks, Lab, claim
from .runs_data import DIM, NOISE, RATIO, SHARES, data_errors


@claim(
    "diversity/double-descent",
    """The test error of linear attention on n sequences peaks at n = d², where the data just
    determines the d² entries of its matrix.""",
    source="arXiv 2405.11751, Figure 1",
    tolerance_reason="The place of the peak among eight values of n/d² is exact.",
    figures=("diversity/learning-curves",),
)
def double_descent(lab: Lab) -> Checks:
    """Where the error of least squares on drawn data is largest."""
    found = data_errors(lab)
    lab.note(dim=DIM, tasks=RATIO * DIM, context=DIM, noise=NOISE, share=SHARES)
    yield lab.equal("place of the largest error among n/d²", SHARES.index(1.0),
                    int(np.argmax(found.test)))  # fmt: skip


@claim(
    "diversity/finite-size",
    """At finite size features of different lengths raise the ICL error of training on data above
    the equivalent with features of one length; a correction for them explains most of it.""",
    source="beyond the papers; derived in docs/theory/diversity.md",
    tolerance_reason="""Terms of order 1/d² are left: less than half of what is corrected at d = 12,
    and none within the noise at d = 20. Four standard errors are allowed for.""",
    figures=("diversity/learning-curves",),
)
def finite_size(lab: Lab) -> Checks:
    """How far theory is below drawn data away from the peak, without and with the correction."""
    found = data_errors(lab)
    # Near the peak errors have no variance, and single data sets decide the mean.
    far = np.abs(np.log(found.share)) > 0.4
    lab.note(dim=DIM, tasks=RATIO * DIM, context=DIM, noise=NOISE, share=found.share[far].tolist())
    below = np.sum((found.test - found.plain)[far])
    error = float(np.linalg.norm(found.test_error[far]) / below)
    left = float(np.sum((found.test - found.corrected)[far]) / below)
    yield lab.at_least("excess over the equivalent, in standard errors", 4.0, 1 / error)
    yield lab.at_most("share of the excess that is left", 0.5 + 4 * error, left)

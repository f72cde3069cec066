"""Claims on where merged and separate attention end on data that they interpolate."""

import numpy as np

from ...theory import diversity
from .. import Checks, Lab, claim
from .runs_weights import (
    CONTEXT,
    DIM,
    KINDS,
    NOISE,
    SEQUENCES,
    TASKS,
    draw_sets,
    features,
    least_squares_losses,
    trained_ends,
)


def begin(lab: Lab) -> int:
    """Notes the settings; returns the number of data sets."""
    sets = lab.scaled(4, 16, 64)
    lab.note(dim=DIM, context=CONTEXT, tasks=TASKS, noise=NOISE, data_sets=sets)
    return sets


@claim(
    "diversity/merged-interpolant",
    """On fewer sequences than D² gradient flow of merged attention ends at the interpolant of least
    norm, up to what its initial weights hold that vanishes on the data.""",
    source="beyond the papers; derived in docs/theory/diversity.md",
    tolerance_reason="""Runs go on until the gradient is 1e-9: directions that the data hardly show
    are then within 1e-7 of their end.""",
    figures=("diversity/merged-separate",),
)
def merged_interpolant(lab: Lab) -> Checks:
    """The matrix at the end of each run against least norm and the memory of the start."""
    sets = begin(lab)
    found = trained_ends(lab, "merged", SEQUENCES, sets)
    expected = [
        diversity.merged_interpolant(
            features(each), np.asarray(each.y_query)[:, 0], values, found.starts
        )
        for each, values in zip(draw_sets(sets, SEQUENCES), found.values)
    ]
    yield lab.close("A at the end of each run", np.array(expected), found.matrices, 1e-6)


@claim(
    "diversity/merged-separate",
    """Below the interpolation threshold separate attention ends at interpolants of low rank, whose
    loss on unseen tasks is larger than that of merged attention on the same sequences.""",
    source="beyond arXiv 2405.11751; docs/theory/diversity.md, section 9",
    tolerance_reason="""Two standard errors of the mean logarithm over data sets. The rank is the
    median over them.""",
    figures=("diversity/merged-separate",),
)
def merged_separate(lab: Lab) -> Checks:
    """The ratio of losses on unseen tasks, and the ranks of separate heads."""
    sets = begin(lab)
    merged, separate = (trained_ends(lab, kind, SEQUENCES, sets) for kind in KINDS)
    ratio = np.log(separate.icl / merged.icl)
    low = ratio.mean() - 2 * ratio.std(ddof=1) / sets**0.5
    yield lab.at_least("ratio of losses, lower end of its interval", 1.0, float(np.exp(low)))
    sizes = np.linalg.svd(separate.matrices, compute_uv=False)
    ranks = np.sum(sizes > 1e-2 * sizes[:, :1], axis=1)
    rank = diversity.interpolating_rank(DIM, SEQUENCES)
    yield lab.equal("typical rank of separate attention", rank, int(np.median(ranks)))


@claim(
    "diversity/trained-descent",
    """Gradient flow of merged attention on n sequences has double descent itself: its loss on
    unseen tasks is that of least squares, and largest near n = D².""",
    source="arXiv 2405.11751, Figure 1, for trained weights",
    tolerance_reason="""Initial weights of 1e-2 leave 1 % in losses below D² sequences. The largest
    of three medians over data sets is a count.""",
    figures=("diversity/merged-separate",),
)
def trained_descent(lab: Lab) -> Checks:
    """Losses at the end of training below, at and far above the threshold."""
    sets, counts = begin(lab), (SEQUENCES, DIM**2, 3 * DIM**2)
    lab.note(sequences=counts)
    ends = [np.median(trained_ends(lab, "merged", n, sets).icl) for n in counts]
    least = [np.median(least_squares_losses(lab, n, sets)) for n in (counts[0], counts[2])]
    yield lab.relative("loss below and above the threshold", least, [ends[0], ends[2]], 0.01)
    yield lab.equal("place of the largest of three", 1, int(np.argmax(ends)))

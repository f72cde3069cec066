"""Claims on tests whose tasks have another covariance than those of training."""

import numpy as np

from ...theory import diversity
from .. import Checks, Lab, claim
from .runs_alignment import (
    LENGTH,
    NOISE,
    POWERS,
    SEQUENCES,
    SETS,
    SIZE,
    data_losses,
    law,
    population_losses,
)
from .runs_mismatch import TASKS, mismatched


@claim(
    "diversity/alignment",
    """The loss on tests of another task covariance follows from the alignment of the two; trained
    on the population, tasks that match those of the test are best.""",
    source="arXiv 2509.26551, abstract; exact at every size in docs/theory/diversity.md",
    tolerance_reason="Two closed forms in double precision.",
    figures=("diversity/alignment",),
)
def population_alignment(lab: Lab) -> Checks:
    """Test losses of population optima whose spectra are powers of that of the test."""
    lab.note(dim=SIZE, context=LENGTH, noise=NOISE, powers=POWERS)
    found = population_losses(lab)
    expected = [diversity.alignment(law(power), law(1.0)).loss for power in POWERS]
    yield lab.close("test loss at each power", np.array(expected), found, 1e-12)
    yield lab.equal("power of the smallest loss, of seven", POWERS.index(1.0), int(found.argmin()))


@claim(
    "diversity/alignment-on-data",
    """Trained on few sequences matched tasks are not best: with n = D²/4 and tasks of
    one norm, tasks along fewer directions than those of the test leave a smaller test loss.""",
    source="beyond arXiv 2509.26551; derived in docs/theory/diversity.md",
    tolerance_reason="""Four standard errors over data sets that share inputs and noise.""",
    figures=("diversity/alignment",),
)
def data_alignment(lab: Lab) -> Checks:
    """Test losses of least squares on drawn sequences, matched and steeper."""
    lab.note(dim=SIZE, context=LENGTH, noise=NOISE, sequences=SEQUENCES, data_sets=SETS)
    found = data_losses(lab)
    steep, matched = POWERS.index(1.5), POWERS.index(1.0)
    gain = found[:, matched] - found[:, steep]
    error = float(gain.std(ddof=1) / SETS**0.5)
    yield lab.at_least("gain by steeper tasks, in standard errors", 4.0, gain.mean() / error)
    of_theory = [float(diversity.data_risks(law(power), SEQUENCES, test=law(1.0)).test)
                 for power in POWERS]  # fmt: skip
    yield lab.at_most("loss at p = 1.5 over that at p = 1, of theory", 1.0,
                      of_theory[steep] / of_theory[matched])  # fmt: skip


@claim(
    "diversity/more-tasks",
    """More training tasks can improve or harm a test: on unseen tasks the loss falls with K, on a
    few of the training tasks themselves it rises.""",
    source="arXiv 2509.26551, abstract",
    tolerance_reason="Orders of exact losses, averaged over 400 sets of tasks.",
    figures=("diversity/alignment",),
)
def more_tasks(lab: Lab) -> Checks:
    """Exact losses of the population optimum on two tests at each K."""
    found = mismatched(lab)
    lab.note(dim=SIZE, context=LENGTH, noise=NOISE, tasks=TASKS)
    ratio = found[1:] / found[:-1]
    yield lab.at_least("loss on five training tasks over that at the K before", 1.0, ratio[:, 0])
    yield lab.at_most("loss on unseen tasks over that at the K before", 1.0, ratio[:, 1])

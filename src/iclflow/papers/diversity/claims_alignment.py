"""Claims on tests whose tasks have another covariance than those of training."""

import numpy as np

from ...theory import diversity
from .. import Checks, Lab, claim
from .runs_alignment import (
    LENGTH,
    MANY,
    NOISE,
    POWERS,
    RATIOS,
    SEQUENCES,
    SETS,
    SIZE,
    data_losses,
    data_theory,
    law,
    mismatched_data,
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
    """Trained on few sequences matched tasks are not best: with n = D²/4 and tasks of one norm,
    tasks along fewer directions than those of the test leave a smaller test loss, as large as
    theory says.""",
    source="beyond arXiv 2509.26551; derived in docs/theory/diversity.md",
    tolerance_reason="""Four standard errors over data sets, 2 %, which hide terms of order 1/D².
    Which of the seven is best would need more data: that p = 1.5 is better than p = 1 is an order
    of means over data sets that share their random numbers.""",
    figures=("diversity/alignment",),
)
def data_alignment(lab: Lab) -> Checks:
    """Test losses of least squares on drawn data at each power, and matched against steeper."""
    lab.note(dim=SIZE, context=LENGTH, noise=NOISE, sequences=SEQUENCES, data_sets=SETS)
    found, expected = data_losses(lab), data_theory(lab)
    error = found.std(0, ddof=1) / SETS**0.5
    yield lab.sampled("test loss at each power", expected, found.mean(0), error)
    steep, matched = POWERS.index(1.5), POWERS.index(1.0)
    gain = found[:, matched] - found[:, steep]
    words = "whether steeper tasks are better by four standard errors"
    yield lab.equal(words, True, bool(gain.mean() > 4 * gain.std(ddof=1) / SETS**0.5))


@claim(
    "diversity/mismatch",
    """For random training tasks of one covariance and tests of others the errors on drawn data are
    those of an exact expression for high dimensions, which ranks tests by their alignment with
    training.""",
    source="arXiv 2509.26551, abstract",
    tolerance_reason="""Four standard errors over sets of tasks, for theory at d = 40 with its
    correction, and for the limit where errors at d = 20 and 40 are continued along 1/d.""",
    figures=("diversity/alignment",),
)
def mismatch(lab: Lab) -> Checks:
    """Errors on five tests, of the same training, against both."""
    dim, sets = lab.scaled(16, MANY, 100), lab.scaled(4, 8, 16)
    kappa, tau, alpha, rho = RATIOS
    lab.note(dim=dim, tasks=kappa, data=tau, context=alpha, noise=rho, sets=sets)
    found = mismatched_data(lab, dim, sets)
    lab.note(tests=found.names)
    drawn, theory = found.drawn.mean(0), found.corrected.mean(0)
    error = np.std(found.drawn - found.corrected, axis=0, ddof=1) / sets**0.5
    yield lab.sampled("error on each test", theory, drawn, error)
    half = mismatched_data(lab, dim // 2, 4 * sets, theory=False)
    spread = [each.drawn.std(0, ddof=1) / len(each.drawn) ** 0.5 for each in (found, half)]
    continued = 2 * drawn - half.drawn.mean(0)
    error = np.hypot(2 * spread[0], spread[1])
    yield lab.sampled("the limit, where 1/d is continued to 0", found.limit, continued, error)
    order, other = np.argsort(found.limit).tolist(), np.argsort(-found.limit).tolist()
    yield lab.equal("order of the tests", order, np.argsort(drawn).tolist(), wrong=other)


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

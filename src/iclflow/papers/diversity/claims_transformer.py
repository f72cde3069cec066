"""Claims on small transformers that are trained on K tasks. They take minutes of an accelerator."""

import numpy as np

from ...theory import diversity
from .. import Checks, Lab, claim
from .runs_transformer import (
    Trained,
    half_gone,
    law,
    one_layer,
    ridge_share,
    setting,
    threshold,
    trained,
)

_FIGURES = ("diversity/transformer",)
# Which of the two Bayes predictors is nearer.
NAMES = np.array(["dMMSE", "ridge"])


def begin(lab: Lab) -> Trained:
    """Notes the setting; returns the runs."""
    lab.note(**setting(lab).about())
    return trained(lab)


@claim(
    "diversity/transformer-threshold",
    """A small causal transformer trained on K tasks is near the Bayes predictor of those tasks
    below a threshold in K, and near ridge regression beyond it: at more tasks than one layer of
    linear attention needs, K ~ D, and fewer than the Bayes predictor itself can recall.""",
    source="arXiv 2306.15063, abstract, with another width, depth, batch and length of training",
    tier="paper",
    tolerance_reason="""'Is' and 'near' have no number in the source: a tenth of what separates the
    two predictors. The threshold of all seeds is between bounds that are factors apart.""",
    figures=_FIGURES,
)
def transformer_threshold(lab: Lab) -> Checks:
    """Distances on unseen tasks at the fewest and the most tasks, excesses, and the threshold."""
    at, found = setting(lab), begin(lab)
    nearer = ridge_share(found)[..., -1] > 0.5
    for k, name, other in ((0, "dMMSE", "ridge"), (-1, "ridge", "dMMSE")):
        words = f"nearer predictor on unseen tasks, K = {at.tasks[k]}"
        seen = NAMES[nearer[k].astype(int)].tolist()
        yield lab.equal(words, [name] * at.seeds, seen, wrong=[other] * at.seeds)
    few = found.idg[0, :, -1] - found.dmmse_idg_loss[0]
    many = found.icl[-1, :, -1] - found.ridge_icl_loss
    few = few / (found.ridge_idg_loss[0] - found.dmmse_idg_loss[0])
    many = many / (found.dmmse_icl_loss[-1] - found.ridge_icl_loss)
    yield lab.at_most(f"excess over dMMSE on its tasks, as a share, K = {at.tasks[0]}", 0.1, few)
    yield lab.at_most(
        f"excess over ridge on unseen tasks, as a share, K = {at.tasks[-1]}", 0.1, many
    )
    passed = threshold(at, found)
    lab.note(log2_threshold=passed.each, interval=(passed.low, passed.high))
    bayes = diversity.code_information_sampled(law(at), 4000).value / np.log(2)
    yield lab.at_least("log₂ of the threshold, lower end", float(np.log2(at.dim)), passed.low)
    yield lab.at_most("log₂ of the threshold, upper end", bayes, passed.high)


@claim(
    "diversity/transformer-unseen",
    """Beyond the threshold the transformer solves tasks that it was not trained on, about as well
    as ridge regression; below it, it fails on them.""",
    source="arXiv 2306.15063, abstract, with another width, depth, batch and length of training",
    tier="paper",
    tolerance_reason="""To solve is to explain nine tenths of what ridge regression explains of the
    labels; to fail is to explain less than half of it. The source has no numbers.""",
    figures=_FIGURES,
)
def transformer_unseen(lab: Lab) -> Checks:
    """What is explained of the labels of unseen tasks, over what ridge regression explains."""
    at, found = setting(lab), begin(lab)
    variance = at.dim + at.noise
    explained = (variance - found.icl[..., -1]) / (variance - found.ridge_icl_loss)
    lab.note(explained=explained.mean(1))
    yield lab.at_least(f"share explained, K = {at.tasks[-1]}", 0.9, explained[-1])
    yield lab.at_most(f"share explained, K = {at.tasks[0]}", 0.5, explained[0])


@claim(
    "diversity/transformer-gap",
    """What unseen tasks cost a trained transformer more than those of its training falls with K, as
    for the best layer of linear attention, and half of it is gone at more tasks than there.""",
    source="arXiv 2405.11751, Figures 5 and 6, in the number of tasks; another transformer",
    tier="paper",
    tolerance_reason="""Orders of means over seeds. At the most tasks a twentieth of the gap may be
    left: the source says that it vanishes, without a number.""",
    figures=_FIGURES,
)
def transformer_gap(lab: Lab) -> Checks:
    """ICL − IDG at the end of training, and of the exact layer on the same tasks."""
    at, found = setting(lab), begin(lab)
    layer = one_layer(at, found)
    gaps = found.icl[..., -1] - found.idg[..., -1], layer.icl - layer.idg
    for name, gap in zip(("transformer", "one layer"), gaps):
        mean = gap.mean(1)
        lab.note(**{f"gap, {name}": mean})
        ratio = mean[1:] / mean[:-1]
        yield lab.at_most(f"{name}: gap over that at the K before", 1.0, ratio)
        yield lab.at_most(f"{name}: gap left at the most tasks", 0.05, mean[-1] / mean[0])
    halves = [half_gone(at, gap) for gap in gaps]
    lab.note(log2_half=[float(half.mean()) for half in halves])
    yield lab.at_least("log₂ K of half of the gap, less that of one layer", 0.0,
                       halves[0] - halves[1])  # fmt: skip

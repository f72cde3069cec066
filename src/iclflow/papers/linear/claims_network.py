"""Claims of arXiv 2501.16265 on the linear networks that attention is equivalent to."""

from ...models import ConvolutionalLinear
from .. import Check, Checks, Lab, claim, study
from .runs import FOUR, separate_model
from .runs_data import compare_descents, data_settings, network_runs


@claim(
    "linear/merged-network",
    """Merged linear attention and the two-layer linear network on cubic features have the same loss
    trajectory, as long as the other blocks of the attention matrices are zero.""",
    source="Section 3; Figure 1",
    tier="smoke",
    tolerance_reason="""The two are the same function of the same weights in the same order of
    steps; only rounding separates them, about 1e-16 a step over 1500 steps.""",
    figures=("linear/merged",),
)
def merged_network(lab: Lab) -> Checks:
    """Full attention, all blocks trainable, against the network, on one data set."""
    lab.note(**FOUR, **data_settings(study("linear/merged-data")))
    # The wrong network has one weight off by three per cent.
    simulated, predicted = network_runs(lab, mirrored=True, first_weight=float(lab.predict(1.0)))
    yield Check("loss at 101 steps", predicted.losses, simulated.losses, 1e-12)


@claim(
    "linear/merged-network-any-data",
    """Trained on any data set from the same initialisation, merged linear attention and its
    two-layer linear network have the same loss trajectory.""",
    source="code: README and plot_loss (the curves overlap), read as equality on any data",
    tier="smoke",
    tolerance_reason="The same as for data closed under y → −y, where the statement is exact.",
    corrected_by="linear/merged-network",
    overread=True,
)
def merged_network_any_data(lab: Lab) -> Checks:
    """On a generic finite set the blocks u and h move, and the curves part."""
    lab.note(**FOUR, **data_settings(study("linear/merged-data")))
    simulated, predicted = network_runs(lab, mirrored=False)
    yield Check("loss at 101 steps", predicted.losses, simulated.losses, 1e-12)


@claim(
    "linear/separate-network",
    """Separate linear attention and the sum of three-layer convolutional linear networks have the
    same loss trajectory, as long as the other blocks of the attention matrices are zero.""",
    source="Section 4; Figure 3",
    tier="smoke",
    tolerance_reason="""The same function of the same weights, computed by a strided convolution;
    only rounding separates them.""",
    figures=("linear/staircase",),
)
def separate_network(lab: Lab) -> Checks:
    """Full attention of rank 2, all blocks trainable, against convolutions, on one data set."""
    config = study("linear/separate-data")
    shape = {name: getattr(config.model, name) for name in ("scale", "heads", "rank")}
    model = separate_model(**shape)
    network = ConvolutionalLinear.from_attention(model)
    lab.note(**FOUR, **data_settings(config))
    # The wrong networks have one of them three per cent too strong.
    strongest = network.scalar.at[0].multiply(float(lab.predict(1.0)))
    network = ConvolutionalLinear(network.kernel, network.row, strongest)
    simulated, predicted = compare_descents(config, True, model.embed(), network)
    yield Check("loss at 101 steps", predicted.losses, simulated.losses, 1e-12)

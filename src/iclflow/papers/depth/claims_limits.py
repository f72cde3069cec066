"""Claims on arXiv 2510.01098, Results 1 to 3: white inputs at large size."""

import numpy as np

from ...theory import depth
from .. import Checks, Lab, claim, once
from .runs_levels import Landscape, white_task

# Large enough for the limit of large d and N = αd, which is approached as 1/d.
DIM, RATIOS = 400, (0.5, 1.0, 2.0)


@once
def best_risks(lab: Lab, layers: int, dim: int, ratios: tuple[float, ...]) -> np.ndarray:
    """The least exact risk of L layers on contexts of N = αd pairs, by descent."""
    starts = np.linspace(0.2, 0.6, layers)
    tasks = [white_task(dim=dim, context=int(ratio * dim)) for ratio in ratios]
    return np.array([Landscape(task, layers).lowest(starts)[1] for task in tasks])


@claim(
    "depth/one-layer-squared",
    "With white inputs the loss of one layer saturates at (1 + α)⁻² for contexts of N = αd pairs.",
    source="arXiv 2510.01098, text after Result 1",
    tolerance_reason="The limit is approached as 1/d, at d = 400.",
    corrected_by="depth/one-layer",
)
def one_layer_squared(lab: Lab) -> Checks:
    """The best single layer against the printed limit."""
    lab.note(dim=DIM, ratios=RATIOS)
    found = best_risks(lab, 1, DIM, RATIOS)
    yield lab.relative("least risk", (1 + np.array(RATIOS)) ** -2, found, 5e-3)


@claim(
    "depth/one-layer",
    """With white inputs the loss of one layer saturates at 1/(1 + α) for contexts of N = αd
    pairs.""",
    source="arXiv 2510.01098, Result 1",
    tolerance_reason="The limit is approached as 1/d, at d = 400.",
)
def one_layer(lab: Lab) -> Checks:
    """The best single layer against the limit of Result 1, and at finite size."""
    lab.note(dim=DIM, ratios=RATIOS)
    found = best_risks(lab, 1, DIM, RATIOS)
    yield lab.relative("least risk", 1 / (1 + np.array(RATIOS)), found, 5e-3)
    exact = [
        float(depth.rational_optimum(white_task(dim=DIM, context=int(ratio * DIM)), 1))
        for ratio in RATIOS
    ]
    yield lab.relative("least risk, at this size", np.array(exact), found, 1e-9)


@claim(
    "depth/long-contexts-need-no-depth",
    "With white inputs and contexts much longer than d, a second layer brings nothing.",
    source="arXiv 2510.01098, Results 2 and 3, which are about infinite contexts",
    tolerance_reason="Both risks are exact.",
    corrected_by="depth/each-layer-divides",
    overread=True,
)
def long_contexts_need_no_depth(lab: Lab) -> Checks:
    """What a second layer leaves of the loss of one at N = 50d."""
    lab.note(dim=40, ratio=50)
    one, two = (best_risks(lab, layers, 40, (50.0,)) for layers in (1, 2))
    yield lab.relative("loss of two layers over that of one", 1.0, float(two[0] / one[0]), 0.1)


@claim(
    "depth/each-layer-divides",
    """With white inputs every layer divides the loss by about α, for contexts of N = αd pairs: the
    least risk is 1/(1 + α + … + α^L).""",
    source="derived in docs/theory/depth.md, section 4",
    tolerance_reason="The limit is approached as 1/d, with L² as a factor: 1.5 % at d = 400.",
)
def each_layer_divides(lab: Lab) -> Checks:
    """The best two and three layers at N = 2d against the limit, and against exact fractions."""
    ratio = 2.0
    lab.note(dim=DIM, ratio=ratio)
    for layers in (2, 3):
        found = best_risks(lab, layers, DIM, (ratio,))
        limit = 1 / np.sum(ratio ** np.arange(layers + 1))
        yield lab.relative(f"least risk, L = {layers}", np.array([limit]), found, 1.5e-2)
        task = white_task(dim=DIM, context=int(ratio * DIM))
        exact = float(depth.rational_optimum(task, layers))
        yield lab.relative(f"at this size, L = {layers}", np.array([exact]), found, 1e-7)


@claim(
    "depth/deep-limit",
    """With white inputs many layers leave [1 − α]₊ of the loss: what contexts of N = αd pairs do
    not show, and nothing where they show every direction.""",
    source="arXiv 2510.01098, text after Result 1: L → ∞",
    tolerance_reason="""Loops of 30 layers at d = 100 are 0.12 % above what no number of them goes
    below at α = ½, and at 7·10⁻⁴ at α = 2, as ten untied layers are.""",
)
def deep_limit(lab: Lab) -> Checks:
    """The best loop of 30 layers at contexts of half and of twice the dimension, and ten layers."""
    lab.note(dim=100, contexts=[50, 200], layers=[30, 10])
    short, long = (white_task(dim=100, context=context) for context in (50, 200))
    _, found = Landscape(short, 30, tied=True).lowest(np.array([0.2]))
    yield lab.relative("least risk of a loop, α = ½", 0.5, found, 5e-3)
    yield lab.at_least("least risk of a loop, above the floor", 0.5, found)
    _, found = Landscape(long, 30, tied=True).lowest(np.array([0.2]))
    yield lab.close("least risk of a loop, α = 2", 0.0, found, 1e-3, scale=1.0)
    _, found = Landscape(long, 10).lowest(np.linspace(0.3, 1.5, 10))
    yield lab.close("least risk of ten layers, α = 2", 0.0, found, 1e-3, scale=1.0)

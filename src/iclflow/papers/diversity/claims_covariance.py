"""Claims on inputs whose covariance is another one in every sequence (arXiv 2306.09927)."""

import functools
import itertools

import jax.random as jr
import numpy as np

from ...analysis import task_operator
from ...flows import gradient_flow_ensemble
from ...models import Attention
from ...risks import risk
from ...tasks import LinearRegression, Mixture
from ...theory import diversity
from .. import Checks, Lab, claim, once
from .runs_covariance import LENGTH, SHIFTS, STARTS, TESTED, WIDTH, shifted

SPECTRUM, CONTEXT, NOISE = (2.0, 1.0, 0.4), 12, 0.1
LENGTHS = (20, 10**6)


def losses_with_diagonal(dim: int, length: int) -> float:
    """The smallest loss of A = aI where every entry of a diagonal Λ is exponential with mean 1.

    By Gauss and Laguerre's rule: the loss is a cubic polynomial in the entries.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(3)
    strengths, total = np.array([0.0, 1.0, 2.0]), np.zeros(3)
    for places in itertools.product(range(3), repeat=dim):
        law = LinearRegression(nodes[list(places)], context=length)
        loss = task_operator(strengths[:, None, None] * np.eye(dim), law).risk(np.eye(dim))
        total += np.prod(weights[list(places)]) * loss
    curve, slope, level = np.polyfit(strengths, total, 2)
    return float(level - slope**2 / (4 * curve))


@claim(
    "diversity/random-covariance",
    """With a random diagonal covariance in every sequence the best matrix of one layer of linear
    attention keeps a loss at infinitely long contexts: a third of the label power where variances
    are exponential.""",
    source="beyond arXiv 2306.09927, Section 4.3; derived in docs/theory/diversity.md",
    tolerance_reason="Quadrature is exact; contexts of a million pairs leave 1e-5.",
)
def random_covariance(lab: Lab) -> Checks:
    """The least loss at two lengths by quadrature over covariances."""
    lab.note(dims=(1, 3), contexts=LENGTHS, variances="exponential")
    for dim in (1, 3):
        found = [losses_with_diagonal(dim, length) for length in LENGTHS]
        moments = (1.0, 2.0, 6.0)
        short, long = (diversity.diagonal_covariance_optimum(moments, dim, n) for n in LENGTHS)
        yield lab.close(f"loss at N = 20, D = {dim}", short.loss, found[0], 1e-9)
        yield lab.close(f"floor, D = {dim}", long.floor, found[1], 1e-4)
        yield lab.close(f"floor for each dimension, D = {dim}", 1 / 3, found[1] / dim, 1e-4)


@functools.cache
def icosahedral() -> np.ndarray:
    """The sixty rotations of an icosahedron: over them all products of four entries of a rotation
    have their mean over all rotations."""
    golden = (1 + 5**0.5) / 2
    turn = np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
    # A fifth of a turn about the axis (0, 1, golden).
    axis = np.array([0.0, 1.0, golden]) / np.hypot(1, golden)
    cross = np.cross(np.eye(3), axis)
    angle = 2 * np.pi / 5
    fifth = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    found = [np.eye(3)]
    for each in found:
        for step in (turn, fifth):
            new = step @ each
            if all(np.max(np.abs(new - old)) > 1e-6 for old in found):
                found.append(new)
    return np.array(found)


@once
def turned_ends(lab: Lab) -> np.ndarray:
    """Final losses of separate attention with one, two and three heads on a spectrum that is turned
    at random in every sequence."""
    covariances: list[np.ndarray] = []
    for turn in icosahedral():
        new = turn @ np.diag(SPECTRUM) @ turn.T
        if all(np.max(np.abs(new - old)) > 1e-6 for old in covariances):
            covariances.append(new)
    laws = [LinearRegression(covariance=(c + c.T) / 2, context=CONTEXT, noise=NOISE)
            for c in covariances]  # fmt: skip
    task, ends = Mixture(laws, np.full(len(laws), 1 / len(laws))), []
    for heads in (1, 2, 3):
        model = Attention.separate(jr.key(8), dim=3, heads=heads, scale=0.1)
        runs = gradient_flow_ensemble([model], risk(task, model), end=2000.0)
        lab.hash_runs(runs)
        ends.append(float(runs.final_losses[0]))
    return np.array(ends)


@claim(
    "diversity/turned-covariance",
    """Where every sequence turns one spectrum at random, rank-one heads learn in D steps of falling
    height, though no direction differs from another.""",
    source="beyond arXiv 2306.09927; derived in docs/theory/diversity.md",
    tolerance_reason="""Flows run until the loss is flat; sixty rotations have the moments of all,
    which are of fourth order.""",
)
def turned_covariance(lab: Lab) -> Checks:
    """Losses at the end of exact flows with one to three heads, in three dimensions."""
    lab.note(spectrum=SPECTRUM, context=CONTEXT, noise=NOISE)
    yield lab.equal("rotations of the average", 60, len(icosahedral()))
    levels = diversity.rotated_staircase(SPECTRUM, CONTEXT, NOISE).levels
    found = turned_ends(lab)
    yield lab.close("loss with one, two and three heads", levels[1:], found, 1e-6)
    heights = -np.diff(np.append(levels[0], found))
    yield lab.at_most("ratio of each step to that before", 1.0, heights[1:] / heights[:-1])


@claim(
    "diversity/shifted-covariance",
    """Trained on random diagonal covariances gradient flow reaches the global minimum from a head
    v = s, U = sΘΘᵀ, and the trained layer A = aI is brittle: where all variances are c times as
    large it errs by (1 − ca)² of the label power at long contexts, more than by predicting zero
    from c = 2/a on.""",
    source="arXiv 2306.09927, abstract; the law of the error follows from (1) of "
    "docs/theory/diversity.md",
    tolerance_reason="""Exact flows until the loss is flat, asked for 1e-10 a step. Tests are
    sampled: four standard errors of some 2 % each.""",
)
def shifted_covariance(lab: Lab) -> Checks:
    """The end of exact flows against the minimum; sampled losses of the trained layer on others."""
    found = shifted(lab)
    lab.note(dim=WIDTH, context=LENGTH, start=STARTS, shifts=SHIFTS, tested_context=TESTED)
    best = diversity.diagonal_covariance_optimum((1.0, 2.0, 6.0), WIDTH, LENGTH)
    yield lab.close("loss at the end of each flow", [best.loss] * len(STARTS), found.ends, 1e-6)
    matrices = np.array([np.diag(best.matrix)] * len(STARTS))
    size = float(best.matrix[0])
    yield lab.close("A at the end", matrices, found.matrices, 1e-3, scale=size)
    shift = np.array(SHIFTS) * size
    expected = (1 - shift) ** 2 + shift**2 * (1 + WIDTH) / TESTED
    yield lab.sampled("share of the label power lost, at each shift", expected, found.means,
                      found.errors)  # fmt: skip
    worse = [bool(c > 2 / size) for c in SHIFTS]
    yield lab.equal("whether it is worse than predicting zero", worse, (found.means > 1).tolist())

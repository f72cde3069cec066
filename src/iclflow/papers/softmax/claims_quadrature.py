"""The claim on which those about exact losses rest: the exact risk is the mean over sequences."""

import itertools
import math
from typing import NamedTuple

import jax.random as jr
import numpy as np

from ...models import Attention
from ...risks import IntegratedRisk, exact_softmax_risk
from ...tasks import isotropic
from .. import Checks, Lab, claim
from .runs import structured_heads

_DIMS, _LENGTHS, _NOISES = (1, 2, 5, 20), (1, 2, 10, 40, 200), (0.0, 0.1, 3.0)
_MOST_HEADS, _LARGEST_OMEGA = 4, 2.0
# The corners of the grid and some of its inside: what a few seconds suffice for.
_FEW = ((1, 1, 2), (1, 40, 1), (2, 10, 3), (5, 40, 4), (20, 2, 4), (20, 200, 2))
# Sequences drawn at a time: few, because the smallest cells need no more, and always as many,
# because each number of them compiles anew.
_BATCH = 4000


class _Cell(NamedTuple):
    """One d, L and number of heads; each field has one entry per noise."""

    exact: list[float]
    quadrature_error: list[float]
    sampled: list[float]
    standard_error: list[float]


@claim(
    "softmax/exact-risk",
    """The risk of structured heads by quadrature is the mean over sequences, for d from 1 to 20, L
    from 1 to 200, one to four heads with |ω| up to 2 and σ² from 0 to 3, and is right to 1e-8.""",
    source="derived in docs/theory/softmax.md",
    tolerance_reason="""Four standard errors of a Monte Carlo estimate over inputs, each at most 1 %
    of the risk (0.1 % in the paper tier, on the whole grid). Errors of the quadrature are the
    change on a grid of two digits more.""",
)
def exact_risk(lab: Lab) -> Checks:
    """Exact and sampled risks at random weights over a grid of settings."""
    cells, target = _FEW, 0.01
    if lab.tier == "paper":
        cells, target = tuple(itertools.product(_DIMS, _LENGTHS, range(1, _MOST_HEADS + 1))), 0.001
    found = lab.compute(lambda: [_measure(*cell, target) for cell in cells])
    lab.note(
        cells=cells, noises=_NOISES, largest_omega=_LARGEST_OMEGA, relative_standard_error=target
    )
    exact, quadrature_errors, sampled, errors = (np.array(each) for each in zip(*found))
    # A sequence of one token has no spread left where the noise does not enter.
    errors = np.maximum(errors, 1e-12 * sampled)
    yield lab.sampled("risk", exact, sampled, errors)
    yield lab.at_most("largest standard error / risk", target, np.max(errors / sampled))
    yield lab.at_most("largest quadrature error", 1e-8, quadrature_errors.max())


def _measure(dim: int, length: int, heads: int, target: float) -> _Cell:
    # Weights depend on the cell alone: adding cells leaves the others as they are.
    rng = np.random.default_rng((dim, length, heads))
    # Heads without a label weight make one shape, and so one program, of all.
    omega, mu = np.zeros(_MOST_HEADS), np.zeros(_MOST_HEADS)
    omega[:heads] = rng.uniform(-_LARGEST_OMEGA, _LARGEST_OMEGA, heads)
    mu[:heads] = rng.normal(size=heads)
    model = structured_heads(omega, mu, dim)
    measured = []
    for i, noise in enumerate(_NOISES):
        value, error = exact_softmax_risk(isotropic(dim, length, noise)).with_error(model)
        measured.append((float(value), float(error), *_sample(model, length, noise, target, i)))
    return _Cell(*map(list, zip(*measured)))


def _sample(
    model: Attention, length: int, noise: float, target: float, seed: int
) -> tuple[float, float]:
    """Mean and standard error, from as many sequences as the relative error wants."""
    count, key = _BATCH, jr.key(seed)
    risk = IntegratedRisk(isotropic(model.dim, length, noise), _BATCH)
    while True:
        mean, error = map(float, risk.estimate(model, key, count))
        if error <= target * mean:
            return mean, error
        # A tenth more than the estimate wants, on other sequences.
        count = math.ceil(1.1 * (error / (target * mean)) ** 2 * count / _BATCH) * _BATCH
        key = jr.fold_in(key, 1)

"""Claims of arXiv 2501.16265 on the equations of separate attention: flow, ranks, fixed points."""

import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import theory
from ...models import Attention, Separate
from ...risks import AbstractRisk, risk
from .. import Check, Checks, Lab, claim
from .runs import FOUR, four_components
from .runs_equations import (
    RANKED_SHAPES,
    estimate_second_moment,
    random_fixed_point,
    ranked_restarts,
)
from .runs_limits import converged_run

# Sums of a few dozen products of numbers of order one in float64.
_ROUNDING = 1e-12


def _random_heads(seed: int, heads: int, rank: int) -> Separate:
    keys = jr.split(jr.key(seed), 3)
    v = jr.normal(keys[0], (heads,))
    K, Q = (jr.normal(key, (heads, 4, rank)) for key in keys[1:])
    return Separate.of(v, K, Q)


def _gradient(exact: AbstractRisk, model: Attention) -> Separate:
    """The gradient of a risk, as circuits of the same shape."""
    slope: Any = exact.gradient(model)
    return slope.circuits


def _gradient_size(exact: AbstractRisk, model: Attention) -> float:
    gradient = _gradient(exact, model)
    return max(float(jnp.abs(each).max()) for each in (gradient.v, gradient.K, gradient.Q))


@claim(
    "linear/flow-equations",
    """Separate attention obeys τ dv/dt = kᵀEq, τ dk/dt = vEq, τ dq/dt = vEᵀk with
    E = Λ² − E[Λ̂²] A Λ, and E[Λ̂²] = Λ² + (Λ + tr Λ)Λ/N.""",
    source="Eqs. 14, 15",
    tier="smoke",
    tolerance_reason="""The equations are algebra: automatic differentiation of the exact risk
    agrees to rounding. The moment is held to four standard errors of 10⁵ contexts.""",
)
def flow_equations(lab: Lab) -> Checks:
    """Automatic gradients of the exact risk at random weights, and sampled contexts."""
    task, heads = four_components(), _random_heads(0, heads=5, rank=1)
    lab.note(**FOUR, heads=5, contexts=(5, 31), sampled=100_000)
    model = Attention(heads)
    slope = np.asarray(lab.predict(theory.loss_slope(task, model.coefficients())))
    v, k, q = (np.asarray(each) for each in (heads.v, heads.K[..., 0], heads.Q[..., 0]))
    gradient = _gradient(risk(task, model), model)
    pairs = {
        "dv/dt": (np.einsum("hi,ij,hj->h", k, slope, q), gradient.v),
        "dk/dt": (v[:, None] * (q @ slope.T), gradient.K[..., 0]),
        "dq/dt": (v[:, None] * (k @ slope), gradient.Q[..., 0]),
    }
    for name, (predicted, found) in pairs.items():
        measured = -np.asarray(found) / 2
        yield Check(name, predicted, measured, _ROUNDING * np.abs(measured).max())
    eigenvalues = np.diag(np.asarray(task.covariance))
    for context in (5, 31):
        moment = np.diag(eigenvalues**2 + (eigenvalues + eigenvalues.sum()) * eigenvalues / context)
        mean, error = lab.compute(estimate_second_moment, eigenvalues, context)
        yield lab.sampled(f"E[Λ̂²] at N = {context}", moment, mean, error)


@claim(
    "linear/tied-values",
    """H heads of rank R are RH heads of rank one whose values are tied in groups of R: the output
    is the same, and so is the gradient once those of tied values are added.""",
    source="Section 2.4",
    tier="smoke",
    tolerance_reason="The same sums in another order: rounding.",
)
def tied_values(lab: Lab) -> Checks:
    """Predictions on sequences, and gradients of the exact risk, at random weights."""
    task, (heads, rank) = four_components(), (3, 2)
    lab.note(**FOUR, heads=heads, rank=rank)
    grouped = _random_heads(1, heads, rank)
    split = Separate.of(
        jnp.repeat(grouped.v, rank),
        *(jnp.swapaxes(each, 1, 2).reshape(heads * rank, 4, 1) for each in (grouped.K, grouped.Q)),
    )
    sequences = task.sample(jr.key(2), 200)
    apart, together = (np.asarray(Attention(each).predict(sequences)) for each in (split, grouped))
    yield lab.close("outputs", apart, together, _ROUNDING * np.abs(apart).max())
    of_group, of_split = (
        _gradient(risk(task, Attention(each)), Attention(each)) for each in (grouped, split)
    )
    tied = np.asarray(of_split.v).reshape(heads, rank).sum(1)
    size = np.abs(tied).max()
    yield lab.close("gradient of values", tied, np.asarray(of_group.v), _ROUNDING * size)
    keys = np.swapaxes(np.asarray(of_split.K).reshape(heads, rank, 4), 1, 2)
    size = np.abs(keys).max()
    yield lab.close("gradient of keys", keys, np.asarray(of_group.K), _ROUNDING * size)


@claim(
    "linear/expressivity",
    """H ≥ D heads of rank one express every linear map of z = vec(βx_qᵀ), as merged attention does;
    D − 1 heads miss the smallest singular value of A.""",
    source="Section 4.1",
    tolerance_reason="""A product of factors of a matrix is the matrix to rounding. Trained losses
    are within 1e-10 of each other: both runs stop within 1e-11 of their way down.""",
)
def expressivity(lab: Lab) -> Checks:
    """Random matrices written as heads, and where training with H = D ends."""
    lab.note(**FOUR, heads=(3, 4), matrices=20)
    matrices = np.asarray(jr.normal(jr.key(3), (20, 4, 4)))
    u, values, w = np.linalg.svd(matrices)
    for heads in (4, 3):
        built = [
            Attention(
                Separate.of(values[i, :heads], u[i].T[:heads, :, None], w[i, :heads, :, None])
            ).coefficients()
            for i in range(20)
        ]
        left = np.linalg.norm(np.asarray(built) - matrices, ord=2, axis=(1, 2))
        if heads == 4:
            yield lab.close("A of 4 heads", matrices, np.asarray(built), 1e-12)
        else:
            yield lab.close("what 3 heads miss", values[:, -1], left, 1e-12)
    merged, separate = (converged_run(lab, kind).losses[-1] for kind in ("merged", "separate"))
    yield lab.close("final loss of H = D, against merged", merged, separate, 1e-10)


@claim(
    "linear/fixed-points",
    """Every (v, k, q) is a fixed point if the heads sum to the fitted part of a subset of
    eigenvectors (C1), heads with v ≠ 0 have k and q in the learned span (C2), and heads with v = 0
    have k or q in it (C3).""",
    source="Eqs. 16–18, conditions C1–C3",
    tier="smoke",
    tolerance_reason="The gradient vanishes by algebra: rounding of sums of order one is left.",
)
def fixed_points(lab: Lab) -> Checks:
    """The gradient of the exact risk at random points of every subset."""
    task, each = four_components(), 20
    lab.note(**FOUR, heads=6, points_per_subset=each)
    strengths = np.asarray(lab.predict(np.diag(theory.optimal_matrix(task))))
    exact = risk(task, Attention(_random_heads(0, 6, 1)))
    largest = []
    for number in range(1, 16):
        subset = [d for d in range(4) if number >> d & 1]
        for point in range(each):
            model = Attention(random_fixed_point(subset, strengths, 6, 100 * number + point))
            largest.append(_gradient_size(exact, model))
    yield Check(f"largest gradient at {len(largest)} points", 0.0, max(largest), 1e-11, scale=1.0)


@claim(
    "linear/fixed-points-necessary",
    "A head with v = 0 at a fixed point has k or q in the learned span (C3).",
    source="Eq. 18, condition C3, read as necessary",
    tier="smoke",
    tolerance_reason="The gradient vanishes by algebra: rounding of sums of order one is left.",
    corrected_by="linear/fixed-points",
    overread=True,
)
def fixed_points_necessary(lab: Lab) -> Checks:
    """Points with an idle head whose k and q are outside the learned span, Σ λ_d² k_d q_d = 0."""
    task = four_components()
    lab.note(**FOUR, heads=3, learned=(1, 2), idle={"v": 0, "k, q": "in the span of e3 and e4"})
    strengths, unit = np.cbrt(np.diag(theory.optimal_matrix(task))), np.eye(4)
    rates = np.square(np.diag(np.asarray(task.covariance)))
    mixed = unit[2] / rates[2] - unit[3] / rates[3]
    pairs = [(unit[2], unit[3]), (unit[3], unit[2]), (unit[2] + unit[3], mixed)]
    at_rest = 0
    for key, query in pairs:
        learned = [strengths[d] * unit[d] for d in (0, 1)]
        K, Q = np.stack([*learned, key]), np.stack([*learned, query])
        v = np.array([*strengths[:2], 0.0])
        model = Attention(Separate.of(v, K[..., None], Q[..., None]))
        at_rest += _gradient_size(risk(task, model), model) < 1e-11
    yield lab.equal(f"fixed points among {len(pairs)} that violate C3", 0, at_rest)


@claim(
    "linear/rank-stationary-points",
    """Heads of rank R have the same 2^D stationary functions as heads of rank one; if HR < D, those
    with at most HR components.""",
    source="Section 5; Appendix F.3 (as cited there)",
    tolerance_reason="""The root finder stops at a gradient of 1e-10, and A is then off by that over
    the smallest curvature; no restart may end elsewhere.""",
)
def rank_stationary_points(lab: Lab) -> Checks:
    """Random restarts for several shapes: each must end at a predicted function."""
    task = four_components()
    lab.note(**FOUR, shapes=RANKED_SHAPES)
    for heads, rank in RANKED_SHAPES:
        points = theory.stationary_points(task, heads, rank)
        models = [Attention(Separate.of(point.v, point.K, point.Q)) for point in points]
        exact = risk(task, models[0])
        at_rest = sum(_gradient_size(exact, model) < 1e-11 for model in models)
        count = sum(math.comb(4, m) for m in range(min(4, heads * rank) + 1))
        yield lab.equal(f"functions at rest for H = {heads}, R = {rank}", count, at_rest)
        found = ranked_restarts(lab, heads, rank)
        matrices = np.asarray(lab.predict(np.array([point.matrix for point in points])))
        ends = np.array([model.coefficients() for model in found.distinct_functions()])
        nearest = np.abs(ends[:, None] - matrices).max((2, 3)).min(1)
        name = f"distance of {found.words} restarts, H = {heads}, R = {rank}"
        yield Check(name, 0.0, nearest.max(), 1e-5, scale=1.0)

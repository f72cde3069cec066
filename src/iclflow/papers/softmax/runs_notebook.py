"""What the notebooks of arXiv 2503.12734 plot: estimators and trained heads over the length."""

import jax
import numpy as np

from ... import theory
from .. import Lab, once
from .._sampling import ridge
from .runs import DIM, NOISE, paper_task, structured_heads
from .runs_exact import REPORTED, linear_lengths, one_head_loss, pair_loss, plain_step
from .runs_heads import final_heads, losses_beside, pair_reference, pattern_heads
from .runs_sampling import sampled_losses, step
from .runs_seeds import free_ensemble

# The lengths of 'Est_comparison', and the values that it prints at L = 40 with standard errors.
EST_LENGTHS = tuple(range(10, 101, 5))
PRINTED = {
    "pair": (0.24304, 0.0015), "plain step": (0.24075, 0.0015), "debiased step": (0.24305, 0.0015),
    "one head": (0.40485, 0.0026), "ridge": (0.11464, 0.0015),
}  # fmt: skip
# The step of the frozen pair.
STEP = 2 * REPORTED[0] * REPORTED[1]
# (L, d) of the histograms, at fixed d and at fixed L/d, and ω of the two plots.
FIXED_DIM, FIXED_RATIO = ((40, 5), (100, 5), (500, 5)), ((40, 5), (200, 25), (800, 100))
NORM_OMEGAS = (0.5, 0.35)
# Context lengths of the notebook's figure, and its values of trained heads at its ends.
TESTED = (10, 20, 40, 100)
PRINTED_HEADS = {1: (0.8404, 0.2782), 2: (0.5730, 0.1636), 4: (0.5766, 0.1673), 8: (0.5919, 0.1644)}


def est_theory() -> dict[str, np.ndarray]:
    """The losses of the five predictors at the lengths, by formulas."""
    head = theory.large_context_one_head(paper_task())
    tasks = [paper_task(length) for length in EST_LENGTHS]
    of = {
        "pair": lambda task: theory.pair_loss(task, *REPORTED),
        "one head": lambda task: theory.kernel_regression_risk(task, head.omega, head.mu),
        "plain step": lambda task: theory.gradient_step_risk(task, STEP),
        "debiased step": lambda task: theory.debiased_risk(task, STEP),
        "ridge": theory.bayes_risk_isotropic,
    }
    return {name: np.array([float(loss(task)) for task in tasks]) for name, loss in of.items()}


@once
def est_measured(lab: Lab) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The same by the exact risks, and drawn where there is none, with standard errors."""
    head = theory.large_context_one_head(paper_task())
    drawn = {"debiased step": step(STEP, centred=True), "ridge": ridge(DIM * NOISE)}
    count = lab.scaled(2000, 8000, 50_000)
    sampled = [sampled_losses(drawn, DIM, length, NOISE, count) for length in EST_LENGTHS]
    exact = {
        "pair": [pair_loss(*REPORTED, length) for length in EST_LENGTHS],
        "one head": [one_head_loss(head.omega, head.mu, length) for length in EST_LENGTHS],
        "plain step": linear_lengths(plain_step(STEP), 40, True, EST_LENGTHS),
    }
    found = {name: (np.array(values), np.zeros(len(values))) for name, values in exact.items()}
    for name in drawn:
        values, errors = np.array([each[name] for each in sampled]).T
        found[name] = values, errors
    return found


@once
def length_losses(lab: Lab, heads: int, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """By theory and measured: the loss at other lengths, medians over seeds in the pattern."""
    found = pattern_heads(lab, heads)
    # Of single heads those of one sign: the mirror images have the same loss, on mirrored contexts.
    good = found.omega[:, 0] > 0 if heads == 1 else final_heads(lab, heads).both_signs
    finals = jax.tree.map(lambda leaf: leaf[good], free_ensemble(lab, heads).finals)
    count = lab.scaled(2000, 4000, 20_000)
    expected, measured = length_theory(lab, heads, lengths), []
    for length, loss in zip(lengths, expected):
        if heads == 1:
            omega, mu = _median_head(lab, heads)
            reference = structured_heads([omega], [mu]), float(loss)
        else:
            reference = pair_reference(length)
        measured.append(np.median(losses_beside(finals, *reference, paper_task(length), count)))
    return expected, np.asarray(measured)


def length_theory(lab: Lab, heads: int, lengths: tuple[int, ...]) -> np.ndarray:
    """The loss at other lengths of a structured head, or of a pair, with the medians of ω and μ."""
    loss = theory.kernel_regression_risk if heads == 1 else theory.pair_loss
    weights = _median_head(lab, heads)
    return np.asarray([float(loss(paper_task(length), *weights)) for length in lengths])


def _median_head(lab: Lab, heads: int) -> tuple[float, float]:
    """|ω| of the heads, and |μ| of one head or of each sign: medians over seeds in the pattern."""
    found = pattern_heads(lab, heads)
    if heads == 1:
        return float(np.median(np.abs(found.omega))), float(np.median(np.abs(found.mu)))
    return float(np.median(found.width)), float(np.median(np.abs(found.group_sums())))

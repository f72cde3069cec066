"""What the notebooks of arXiv 2503.12734 plot: estimators and trained heads over the length."""

from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from ... import theory
from ...config import read_toml
from .. import Lab, once
from .._sampling import Weights, drawn_losses, ridge
from .runs import DIM, NOISE, SIGNS, paper_task, structured_heads
from .runs_exact import REPORTED, linear_lengths, one_head_loss, pair_loss, plain_step
from .runs_heads import final_heads, losses_beside, pair_reference, pattern_heads
from .runs_sampling import heads as head_weights
from .runs_sampling import sampled_losses, step
from .runs_seeds import free_ensemble

# The lengths of 'Est_comparison' and of 'Head_num_comparison', and how many sequences their printed
# values are means over: of estimators, and of trained models by their number of heads.
EST_LENGTHS = tuple(range(10, 101, 5))
EST_SEQUENCES, HEAD_SEQUENCES = 50_000, {1: 100_000, 2: 20_000, 4: 20_000, 8: 20_000}
ESTIMATORS = ("pair", "one head", "plain step", "debiased step", "ridge")
_PRINTED = read_toml(Path(__file__).parent / "printed.toml")
# ω of the authors' trained models of one head and of two, means over the printed diagonals.
TRAINED_OMEGA = {1: 0.51825, 2: 0.1262}
# The step of the frozen pair.
STEP = 2 * REPORTED[0] * REPORTED[1]
# (L, d) of the histograms, at fixed d and at fixed L/d, and ω of the two plots.
FIXED_DIM, FIXED_RATIO = ((40, 5), (100, 5), (500, 5)), ((40, 5), (200, 25), (800, 100))
NORM_OMEGAS = (0.5, 0.35)
# Context lengths at which our trained heads are tested.
TESTED = (10, 20, 40, 100)

Runs = Float[np.ndarray, "2 L"]  # of the first commit and of the newest


def printed_estimators() -> dict[str, Runs]:
    """What both notebooks print for the estimators."""
    return {name: _both(_PRINTED["estimators"][name]) for name in ESTIMATORS}


def printed_heads() -> dict[int, Runs]:
    """What both notebooks print for trained models, the noise of a label counted once."""
    twice = np.array([[0.0], [NOISE]])
    return {heads: _both(_PRINTED["heads"][str(heads)]) - twice for heads in HEAD_SEQUENCES}


def _both(runs: dict[str, list[float]]) -> Runs:
    return np.array([runs["first"], runs["newest"]])


@once
def estimator_errors(lab: Lab) -> dict[str, np.ndarray]:
    """The standard error of a printed value of each estimator, by length."""
    head = theory.large_context_one_head(paper_task())
    weights = {
        "pair": head_weights(REPORTED[0] * SIGNS, REPORTED[1] * SIGNS),
        "one head": head_weights([head.omega], [head.mu]),
        "plain step": step(STEP), "debiased step": step(STEP, centred=True),
        "ridge": ridge(DIM * NOISE),
    }  # fmt: skip
    return _errors(lab, weights, 0.0, EST_SEQUENCES)


@once
def head_errors(lab: Lab) -> dict[int, Runs]:
    """The standard error of a printed value of each trained model, by length."""
    found = {}
    for heads, (omega, mu) in trained_heads().items():
        signs = [1.0] if heads == 1 else SIGNS
        weights = {"heads": head_weights(np.multiply(omega, signs), np.multiply(mu, signs))}
        each = [_errors(lab, weights, less, HEAD_SEQUENCES[heads]) for less in (NOISE, 0.0)]
        found[heads] = np.array([errors["heads"] for errors in each])
    return found


def _errors(
    lab: Lab, weights: dict[str, Weights], less: float, sequences: int
) -> dict[str, np.ndarray]:
    """Given the inputs an error is normal, of a variance v that is its mean square: the square has
    the variance 3E[v²] − E[v]². `less`: the noise of the query, where its label has none."""
    count, found = lab.scaled(1000, 4000, 20_000), []
    for length in EST_LENGTHS:
        drawn = drawn_losses(weights, DIM, length, NOISE, count)
        found.append([each - less for each in drawn.values()])
    variances = np.array(found)
    spread = 3 * np.mean(variances**2, -1) - np.mean(variances, -1) ** 2
    return dict(zip(weights, np.sqrt(spread / sequences).T))


def trained_heads() -> dict[int, tuple[float, float]]:
    """ω of the authors' trained models, and the best μ for it; four heads and eight as a pair."""
    found = {}
    for heads in HEAD_SEQUENCES:
        omega = TRAINED_OMEGA[min(heads, 2)]
        both = omega * (np.ones(1) if heads == 1 else SIGNS)
        mu = theory.optimal_mu_from(paper_task(), theory.head_integrals(paper_task(), both))
        found[heads] = omega, float(np.abs(mu[0]))
    return found


def trained_theory(heads: int) -> np.ndarray:
    """The exact loss of `trained_heads` by length."""
    loss = theory.kernel_regression_risk if heads == 1 else theory.pair_loss
    weights = trained_heads()[heads]
    return np.array([float(loss(paper_task(length), *weights)) for length in EST_LENGTHS])


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

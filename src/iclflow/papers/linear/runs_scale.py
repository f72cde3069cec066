"""Runs from initial weights of many sizes, from plateaus to the lazy limit."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import analysis, theory
from ...flows import SaveEvenly, gradient_flow
from ...models import Attention, Merged
from ...risks import risk
from .. import Lab, once
from .runs import four_components, merged_config, staircase_config, train_seeds, white_task

SEPARATE_SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
MERGED_SCALES = (0.3, 0.1, 1e-2, 1e-3, 1e-4)
# Of Hs² to ‖A*‖: the larger, the lazier.
LAZY_RATIOS = (1.0, 4.0, 16.0)
# Value and key-query strength at the start, from nearly balanced to unbalanced.
RICH_TO_LAZY = ((1e-2, 2e-2), (1.0, 0.1), (3.0, 0.5), (10.0, 0.2))


@once
def plateau_fractions(lab: Lab, seeds: int) -> np.ndarray:
    """The median share of the run spent on plateaus, at each of `SEPARATE_SCALES`."""
    levels = theory.plateau_losses(four_components())
    medians = []
    for scale in SEPARATE_SCALES:
        runs = train_seeds(lab, staircase_config(scale, heads=5), 10, seeds).runs
        medians.append(np.median([analysis.plateau_fraction(run, levels) for run in runs]))
    return np.array(medians)


@once
def merged_sharpness(lab: Lab, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """t₁₀/t₉₀ and t₅₀ of merged runs, means over seeds, at each of `MERGED_SCALES`."""
    floor = theory.optimal_loss(four_components())
    sharpness, half = [], []
    for scale in MERGED_SCALES:
        runs = train_seeds(lab, merged_config(scale), 11, seeds).runs
        sharpness.append(np.mean([analysis.sharpness(run, floor) for run in runs]))
        levels = np.array([1.0, floor])
        half.append(np.mean([analysis.drop_times(run, levels=levels)[0] for run in runs]))
    return np.array(sharpness), np.array(half)


def lazy_model(scale: float) -> Attention:
    """Eight pairs of heads of opposite values, so that A = 0 at the start whatever the scale."""
    half = Attention.merged(jr.key(12), 4, 8, scale)
    return Attention(
        Merged.of(
            jnp.concatenate([half.circuits.v, -half.circuits.v]),
            jnp.concatenate([half.circuits.U, half.circuits.U]),
        )
    )


@once
def lazy_runs(lab: Lab) -> list[tuple]:
    """Runs from paired heads at growing H s²/‖A*‖, with the frozen-kernel prediction of each."""
    task, found = four_components(), []
    size = np.linalg.norm(theory.optimal_matrix(task))
    for ratio in LAZY_RATIOS:
        model = lazy_model(float(np.sqrt(ratio * size / 16)))
        weights = model.circuits.v, model.circuits.U
        # Three times as long as the slowest mode of the frozen kernel takes.
        end = float(3 / np.min(theory.frozen_kernel_rates(task, *weights)))
        run = gradient_flow(model, risk(task, model), end=end, save=SaveEvenly(300))
        found.append((run, theory.frozen_kernel_loss(task, *weights, run.times)))
    return found


@once
def rich_to_lazy_runs(lab: Lab) -> list[tuple]:
    """White runs with unbalanced heads, v = ρν and U = ρω I/√D, and the exact solution."""
    task, found = white_task(0.25), []
    rho = np.array([0.6, 0.8])  # a unit vector
    for nu, omega in RICH_TO_LAZY:
        eye = np.eye(4) / 2
        model = Attention(
            Merged.of(jnp.asarray(rho * nu), jnp.asarray(rho[:, None, None] * omega * eye))
        )
        run = gradient_flow(model, risk(task, model), end=80.0, save=SaveEvenly(200))
        found.append((nu, omega, run))
    return found

"""Runs from first weights of many sizes, from plateaus to the lazy limit."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import analysis, theory
from ...flows import SaveEvenly, gradient_flow, gradient_flow_ensemble, init_many
from ...models import Attention, Merged
from ...risks import risk
from .. import Lab, once
from .runs import four_components, white_task

SEPARATE_SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
MERGED_SCALES = (0.3, 0.1, 1e-2, 1e-3, 1e-4)
LAZY_RATIOS = (1.0, 4.0, 16.0)
RICH_TO_LAZY = ((1e-2, 2e-2), (1.0, 0.1), (3.0, 0.5), (10.0, 0.2))


@once
def plateau_fractions(lab: Lab, seeds: int) -> np.ndarray:
    """The median share of the run spent on plateaus, at each of `SEPARATE_SCALES`."""
    task = four_components()
    levels = theory.plateau_losses(task)
    medians = []
    for scale in SEPARATE_SCALES:
        models = init_many(
            Attention.separate, jr.split(jr.key(10), seeds), dim=4, heads=5, scale=scale
        )
        runs = gradient_flow_ensemble(models, risk(task, models))
        medians.append(np.median([analysis.plateau_fraction(run, levels) for run in runs]))
    return np.array(medians)


@once
def merged_sharpness(lab: Lab, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """t₁₀/t₉₀ and t₅₀ of merged runs, means over seeds, at each of `MERGED_SCALES`."""
    task = four_components()
    floor = theory.optimal_loss(task)
    sharpness, half = [], []
    for scale in MERGED_SCALES:
        models = init_many(
            Attention.merged, jr.split(jr.key(11), seeds), dim=4, heads=8, scale=scale
        )
        runs = gradient_flow_ensemble(models, risk(task, models))
        sharpness.append(np.mean([analysis.sharpness(run, floor) for run in runs]))
        levels = np.array([1.0, floor])
        half.append(np.mean([analysis.drop_times(run, levels=levels)[0] for run in runs]))
    return np.array(sharpness), np.array(half)


def lazy_model(scale: float, heads: int = 16) -> Attention:
    """Heads in pairs of opposite values, so that A = 0 at the start whatever the scale."""
    half = Attention.merged(jr.key(12), 4, heads // 2, scale)
    return Attention(
        Merged.of(
            jnp.concatenate([half.circuits.v, -half.circuits.v]),
            jnp.concatenate([half.circuits.U, half.circuits.U]),
        )
    )


@once
def lazy_runs(lab: Lab) -> list[tuple]:
    """Runs from paired heads at growing H s²/‖A*‖, with the frozen-kernel prediction of each."""
    task, out = four_components(), []
    size = np.linalg.norm(theory.optimal_matrix(task))
    for ratio in LAZY_RATIOS:
        model = lazy_model(float(np.sqrt(ratio * size / 16)))
        rates = theory.frozen_kernel_rates(task, model.circuits.v, model.circuits.U)
        run = gradient_flow(
            model, risk(task, model), end=float(3 / np.min(rates)), save=SaveEvenly(300)
        )
        out.append(
            (run, theory.frozen_kernel_loss(task, model.circuits.v, model.circuits.U, run.times))
        )
    return out


@once
def rich_to_lazy_runs(lab: Lab) -> list[tuple]:
    """White runs with unbalanced heads, v = ρν and U = ρω I/√D, and the exact solution."""
    task, out = white_task(0.25), []
    shares = np.array([0.6, 0.8])
    for nu, omega in RICH_TO_LAZY:
        eye = np.eye(4) / 2
        model = Attention(
            Merged.of(jnp.asarray(shares * nu), jnp.asarray(shares[:, None, None] * omega * eye))
        )
        run = gradient_flow(model, risk(task, model), end=80.0, save=SaveEvenly(200))
        out.append((nu, omega, run))
    return out

"""Claims of arXiv 2501.16265 on how a head grows, and when each drop comes."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import analysis, theory
from ..flows import gradient_flow, gradient_flow_ensemble, init_many
from ..models import SeparateKQ
from ..risks import risk
from ..trajectory import Trajectory
from ._base import Check
from ._lab import Lab
from ._linear_runs import FOUR, four_components
from ._registry import claim


@claim(
    "linear/scalar-ode",
    "On every plateau the growing head obeys the scalar equation "
    "τ dv/dt = λ²v² − λ³(1 + (1 + tr Λ/λ)/N) v⁵, with a closed form for t(v).",
    source="Section 4.3, scalar equation",
    tier="smoke",
    tolerance_reason="Aligned heads decouple exactly; what is left is the solver's tolerance of "
    "1e-9 a step, which shifts each drop by about 1e-8 of its time.",
    figures=("linear/scalar-ode",),
)
def scalar_ode(lab: Lab) -> list[Check]:
    """One aligned head a component: four drops, each on the closed-form curve."""
    task, run, starts = four_components(), aligned_run(lab), ALIGNED_STARTS
    modes = theory.modes(task)
    lab.note(**FOUR, heads=4, starts=starts, aligned=True)
    checks = [
        Check(
            "loss of decoupled heads",
            theory.aligned_loss(task, np.array(starts) * lab.predict(1.0), run.times),
            run.losses,
            1e-6,
        )
    ]
    for d, start in enumerate(starts):
        v = np.asarray(run.models.v[:, d])
        growing = (v > 1.05 * start) & (v < 0.99 * np.cbrt(modes.strengths[d]))
        predicted = theory.aligned_time(
            v[growing], start, modes.growth_rates[d] * lab.predict(1.0), modes.strengths[d]
        )
        checks.append(
            Check(f"t(v) of component {d + 1}", predicted, run.times[growing], 1e-6, "relative")
        )
    return checks


ALIGNED_STARTS = (0.01, 0.02, 0.015, 0.03)


def aligned_run(lab: Lab) -> Trajectory:
    """Four heads, each exactly aligned with one component."""

    def compute():
        v = jnp.asarray(ALIGNED_STARTS)
        weights = (jnp.eye(4) * v)[:, :, None]
        model = SeparateKQ(v=v, K=weights, Q=weights)
        return gradient_flow(model, risk(four_components(), model), end=4500.0)

    return lab.once("aligned heads", compute)


@claim(
    "linear/cascade",
    "All drop times of a four-component staircase follow from the initial weights alone.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="The cascade is the limit of small weights; 1e-3 at weights of 1e-4 is the "
    "bar, and near-ties of two heads are the worst case.",
    figures=("linear/cascade",),
)
def cascade(lab: Lab) -> list[Check]:
    """Half-drop times of the exact flow from random weights of size 1e-4."""
    seeds = lab.scaled(1, 4, 16)
    predicted, measured = cascade_times(lab, seeds)
    lab.note(**FOUR, heads=4, scale=1e-4, seeds=seeds)
    return [Check("drop times", lab.predict(predicted), measured, 1e-3, "relative")]


def cascade_times(lab: Lab, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured drop times, a row a seed."""

    def compute():
        task = four_components()
        models = init_many(SeparateKQ.init, jr.split(jr.key(8), seeds), dim=4, heads=4, scale=1e-4)
        runs = gradient_flow_ensemble(models, risk(task, models), solver="implicit")
        levels = theory.plateau_losses(task)
        predicted = [theory.staircase(task, run.at(0)).drop_times for run in runs]
        measured = [analysis.drop_times(run, levels=levels) for run in runs]
        return np.array(predicted), np.array(measured)

    return lab.once(f"cascade {seeds}", compute)

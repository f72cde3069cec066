"""Predictions for runs of decomposable attention (arXiv 2402.19442)."""

import contextlib

import numpy as np

from ..models import Attention, Spectral
from ..tasks import MultiTaskRegression
from ..theory import multitask
from ._build import Experiment
from ._prediction import Overlay


def multitask_overlay(experiment: Experiment) -> Overlay | None:
    """The spectral flow from the initial singular values, and named losses; None if not
    applicable."""
    config, task, start = experiment.config, experiment.task, experiment.attention
    if not isinstance(task, MultiTaskRegression) or start is None:
        return None
    if not isinstance(start.circuits, Spectral):
        return None
    population = config.risk.kind == "large_context" or config.exact or config.sampled
    if not population or start.activation != "softmax" or start.self_attention:
        return None
    with contextlib.suppress(ValueError):  # several context lengths, or tasks without signal
        blocks = multitask.Blocks.of(task)
        noise = float(np.sum(np.asarray(task.noise))) if task.noisy_query else 0.0
        heads = config.model.heads
        named = {
            "best single head": multitask.single_head(blocks),
            "one head a task": multitask.gradient_flow_limit(blocks),
            f"lower bound, {heads} head{'s' if heads > 1 else ''}": multitask.lower_bound(
                blocks, heads
            ),
        }
        if heads < len(blocks.sizes):
            del named["one head a task"]
        references = tuple((name, found.loss + noise) for name, found in named.items())
        curve = _flow(experiment, start, blocks, noise)
        source = "the spectral flow, from the initial weights alone"
        if config.risk.kind != "large_context":
            source += ", in the closed form for long contexts and large blocks"
        if curve is None:
            source = "the closed form for long contexts and large blocks"
        return Overlay(np.zeros(0), np.zeros(0), curve, source, references, whole=True)
    return None


def _flow(experiment: Experiment, start: Attention, blocks: multitask.Blocks, noise: float):
    """The loss as a function of the clock; None if steps do not follow gradient flow."""
    unit = experiment.clock_unit
    if unit is None:
        return None
    circuits = start.circuits
    assert isinstance(circuits, Spectral)
    omega, mu = np.asarray(circuits.omega()), np.asarray(circuits.mu())
    # Taken from the config: computed from the factors, a balance of zero would have a rounding
    # error.
    model = experiment.config.model
    key, value = (getattr(model, f"{name}_imbalance") for name in ("key", "value"))

    def curve(clock: np.ndarray) -> np.ndarray:
        times = np.asarray(clock) * unit
        found = multitask.spectral_flow(blocks, times, omega, mu, circuits.width, key, value)
        return found.loss + noise

    return curve

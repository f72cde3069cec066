"""Full attention on mixtures of fresh and fixed tasks."""

import jax.random as jr
import numpy as np

from ...flows import SaveLogSpaced, gradient_flow_ensemble
from ...models import Attention
from ...risks import exact_quadratic_risk
from ...tasks import RandomLabels, in_context_in_weight
from .. import Lab, once
from .runs import white_task

FRACTIONS = (0.02, 0.2, 0.4, 0.6, 0.8, 1.0)
END = 3e4


@once
def in_weight_runs(lab: Lab):
    """Full merged attention on mixtures, one run a fraction p, all as one program."""
    task = white_task(0.25)
    model = Attention.merged(jr.key(16), 4, 8, 1e-2).embed()
    risks = [exact_quadratic_risk(in_context_in_weight(task, p), model) for p in FRACTIONS]
    return gradient_flow_ensemble(
        [model] * len(FRACTIONS), risks, end=END, save=SaveLogSpaced(120, first=0.3), rtol=1e-8
    )


def test_losses(runs) -> tuple[np.ndarray, np.ndarray]:
    """In-context and in-weight test loss of the final models."""
    task, template = white_task(0.25), runs[0].final
    in_context = exact_quadratic_risk(task, template)
    in_weight = exact_quadratic_risk(RandomLabels(task, np.ones(4)), template)
    finals = [run.final for run in runs]
    return (
        np.array([float(in_context(m)) for m in finals]),
        np.array([float(in_weight(m)) for m in finals]),
    )

"""Claims of arXiv 2503.12734 on a run of two opposite heads that somebody made."""

import numpy as np

from .. import theory
from ._base import Check
from ._lab import Lab
from ._on_runs import Given, on_run
from ._run_needs import gradient_flow, scheme
from ._softmax_run_needs import followed_risk, heads, one_number, softmax_attention

_PAIR = (softmax_attention("structured"), one_number, heads(2, 2), scheme("opposite"))


@on_run(
    "softmax/slow-manifold",
    *_PAIR,
    gradient_flow,
    followed_risk,
    tolerance_reason="Two solvers on two forms of one loss, whose quadratures agree to 1e-8: 1e-4, "
    "as the flow drifts for times over which errors of a step add up.",
)
def slow_manifold(given: Given, lab: Lab) -> list[Check]:
    """w, μ and the loss over the whole run, from the weights at t = 0."""
    run, models = given.run, given.run.models
    w, mu = np.asarray(models.omega)[:, 0], np.asarray(models.mu)[:, 0]
    form = "exact" if given.config.exact else "large_context"
    numbers = theory.isotropic_numbers(given.task)
    flow = theory.pair_flow(run.times, float(w[0]), float(mu[0]), *numbers, loss=form)
    return [
        Check("w(t)", lab.predict(flow.w), w, 1e-4, "relative"),
        Check("μ(t)", lab.predict(flow.mu), mu, 1e-4, "relative"),
        Check("loss(t)", lab.predict(flow.loss), run.losses, 1e-5, "relative"),
    ]


@on_run(
    "softmax/structured-manifold",
    *_PAIR,
    gradient_flow,
    tolerance_reason="A symmetry of every risk: rounding alone, 1e-6 after long times.",
)
def structured_manifold(given: Given, lab: Lab) -> list[Check]:
    """The ratios of ω and of μ of the two heads along the run."""
    models = given.run.models
    pairs = {"ω": np.asarray(models.omega), "μ": np.asarray(models.mu)}
    return [
        Check(f"{name} of the second head / {name} of the first", lab.predict(-1.0),
              each[:, 1] / each[:, 0], 1e-6)
        for name, each in pairs.items()
    ]  # fmt: skip

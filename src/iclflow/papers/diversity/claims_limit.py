"""Claims on the proportional limit: how errors depend on context, tasks and data."""

import numpy as np

from ...theory import diversity
from .. import Checks, Lab, claim

# Where arXiv 2405.11751 simulates the smallest errors of its Figure 2: κ and α of each panel.
MINIMA = {
    "IDG, τ = ½, ρ = ½": (0.5, 0.5, (0.3, 0.5, 0.7), (6.15, 5.6, 7.4), "in_distribution"),
    "ICL, τ = ½, ρ = .1": (0.5, 0.1, (0.2, 0.4, 0.5, 0.6), (2.35, 5.5, 9.62, 22.7), "test"),
}


def best_contexts(data: float, noise: float, tasks: tuple[float, ...], field: str) -> np.ndarray:
    """The context α of smallest error for each κ, to four digits."""
    context = np.geomspace(0.5, 200, 60_000)
    errors = [getattr(diversity.proportional_limit(data, context, kappa, noise), field)
              for kappa in tasks]  # fmt: skip
    return context[np.argmin(errors, axis=1)]


@claim(
    "diversity/best-context",
    """With little data the error is smallest at a finite context length, for fresh tasks as for
    those of training.""",
    source="arXiv 2405.11751, Figure 2",
    tolerance_reason="The authors' values are rounded, by up to 2 %.",
    figures=("diversity/context-length",),
)
def best_context(lab: Lab) -> Checks:
    """The minima of the error over α against those that the authors simulate."""
    for name, (data, noise, tasks, expected, field) in MINIMA.items():
        lab.note(**{name: tasks})
        found = best_contexts(data, noise, tasks, field)
        yield lab.relative(f"α of the smallest error, {name}", np.array(expected), found, 0.02)


@claim(
    "diversity/longer-contexts",
    """Without penalty and with κ < min(τ, 1) the error on fresh tasks grows in proportion to the
    length of contexts: least squares fits the noise outside the span of the tasks.""",
    source="beyond arXiv 2405.11751, Figure 3; derived in docs/theory/diversity.md",
    tolerance_reason="What is left at α = 10⁵ is of order 1/α, some 1e-4.",
    figures=("diversity/longer-contexts",),
)
def longer_contexts(lab: Lab) -> Checks:
    """The slope of the error at long contexts, below and above the threshold in data."""
    data, tasks, noise = np.array([0.5, 0.7, 3.0, 20.0]), np.array([0.2, 0.5, 0.4, 0.8]), 0.1
    lab.note(data=data.tolist(), tasks=tasks.tolist(), noise=noise)
    ends = [diversity.proportional_limit(data, alpha, tasks, noise).test for alpha in (1e5, 2e5)]
    slope = (ends[1] - ends[0]) / 1e5
    expected = diversity.long_context_growth(data, tasks, noise)
    yield lab.relative("growth of the ICL error with α", expected, slope, 1e-3)


@claim(
    "diversity/task-gap",
    """Fresh tasks cost more than those of training until there are about as many tasks as
    dimensions, K ~ d; beyond, the gap falls as 1/K.""",
    source="arXiv 2405.11751, Figure 4",
    tolerance_reason="Twice the leading order q²/(1 + q)³·d/K; the next in d/K is 1 % at K = 100d.",
    figures=("diversity/task-gap",),
)
def task_gap(lab: Lab) -> Checks:
    """The gap at many tasks against its law, and at few against one."""
    context, noise, tasks = 2.0, 0.01, np.array([100.0, 200.0])
    lab.note(context=context, noise=noise, tasks=tasks.tolist())
    found = diversity.proportional_limit(np.inf, context, tasks, noise).gap
    q = (1 + noise) / context
    law = 2 * q**2 / (1 + q) ** 3 / tasks
    yield lab.relative("gap at many tasks, in the population", law, found, 0.02)
    few = diversity.proportional_limit(2.0, 10.0, np.array([0.1, 1.0, 10.0]), noise).gap
    yield lab.at_least("fall of the gap from K = d/10 to d", 2.0, float(few[0] / few[1]))
    yield lab.at_least("fall of the gap from K = d to 10d", 10.0, float(few[1] / few[2]))

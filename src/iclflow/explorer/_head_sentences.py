"""Sentences about the heads of a model at a moment of a run."""

from collections.abc import Sequence

import numpy as np

from ..analysis import (
    IDLE,
    Directions,
    averages_labels,
    best_steps,
    component_strengths,
    component_work,
    head_shares,
    task_work,
    zero_sum,
)
from ..circuits import Circuits
from ..tasks import MultiTaskRegression
from ._sentences import SMALL, describe_learned
from ._text import MOST_NAMED, list_numbers, number, percent, percent_done, sentence

# A head that adds this share of the step on a task has it; with less it shares it.
_HAS = 0.8
# Values that sum to less than these shares of their size leave a step debiased, or nearly so.
_DEBIASED, _NEARLY = 0.05, 0.2


def describe_strongest(circuits: Circuits, names: Sequence[str]) -> list[str]:
    """The head that adds most, for a stack of layers."""
    # The first axis has one point, the last one label.
    omega, mu = circuits.omega[0, :, 0], circuits.mu[0, :, 0]
    largest = int(np.argmax(np.abs(omega * mu)))
    numbers = f"ω = {number(omega[largest])}, μ = {number(mu[largest])}"
    return [f"The strongest is {names[largest]} ({numbers})."]


def describe_components(
    circuits: Circuits, found: Directions | None, best: np.ndarray, by_head: bool
) -> list[str]:
    """The learned components of linear attention; with `by_head`, which head works on which."""
    if found is None:
        return []
    learned = describe_learned(found)
    # Equal components have no axes of their own, and heads that mix components work on none.
    if not by_head or not found.orderly or len(found.spaces) == 1 < len(best):
        return [learned]
    works = component_work(component_strengths(circuits) / best)[0]
    clauses = []
    for h in np.flatnonzero(works.any(-1)):
        own = [int(d) + 1 for d in np.flatnonzero(works[h])]
        equal = any(len(space) > 1 and works[h, space].any() for space in found.spaces)
        what = "components of equal variance" if equal else list_numbers("component", own)
        clauses.append(f"head {h + 1} works on {what}")
    return [learned, sentence(clauses)] if 0 < len(clauses) <= MOST_NAMED else [learned]


def describe_signs(circuits: Circuits, roles: Sequence[str]) -> list[str]:
    """The roles of softmax heads, and whether their step is debiased."""
    omega, mu = circuits.omega[0, :, 0], circuits.mu[0, :, 0]
    if len(roles) <= MOST_NAMED:
        clauses = [
            f"head {h + 1} is {role} (ω = {number(w)}, μ = {number(m)})"
            for h, (role, w, m) in enumerate(zip(roles, omega, mu))
        ]
    else:
        names, counts = np.unique(list(roles), return_counts=True)
        verb = lambda count: "head is" if count == 1 else "heads are"
        clauses = [f"{count} {verb(count)} {name}" for name, count in zip(names, counts)]
    if len(roles) == 1:
        return [sentence(clauses)]
    total = float(zero_sum(mu))
    words = f"Output-values sum to {percent(total)} of their size"
    if total <= _NEARLY:
        words += f": {'debiased' if total <= _DEBIASED else 'nearly debiased'}"
    return [sentence(clauses), f"{words}."]


def describe_idle(
    circuits: Circuits, variance: float, context: int, sizes: Sequence[float] | None, known: bool
) -> str:
    """Heads that add up to next to no gradient step.

    **Arguments:**

    - `variance`: the mean variance of the inputs.
    - `sizes`: of the predictions, as shares of the best ones, where these were computed.
    - `known`: whether the best step is known.
    """
    if sizes is not None and max(sizes) < SMALL:
        return "All heads are idle."
    one = circuits._replace(attention=circuits.attention[0], values=circuits.values[0])
    if averages_labels(one, variance, context, SMALL):
        return f"The heads average the labels so far: Σμ = {number(float(one.mu.sum()))}."
    if not known:
        return "The heads make next to no gradient step so far."
    return f"The heads make less than {100 * IDLE:.0f} % of the best gradient step so far."


def describe_tasks(circuits: Circuits, task: MultiTaskRegression) -> list[str]:
    """Which heads work for which task."""
    works = task_work(circuits.omega, circuits.mu, best_steps(task))[0]
    if not works.any():
        return ["No head works for a task yet."]
    clauses = []
    for i, shares in enumerate(head_shares(circuits.strength)[0].T):
        head, share = int(shares.argmax()), float(shares.max())
        working = [int(h) + 1 for h in np.flatnonzero(works[:, i])]
        if not working:
            clauses.append(f"task {i + 1} has not begun")
        elif len(working) == 1 or share >= _HAS:
            clauses.append(f"head {head + 1} has task {i + 1} ({percent_done(share)} of its step)")
        elif len(working) <= MOST_NAMED:
            clauses.append(f"{list_numbers('head', working)} share task {i + 1}")
        else:
            clauses.append(f"{len(working)} heads share task {i + 1}")
    return [sentence(clauses)] if len(clauses) <= 2 * MOST_NAMED else []

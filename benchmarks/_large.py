"""Large inputs: exact gradient flow of merged attention, and how its cost grows with D."""

import time
from collections.abc import Sequence

import jax.random as jr
import numpy as np
from jaxtyping import Float

from iclflow.flows import SaveAtDrops, gradient_flow
from iclflow.models import Attention
from iclflow.risks import risk
from iclflow.tasks import LinearRegression

from ._row import Bar, Row, Timing, measure

GROUP = "large inputs, merged attention"
_HEADS, _CONTEXT, _SCALE = 8, 31, 1e-3
# A model of D = 256 takes 4 MB: some 150 of them are kept instead of the default 500.
_SAVE = SaveAtDrops(loss=2e-2, clock=0.1)


def large_rows(dims: Sequence[int], largest: int, seconds: float, judged: bool) -> list[Row]:
    """Time to convergence at D = `largest`, and the cost of a step at each of `dims`.

    **Arguments:**

    - `seconds`: how long each size is timed, after compilation.
    """
    rows = [_convergence_row(largest, judged)]
    for dense in (False, True):
        words = "full covariance matrix" if dense else "diagonal covariance"
        costs = []
        for dim in dims:
            cost = _step_cost(dim, dense, seconds)
            costs.append(min(cost.seconds))
            rows.append(cost.row(GROUP, f"a step at D = {dim}, {words}", "ms"))
        rows.append(
            Row(
                GROUP, f"growth of a step, {words}: power of D", fitted_power(dims, costs),
                bar=Bar(3.0) if judged else None,
                note=f"fit over D = {dims[0]} … {dims[-1]}, fastest chunk of each",
            )
        )  # fmt: skip
    return rows


def fitted_power(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The exponent p of the power law cost ∝ sizeᵖ that fits best on logarithmic axes."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def _convergence_row(dim: int, judged: bool) -> Row:
    model, task = _model(dim), LinearRegression(_eigenvalues(dim), _CONTEXT)
    runs = []
    flow = lambda: runs.append(gradient_flow(model, risk(task, model), save=_SAVE, progress=False))
    processor = time.process_time()
    timing = measure(flow, 1)
    processor = time.process_time() - processor
    statistics = runs[0].statistics
    return timing.row(
        GROUP,
        f"gradient flow to convergence, D = {dim}",
        bar=Bar(60.0) if judged else None,
        note=(
            f"with compilation; {runs[0].result.name}, {statistics['steps']} steps, "
            f"{statistics['rejected']} rejected, {processor:.3g} s of processor time"
        ),
    )


def _step_cost(dim: int, dense: bool, seconds: float) -> Timing:
    """Seconds a step, chunk by chunk, recording included."""
    model, eigenvalues = _model(dim), _eigenvalues(dim)
    task = LinearRegression(eigenvalues, _CONTEXT)
    if dense:
        basis = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
        task = LinearRegression(covariance=(basis * eigenvalues) @ basis.T, context=_CONTEXT)
    marks: list[tuple[float, int]] = []

    def look(status) -> bool:
        marks.append((time.perf_counter(), status.steps))
        # The first chunk is compiled while it is waited for.
        return len(marks) < 5 or marks[-1][0] - marks[0][0] < seconds

    # Without a tolerance to reach, the run goes on until it is told to stop.
    gradient_flow(model, risk(task, model), end=1e12, save=_SAVE, progress=False, callback=look)
    return Timing(tuple((t1 - t0) / (n1 - n0) for (t0, n0), (t1, n1) in zip(marks, marks[1:])))


def _model(dim: int) -> Attention:
    return Attention.merged(jr.key(0), dim, _HEADS, _SCALE)


def _eigenvalues(dim: int) -> Float[np.ndarray, " D"]:
    """Proportional to 1, 2, …, D, with trace 1."""
    return np.arange(1, dim + 1) / (dim * (dim + 1) / 2)

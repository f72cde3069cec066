"""The benchmark of scale: `make bench ARGS=scale`, from small sweeps to a million runs on paper."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ._cost_model import (
    CostModel,
    Overheads,
    adam_counts,
    fit_cost,
    flow_counts,
    flow_weights,
    million_runs,
)
from ._overheads import table_costs, task_cost
from ._row import Row, Timing
from ._small_sweeps import Adam, Flow, Measured, measured
from ._suite import report

FLOWS = "gradient flows, separate linear attention, exact risk: a run on one worker"
ADAM = "Adam on sampled softmax attention: a run on one worker"
PAPER = "a million runs, on paper"
FLOW_SIZES = (
    Flow(2, 2),
    Flow(4, 2),
    Flow(4, 4),
    Flow(4, 4, end=1000.0),
    Flow(4, 4, points=400),
    Flow(4, 8),
    Flow(8, 2),
    Flow(8, 4),
)
# Two sizes that are not in the fit, and one of more weights than run in lanes, which it is not of.
FLOW_CHECKS = (Flow(6, 4), Flow(6, 6, end=400.0), Flow(8, 8))
LONG_CONTEXT = Flow(4, 4, context=1000)
ADAM_SIZES = (
    Adam(4, 4, 31, 64, 300, 2),
    Adam(4, 4, 31, 64, 900, 2),
    Adam(4, 4, 31, 64, 300, 8),
    Adam(4, 2, 31, 128, 300, 2),
    Adam(4, 8, 31, 64, 300, 2),
    Adam(4, 4, 63, 64, 300, 2),
    Adam(8, 4, 31, 64, 300, 2),
)
ADAM_CHECKS = (Adam(6, 4, 31, 64, 500, 4), Adam(8, 8, 63, 64, 500, 2))
# The random runs of which a million is reckoned: those of the study `linear/softmax-adam`, with few
# kept points. The flows are those of FLOW_SIZES[2].
_EXAMPLE = Adam(4, 8, 31, 128, 1500, 16)
_FEW, _MANY, _TASKS, _BATCH = 1000, 10_000, 200, 1024


def run(
    progress: Callable[[str], None] | None = None,
    quick: bool = False,
    keep: Callable[[dict[str, Any]], None] = lambda found: None,
) -> list[Row]:
    """Measures small sweeps, fits what a run costs, and reckons what a million would.

    **Arguments:**

    - `progress`: called with what comes next.
    - `quick`: a few runs of one size each: one sees what is measured, and nothing is fitted.
    - `keep`: called with prices and overheads, ready for JSON.
    """
    say = progress or (lambda title: None)

    def all_of(sizes: Sequence[Flow | Adam], repeats: int) -> list[Measured]:
        found = []
        for size in sizes[: 1 if quick else None]:
            say(size.words)
            found.append(measured(size, 1 if quick else repeats, quick))
        return found

    say("rows and tables")  # first, while the peak of memory is theirs
    costs, around = table_costs(20, 40) if quick else table_costs(_FEW, _MANY)
    flows, adams = all_of(FLOW_SIZES, 3), all_of(ADAM_SIZES, 2)
    if quick:
        return [*_lines(FLOWS, flows), *_lines(ADAM, adams), *around]
    checked = all_of(FLOW_CHECKS, 3), all_of(ADAM_CHECKS, 2)
    pair = all_of((FLOW_SIZES[2], LONG_CONTEXT), 3)  # side by side: both on the same machine
    say("tasks of Ray")
    task, ray_row = task_cost(_TASKS, _BATCH)
    flow_model, flow_rows = _fitted(FLOWS, flows, checked[0])
    adam_model, adam_rows = _fitted(ADAM, adams, checked[1])
    shared = {"row": costs["row"], "join": costs["join"], "task": task}
    shared["row_bytes"] = costs["row_bytes"]
    found = {
        "flows": _overheads(shared, flows),
        "adam": _overheads(shared, adams),
    }
    keep(
        {
            "prices": {"flows": flow_model.prices, "adam": adam_model.prices},
            "compile": {name: each.compile for name, each in found.items()},
            "overheads": shared,
        }
    )
    base = flows[2]
    a_flow = flow_model.seconds(flow_counts(4, 4, base.tries, base.points))
    an_adam = adam_model.seconds(adam_counts(*_EXAMPLE))
    kept = _EXAMPLE.points * adams[4].stored / adams[4].points  # the same weights
    return [
        *flow_rows,
        _context_row(*pair),
        _storage_row(base),
        *adam_rows,
        *around,
        ray_row,
        *_on_paper("flows", base.size, a_flow, base.stored, found["flows"]),
        *_on_paper("Adam", _EXAMPLE, an_adam, kept, found["adam"]),
    ]


def _lines(group: str, sizes: Sequence[Measured], model: CostModel | None = None) -> list[Row]:
    rows = []
    for each in sizes:
        tries = f", {each.tries:.0f} tries" if each.tries else ""
        note = f"{each.runs} runs{tries}"
        if model is not None:
            ratio = model.seconds(each.counts) / each.a_run.median
            note += f"; the model says {1e3 * model.seconds(each.counts):.3g} ms, {ratio:.2f} ×"
        rows.append(each.a_run.row(group, each.size.words, "ms", note=note))
    return rows


def _fitted(
    group: str, sizes: Sequence[Measured], checks: Sequence[Measured]
) -> tuple[CostModel, list[Row]]:
    """What a run costs, by some sizes, beside what each and those in `checks` took."""
    model = fit_cost([each.counts for each in sizes], [each.a_run.median for each in sizes])
    rows = _lines(f"{group}, in the fit", sizes, model)
    rows += _lines(f"{group}, not in the fit", checks, model)
    for name, price in model.prices.items():
        unit, factor = ("ms", 1e3) if name == "run" else ("ns", 1e9)
        rows.append(Row(f"{group}, prices", f"a {name}", factor * price, unit))
    compiling = Timing(tuple(each.compiling for each in (*sizes, *checks)))
    note = "the first call of a size less the median of the others; once a worker"
    return model, [*rows, compiling.row(f"{group}, prices", "compiling", note=note)]


def _overheads(shared: dict[str, Any], sizes: Sequence[Measured]) -> Overheads:
    compiling = Timing(tuple(each.compiling for each in sizes)).median
    return Overheads(compile=compiling, **shared)


def _context_row(short: Measured, long: Measured) -> Row:
    """The context length is a number in the exact risk: a try takes as long with any."""
    ratio = (long.a_run.median / long.tries) / (short.a_run.median / short.tries)
    name = f"a try with L = {long.size.context} over one with L = {short.size.context}"
    note = f"D = 4, H = 4; {long.tries:.0f} and {short.tries:.0f} tries a run"
    return Row(f"{FLOWS}, not in the fit", name, ratio, "×", note=note)


def _storage_row(each: Measured) -> Row:
    weights = flow_weights(each.size.dim, each.size.heads)
    numbers = 8 * each.points * (weights + 2)
    note = f"of which {numbers:.0f} are points × (weights + 2) × 8"
    return Row(
        f"{FLOWS}, prices", f"trajectory, {each.size.words}", each.stored, "bytes", note=note
    )


def _on_paper(
    what: str, size: Flow | Adam, a_run: float, stored: float, overheads: Overheads
) -> list[Row]:
    """A million runs of a size on one worker, on a node and on 100 nodes."""
    core = jax.default_backend() == "cpu"
    kind, node = ("core", 16) if core else (jax.local_devices()[0].device_kind, 8)
    # What a run costs on a GPU depends on how many share it; on a core it does not.
    batch = _BATCH if core else size.sweep()["batch"]
    rows, group = [], f"{PAPER}: {what}, {size.words}"
    for workers, where in ((1, f"one {kind}"), (node, "one node"), (100 * node, "100 nodes")):
        estimate = million_runs(a_run, overheads, workers, batch)
        parts = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in estimate.parts.items())
        where += f" of {node} each" if workers > node else f" of {node}" if workers > 1 else ""
        note = f"{parts}; most: {estimate.bottleneck}"
        rows.append(Row(group, where, estimate.seconds / 3600, "h", note=note))
    note = f"beside {1e6 * overheads.row_bytes / 2**20:,.0f} MiB of table"
    return [*rows, Row(group, "trajectories, if kept", 1e6 * stored / 2**30, "GiB", note=note)]


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON, with
    what was fitted under `model`."""
    found: dict[str, Any] = {}
    measure = lambda progress, quick: run(progress, quick, found.update)
    return report("scale", measure, quiet, quick) | {"model": found}

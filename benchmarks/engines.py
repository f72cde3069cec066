"""The benchmark of engines, on a GPU: `make bench ARGS=engines`.

Each engine of sampled softmax attention beside eager PyTorch and a plain scan in JAX, in one run;
first whether each finds the same weights.
"""

from collections.abc import Callable
from typing import Any, get_args

import jax
import numpy as np

from iclflow.errors import InputError
from iclflow.flows import Layout
from iclflow.risks.fused import EngineName, has_few_sums

from ._race import Contestant, race
from ._row import Bar, Row
from ._softmax_runs import Size, plain, together
from ._softmax_speed import EAGER, find_peers, scan
from ._suite import report

# Seconds for which a peer is timed in each round; steps of one seed, and of all seeds, in a run.
_SECONDS, _ROUNDS, _STEPS, _MODEL_STEPS = 1.0, 3, 20_000, 500_000
_SAME_STEPS = 300


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Measures everything, and returns one row a number.

    **Arguments:**

    - `progress`: called with what comes next.
    - `quick`: tiny sizes and no bars.
    """
    say = progress or (lambda title: None)
    # Without a GPU a kernel is interpreted: for a look at what is measured.
    card = jax.default_backend() == "gpu"
    tiny = Size(dim=1, context=2, batch=8)
    small = tiny if quick else Size()
    names: list[EngineName] = [*get_args(EngineName)] if card else ["auto", "triton_steps"]
    rows = []
    for name in names:
        say(f"{name}: the same weights")
        rows.append(difference_row(small, name, 20 if quick else _SAME_STEPS))
    counts = (1, 2) if quick else (1, 132, 1024)
    sizes = [small._replace(models=count) for count in counts]
    if not quick:
        sizes += [Size(dim=20, models=1024), Size(heads=8, models=1024), Size(dim=64, heads=4)]
    for size in sizes:
        say(_words(size))
        rows += speed_rows(size, names, quick)
    return rows


def _words(size: Size) -> str:
    return f"d = {size.dim}, H = {size.heads}, {size.models} seeds"


def difference_row(size: Size, name: EngineName, steps: int) -> Row:
    """The largest difference of weights, as a share of the way that they have come."""
    group, label = "the same weights", f"{name}: difference after {steps} steps"
    try:
        one, other = (plain(size._replace(engine=each), steps)() for each in ("auto", name))
    except (InputError, NotImplementedError, RuntimeError, ValueError) as error:
        return Row(group, label, None, note=_first_line(error))
    vector = Layout.of(size.model()).vectors
    start, first, second = (vector(model)[0] for model in (size.model(), one.final, other.final))
    share = np.abs(second - first).max() / np.abs(first - start).max()
    return Row(group, label, float(share), note="of the largest change of a weight")


def speed_rows(size: Size, names: list[EngineName], quick: bool) -> list[Row]:
    """A step of all models by each engine, and beside it the peers."""
    group = f"a step of Adam: {_words(size)}"
    steps = max(10, _MODEL_STEPS // size.models) if size.models > 1 else _STEPS
    steps = 5 if quick else max(10, steps * 50 // (size.dim**2 * size.heads))
    ours, rows = [], []
    for name in names:
        if name == "triton_steps" and not has_steps(size):
            rows.append(Row(group, name, None, note="too many sums for one program"))
            continue
        run = together(size._replace(engine=name), steps)
        if size.models == 1:
            run = plain(size._replace(engine=name), steps)
        try:  # it can fail when it is compiled, and the others are still to be timed
            run()
        except Exception as error:
            rows.append(Row(group, name, None, note=_first_line(error)))
        else:
            ours.append(Contestant(name, run, steps * size.models))
    count = None if size.models == 1 else size.models
    scans = scan(max(1, steps // 20), count, size._replace(models=1))
    peers, missing = find_peers(size._replace(models=1), False)
    found = race([*ours, scans], peers, 2 if quick else _ROUNDS, 0.0 if quick else _SECONDS)
    for result in found.values():
        rows += result.rows(group)
    for each in ours:
        step = found[each.name].step
        for peer in (EAGER, scans.name):
            if peer in found:
                rows.append(found[peer].step.ratio_row(group, f"{peer} ÷ {each.name}", step))
        bar = None
        if each.name == "triton_steps" and size == Size():
            bar = Bar(15)  # of one seed alone
        whole = step.times(size.models)
        rows.append(whole.row(group, f"{each.name}: all models", "µs", bar=bar))
        name = f"{each.name}: model-steps a second"
        rows.append(Row(group, name, 1e-6 / step.median, "·10⁶/s"))
    return rows + missing


def has_steps(size: Size) -> bool:
    """Whether whole steps of models of this size fit into a kernel."""
    law = size.risk().white
    assert law is not None
    return has_few_sums(law.spec(size.model(), True, size.batch))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("engines", run, quiet, quick)

"""The benchmark of linear attention: `make bench ARGS=linear`."""

from collections.abc import Callable
from typing import Any

from ._finite_data import Setting, finite_data_rows
from ._large import large_rows
from ._linear_ensemble import linear_ensemble_rows
from ._row import Row
from ._stack import stack_flow_rows, stack_rows
from ._staircase import cascade_rows, small_rows, staircase_rows
from ._suite import report

QUICK = Setting(
    sequences=50,
    steps=60,
    peer_seconds=0.0,
    check_sequences=5,
    check_steps=40,
    repeats=2,
    judged=False,
)


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Measures everything, each number beside its peer, and returns one row a number.

    Float64 must be on. Rows whose peer is not installed say so and hold no number.

    **Arguments:**

    - `progress`: called with what comes next.
    - `quick`: tiny sizes and no bars, in seconds; the default takes about five minutes.
    """
    say = progress or (lambda title: None)
    rows: list[Row] = []
    say("training on a finite data set")
    rows += finite_data_rows(QUICK if quick else Setting())
    say("the four-plateau run")
    rows += staircase_rows(repeats=2 if quick else 7, cold=not quick, judged=not quick)
    say("small initial weights")
    rows += small_rows((1e-3,) if quick else (1e-4, 1e-6), judged=not quick)
    say("the cascade")
    rows += cascade_rows(1e-3 if quick else 1e-4, calls=20 if quick else 300, judged=not quick)
    say("many initialisations")
    rows += linear_ensemble_rows(quick)
    say("two layers")
    rows += stack_rows(2 if quick else 7, 50 if quick else 4000, judged=not quick)
    rows += stack_flow_rows(2 if quick else 5, judged=not quick)
    say("large inputs")
    if quick:
        return rows + large_rows((4, 8), largest=4, seconds=0.0, judged=False)
    return rows + large_rows((32, 64, 128, 256), largest=256, seconds=3.0, judged=True)


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("linear", run, quiet, quick)

"""The benchmark of sampled softmax attention: `make bench ARGS=softmax`."""

from collections.abc import Callable
from typing import Any

from ._fused import growth_rows, paper_rows
from ._landscape import landscape_rows
from ._row import Row
from ._softmax_noise import SAME_WEIGHTS, noise_rows
from ._softmax_speed import Setting, speed_rows, wide_rows
from ._suite import report

QUICK = Setting(seconds=0.0, steps=20, members=2, ensemble_steps=10, rounds=2, judged=False)


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Measures everything, each number beside its peer on the same device, and returns one row a
    number.

    Float64 must be on. Rows whose peer is not installed say so and hold no number.

    **Arguments:**

    - `progress`: called with what comes next.
    - `quick`: tiny sizes and no bars, in a minute or two; the default takes about ten minutes.
    """
    say = progress or (lambda title: None)
    say("noise of a batch")
    noise = noise_rows(20, 64, False) if quick else noise_rows(2000, 1024, True)
    say("steps of training")
    ratio = next(row for row in noise if row.name == SAME_WEIGHTS)
    setting = QUICK if quick else Setting.here()
    rows = speed_rows(setting, ratio)
    say("more heads, larger inputs")
    rows += wide_rows(setting)
    say("the run of the paper")
    rows += paper_rows(ratio.value or 1.0, quick)
    say("growth")
    rows += growth_rows(quick)
    say("exact landscapes")
    return rows + noise + landscape_rows(quick)


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("softmax", run, quiet, quick)

"""The fused pass: how its cost grows, and the run of the paper by it."""

import jax
import numpy as np

from ._large import fitted_power
from ._row import Bar, Row, Timing, measure
from ._softmax_runs import Size, integrated, together

GROWTH = "growth of the cost of a fused step, as a power of"
PAPER = "the paper's run: two heads, d = 5, L = 40, Adam, one seed"


# The power that is predicted along each axis: a token takes d + 1 normals and, for each head, an
# exponential and some d products; tokens, sequences and models are independent.
PREDICTED = {
    "dim": "0.9: normals and products are d each, exponentials are not",
    "heads": "0.7: normals are shared by all heads",
    "context": "1",
    "models": "1",
    "batch": "1",
}
ON_A_CPU = Size(models=4), {
    "dim": (5, 10, 20, 40),
    "heads": (2, 4, 8, 16),
    "context": (40, 80, 160),
    "models": (4, 8, 16),
    "batch": (256, 512, 1024),
}  # fmt: skip
# Enough to fill a card; kernels of more heads or inputs take minutes to compile.
ON_A_GPU = Size(models=1024), {
    "dim": (3, 5, 10),
    "heads": (2, 4, 8),
    "context": (40, 80, 160),
    "models": (1024, 2048, 4096),
    "batch": (256, 512, 1024),
}  # fmt: skip


def growth_rows(quick: bool = False) -> list[Row]:
    """Measured exponents beside the predicted ones."""
    start, axes = ON_A_CPU if jax.default_backend() == "cpu" else ON_A_GPU
    rows = []
    for axis, sizes in axes.items():
        used = sizes[:2] if quick else sizes
        seconds = [_step(start._replace(**{axis: size}), quick).median for size in used]
        power = fitted_power(used, seconds)
        times = ", ".join(f"{1e6 * each:.3g}" for each in seconds)
        note = f"predicted {PREDICTED[axis]}; {times} µs at {', '.join(map(str, used))}"
        rows.append(Row(GROWTH, axis, power, note=note))
    return rows


def _step(size: Size, quick: bool) -> Timing:
    """Seconds of a step of all models together."""
    steps = 4 if quick else _steps_for(size)
    run = together(size, steps)
    run()  # compiles
    return measure(run, 1 if quick else 3).times(1 / steps)


def _steps_for(size: Size) -> int:
    """Enough for a fraction of a second."""
    tokens = size.models * size.batch * size.context * max(1.0, size.dim * size.heads / 10)
    rate = 4e7 if jax.default_backend() == "cpu" else 2e10
    return int(np.clip(0.5 * rate / tokens, 20, 5000))


def paper_rows(noise_ratio: float, quick: bool = False) -> list[Row]:
    """The whole run with merged weights, labels integrated out and a batch that makes its
    gradients as noisy as those of 256 plain sequences, at the end of training.

    **Arguments:**

    - `noise_ratio`: how many times as much variance a plain gradient has.
    """
    steps, batch = (200 if quick else 500_000), max(2, round(256 / noise_ratio))
    size = Size(batch=batch)
    first = measure(integrated(size, 100), 1)
    whole = measure(integrated(size, steps), 1)
    bar = Bar(120) if jax.default_backend() == "cpu" and not quick else None
    note = (
        f"{steps} steps, merged weights, labels integrated out, batch {batch}: at the end of "
        "training as noisy as 256 plain sequences"
    )
    return [
        whole.row(PAPER, "the whole run", bar=bar, note=note),
        first.row(PAPER, "compiling, and 100 steps"),
    ]

"""The fused pass: how its cost grows, and the run of the paper by it."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from ..flows import Linear, adam, adam_rule, descend_ensemble, init_many
from ..models import FactoredAttention, MergedKQ
from ..risks import IntegratedRisk, SampledRisk
from ..tasks import isotropic
from ._row import Bar, Row, Timing, measure

GROWTH = "growth of the cost of a fused step, as a power of"
PAPER = "the paper's run: two heads, d = 5, L = 40, Adam, one seed"
STORED = "the same in a plain JAX scan"


class Size(NamedTuple):
    """One step to be timed; the defaults are where all axes of growth meet."""

    dim: int = 5
    heads: int = 2
    context: int = 40
    models: int = 4
    batch: int = 256


# Sizes along each axis, and the power that is predicted: a token takes d + 1 normals and, for each
# head, an exponential and some d products; tokens, sequences and models are independent.
AXES = {
    "dim": ((5, 10, 20, 40), "0.9: normals and products are d each, exponentials are not"),
    "heads": ((2, 4, 8, 16), "0.7: normals are shared by all heads"),
    "context": ((40, 80, 160), "1"),
    "models": ((4, 8, 16), "1"),
    "batch": ((256, 512, 1024), "1"),
}


def growth_rows(quick: bool = False) -> list[Row]:
    """Measured exponents beside the predicted ones."""
    rows = []
    for axis, (sizes, predicted) in AXES.items():
        used = sizes[:2] if quick else sizes
        seconds = [_step(Size()._replace(**{axis: size}), quick).median for size in used]
        power = float(np.polyfit(np.log(used), np.log(seconds), 1)[0])
        times = ", ".join(f"{1e6 * each:.3g}" for each in seconds)
        note = f"predicted {predicted}; {times} µs at {', '.join(map(str, used))}"
        rows.append(Row(GROWTH, axis, power, note=note))
    return rows


def _step(size: Size, quick: bool) -> Timing:
    """Seconds of a step of all models together."""
    keys = jr.split(jr.key(0), size.models)
    models = init_many(FactoredAttention.init, keys, dim=size.dim, heads=size.heads)
    risk = SampledRisk(isotropic(size.dim, size.context), size.batch, precision="float32")
    steps = 4 if quick else _steps_for(size)
    run = lambda: descend_ensemble(
        models, risk, adam_rule(1e-3), steps, keys=keys, save=Linear(2), progress=False
    )
    run()  # compiles
    return measure(run, 1 if quick else 3).times(1 / steps)


def _steps_for(size: Size) -> int:
    """Enough for a fraction of a second."""
    tokens = size.models * size.batch * size.context * max(1.0, size.dim * size.heads / 10)
    rate = 4e7 if jax.default_backend() == "cpu" else 2e10
    return int(np.clip(0.5 * rate / tokens, 20, 5000))


def paper_rows(noise_ratio: float, quick: bool = False) -> list[Row]:
    """The whole run, with labels integrated out and a batch that makes its gradients as noisy as
    those of 256 plain sequences.

    **Arguments:**

    - `noise_ratio`: how many times as much variance a plain gradient has.
    """
    steps, batch = (200 if quick else 500_000), max(2, round(256 / noise_ratio))
    model = MergedKQ.init(jr.key(0), 5, 2, 0.1, activation="softmax", self_attention=False)
    risk = IntegratedRisk(isotropic(5), batch, "float32")
    first = measure(_training(model, risk, 100), 1)
    whole = measure(_training(model, risk, steps), 1)
    bar = Bar(120) if jax.default_backend() == "cpu" and not quick else None
    note = f"{steps} steps, labels integrated out, batch {batch}: as noisy as 256 plain sequences"
    plain = SampledRisk(isotropic(5), 256, precision="float32")
    stored = eqx.tree_at(lambda risk: risk.white, plain, None)
    full = FactoredAttention.init(jr.key(0), 5, 2)
    few = 20 if quick else 2000
    rows = [
        whole.row(PAPER, "the whole run", bar=bar, note=note),
        first.row(PAPER, "compiling, and 100 steps"),
    ]
    timings = []
    for name, each in (("a plain step of 256 sequences", plain), (STORED, stored)):
        run = _training(full, each, few)
        run()
        timings.append(measure(run, 1 if quick else 3).times(1 / few))
        rows.append(timings[-1].row(PAPER, name, "µs"))
    return [*rows, timings[1].ratio_row(PAPER, f"{STORED} ÷ fused", timings[0])]


def _training(model, risk, steps: int) -> Callable[[], object]:
    return lambda: adam(model, risk, 1e-3, steps, key=jr.key(1), save=Linear(2), progress=False)

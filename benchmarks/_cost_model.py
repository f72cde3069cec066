"""What a run of a sweep costs, from a few measured sizes; and what a million would.

Seconds are linear in what is counted, with coefficients that cannot be negative: each is the price
of one thing, such as a product in a try of the solver.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

# Test sequences on which a kept point of a run with random steps is measured.
HELD_OUT = 16_384
MILLION = 1_000_000


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Seconds of a run on one worker (a core or a GPU): the sum of counts times `prices`."""

    prices: dict[str, float]

    def seconds(self, counts: Mapping[str, float]) -> float:
        return sum(price * counts[name] for name, price in self.prices.items())


def fit_cost(counts: Sequence[Mapping[str, float]], seconds: Sequence[float]) -> CostModel:
    """The prices with the least sum of squared relative errors.

    **Arguments:**

    - `counts`: of each measured size, what a run has how many of; all with the same names.
    - `seconds`: that a run of each size took.
    """
    from scipy.optimize import nnls

    names = list(counts[0]) if counts else []
    if len(counts) != len(seconds):
        raise ValueError(f"There are {len(counts)} sizes and {len(seconds)} times: give one each.")
    if len(counts) <= len(names):
        raise ValueError(
            f"`counts` holds {len(counts)} sizes: {len(names)} prices need at least "
            f"{len(names) + 1}, so that the fit can be wrong."
        )
    if not all(second > 0 for second in seconds):
        raise ValueError(f"`seconds` = {list(seconds)}: every time must be positive.")
    shares = np.asarray([[each[name] for name in names] for each in counts], float)
    shares /= np.asarray(seconds, float)[:, None]
    # Prices differ by many orders, and their columns must not.
    sizes = np.linalg.norm(shares, axis=0)
    sizes[sizes == 0] = 1.0
    prices, _ = nnls(shares / sizes, np.ones(len(seconds)))
    return CostModel(dict(zip(names, (prices / sizes).tolist())))


def flow_weights(dim: int, heads: int) -> int:
    """Weights of separate attention with heads of rank 1."""
    return heads * (2 * dim + 1)


def flow_counts(dim: int, heads: int, tries: float, points: float) -> dict[str, float]:
    """What a gradient flow of separate attention with the exact risk has how many of. The context
    length is a number in that risk, and no size."""
    weights = flow_weights(dim, heads)
    return {
        "run": 1.0,
        "try": tries,
        "weight of a try": tries * weights,
        "product of a try": tries * heads * dim**2,
        "kept number": points * (weights + 2),
    }


def adam_counts(
    dim: int, heads: int, context: int, batch: int, steps: int, points: float
) -> dict[str, float]:
    """What a run of Adam on sampled softmax attention has how many of."""
    numbers = (context + 1) * dim
    return {
        "run": 1.0,
        "step": float(steps),
        "number drawn": float(steps * batch * numbers),
        "product of a step": float(steps * batch * numbers * heads),
        "product of a kept point": float(points * HELD_OUT * numbers * heads),
    }


@dataclasses.dataclass(frozen=True)
class Overheads:
    """What a sweep costs beside its runs.

    **Fields:**

    - `row`: seconds that the driver spends on a row: reading the sweep, cutting batches, writing
      parts.
    - `join`: seconds a row to join the parts to one table.
    - `task`: seconds that the driver spends on a task of Ray; None if that is not known.
    - `compile`: seconds to compile one shape, on every worker.
    - `row_bytes`: a row in the table.
    """

    row: float
    join: float
    task: float | None
    compile: float
    row_bytes: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sweep would take.

    **Fields:**

    - `parts`: seconds of each part. Workers compute and compile at the same time; the driver takes
      in rows and tasks meanwhile; joining comes after all.
    """

    workers: int
    parts: dict[str, float]

    @property
    def seconds(self) -> float:
        parts = self.parts
        working = parts["computing"] + parts["compiling"]
        return max(working, parts["rows"] + parts["tasks"]) + parts["joining"]

    @property
    def bottleneck(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])


def million_runs(
    run: float, overheads: Overheads, workers: int, batch: int, runs: int = MILLION
) -> Estimate:
    """What a sweep of one shape would take on so many cores or GPUs.

    **Arguments:**

    - `run`: seconds of a run on one of them.
    - `batch`: runs in a batch. No more workers than batches have something to do.
    """
    batches = -(-runs // batch)
    # Whole batches: the last one to finish decides.
    turns = -(-batches // workers)
    return Estimate(
        workers,
        {
            "computing": turns * batch * run,
            "compiling": overheads.compile,
            "rows": runs * overheads.row,
            "tasks": batches * (overheads.task or 0.0),
            "joining": runs * overheads.join,
        },
    )

"""Claims of arXiv 2402.19442 on how good heads can be: a single one, and several."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ...theory import multitask
from .. import Checks, Lab, claim
from .runs import UNEQUAL_SIZES, unequal_task
from .runs_search import Found, block_tasks, closed_form, search

# Sizes of the blocks of random tasks.
_RANDOM_SIZES = ((4, 6, 10), (2, 20), (3, 5, 8, 12))
_STARTS = 4


@claim(
    "multitask/single-head-optimum",
    """The best single head for all tasks has scores of variance 1, shared out among the tasks by
    water-filling; tasks that are too weak are left out.""",
    source="Theorem 3",
    tier="smoke",
    tolerance_reason="""Searches end where steps improve the loss by less than rounding does; the
    shares of a flat minimum are known to the root of that.""",
)
def single_head_optimum(lab: Lab) -> Checks:
    """Loss, shares and score variance of searched heads on random tasks."""
    count = lab.scaled(3, 5, 67)
    families = _RANDOM_SIZES[: lab.scaled(1, 3, 3)]
    lab.note(sizes=families, tasks=count * len(families), starts=_STARTS, risk="large context")
    found, predicted = [], []
    for sizes in families:
        tasks = _random_tasks(sizes, count)
        found.append(lab.compute(_best_single, tasks))
        predicted.append([multitask.single_head(task) for task in tasks])
    scores = [f.omega[:, 0] ** 2 * np.asarray(s) for f, s in zip(found, families)]
    variances = np.concatenate([each.sum(1) for each in scores])
    measured = np.concatenate([(s / s.sum(1, keepdims=True)).ravel() for s in scores])
    shares = np.e * np.concatenate([solution.shares for each in predicted for solution in each])
    losses = np.array([solution.loss for each in predicted for solution in each])
    left_out = shares == 0
    yield lab.relative("loss", losses, np.concatenate([f.losses for f in found]), 1e-8)
    yield lab.close("score variance", np.ones(len(variances)), variances, 1e-5)
    yield lab.close("share of each task in it", shares, measured, 1e-5)
    yield lab.equal("tasks left out", left_out, measured < 1e-6)


def _random_tasks(sizes, count: int) -> list:
    """Tasks with random signals, noises and lengths; the first has a task that is too weak."""
    rng, many = np.random.default_rng(len(sizes)), len(sizes)
    weak = np.where(np.arange(many) == 1, 0.02, 1.0)
    drawn = [block_tasks(sizes, 50, weak.tolist(), 0.5)]
    for _ in range(count - 1):
        signal, noise = 10 ** rng.uniform(-1.3, 0.3, many), rng.uniform(0, 2, many)
        length = int(rng.integers(10, 300))
        drawn.append(block_tasks(sizes, length, signal.tolist(), noise.tolist()))
    return drawn


def _best_single(tasks) -> Found:
    sizes = np.array([len(block) for block in tasks[0].coordinates])
    starts = np.random.default_rng(1).normal(size=(len(tasks) * _STARTS, len(sizes))) / sizes**0.5
    found = search([closed_form(task) for task in tasks], starts, lambda x: x[None])
    return found.best(len(tasks))


@claim(
    "multitask/lower-bound",
    """No equiangular heads have a loss below that of shares with the sum min(H − 1, I), and small
    heads around their mean attain it.""",
    source="Theorem 4 and Definition 2; that it is attained is derived in docs/theory/multitask.md",
    tolerance_reason="""The bound is approached as scores vanish, and searches stop at steps that
    improve by 1e-8, or where terms that cancel are 10⁷ times the loss, of which rounding may then
    take 1e-8: 1e-4, and 1e-7 below.""",
)
def lower_bound(lab: Lab) -> Checks:
    """Searches among equiangular heads, H = 2, 3 and 4, from random starts on unequal tasks."""
    heads = (2, 3, 4)
    bounds, found = _search_below_bounds(lab, _equiangular, heads)
    near = [float(np.mean(f.losses < bound * 1.0001)) for f, bound in zip(found, bounds)]
    yield from _check_bounds(lab, bounds, found)
    yield lab.at_least("share of starts that end within 1e-4", np.full(3, 0.9), near)


def _search_below_bounds(
    lab: Lab, find: Callable[[int, int], Found], heads: tuple[int, ...]
) -> tuple[np.ndarray, list[Found]]:
    """The bounds for these numbers of heads on unequal tasks, and the results of searches."""
    task, count = unequal_task(), lab.scaled(24, 64, 1000)
    lab.note(sizes=UNEQUAL_SIZES, heads=heads, starts=count, risk="large context")
    bounds = np.array([multitask.lower_bound(task, each).loss for each in heads])
    return bounds, [lab.compute(find, each, count) for each in heads]


def _check_bounds(lab: Lab, bounds: np.ndarray, found: list[Found]) -> Checks:
    least = np.array([f.losses.min() for f in found])
    yield lab.at_least("smallest loss, not below", bounds, least, tolerance=1e-7)
    yield lab.relative("smallest loss", bounds, least, 1e-4)


def _equiangular(heads: int, count: int) -> Found:
    """The best equiangular heads: a common part, and the corners of a simplex around it."""
    tasks = len(UNEQUAL_SIZES)
    corners = np.linalg.qr(np.eye(heads) - 1 / heads)[0][:, : heads - 1]
    middle = np.full((heads, 1), heads**-0.5) if heads <= tasks else np.zeros((heads, 0))

    def shape(x):
        # Rows that are orthonormal; sizes of the two parts; scores of one size on every block.
        rows = jnp.linalg.qr(x[2:].reshape(tasks, tasks))[0]
        parts = jnp.concatenate([x[0] * corners, x[1] * middle], 1)
        return parts @ rows[: parts.shape[1]] / np.sqrt(UNEQUAL_SIZES)

    starts = np.random.default_rng(heads).normal(size=(count, 2 + tasks**2))
    return search([closed_form(unequal_task())], starts, shape, gain=1e-8)


@claim(
    "multitask/lower-bound-all-heads",
    """Heads that are not equiangular are not below the bound either, from any start that was tried,
    and attain it; from I + 1 heads on further heads do not help.""",
    source="Theorem 4, beyond its condition: a search, no proof",
    tolerance_reason="As for `multitask/lower-bound`.",
)
def lower_bound_all_heads(lab: Lab) -> Checks:
    """Searches among all heads, H = 2 to 5, from random starts on three unequal tasks."""
    bounds, found = _search_below_bounds(lab, _any_heads, (2, 3, 4, 5))
    least = np.array([f.losses.min() for f in found])
    lab.note(smallest_over_bound=least / bounds - 1)
    yield from _check_bounds(lab, bounds, found)
    # Entry i compares i + 2 heads with i + 3.
    better = np.flatnonzero(least[:-1] > 1.001 * least[1:]) + 3
    yield lab.equal("the last head that helps", 4, int(better.max()))


def _any_heads(heads: int, count: int) -> Found:
    """The best heads of any kind on unequal tasks."""
    tasks = len(UNEQUAL_SIZES)
    starts = 0.5 * np.random.default_rng(heads).normal(size=(count, heads * tasks))
    starts = starts / np.sqrt(np.tile(UNEQUAL_SIZES, heads))
    shape = lambda x: x.reshape(heads, tasks)
    return search([closed_form(unequal_task())], starts, shape, gain=1e-8)

"""Claims of arXiv 2402.19442 that compare heads with ridge regression and Bayes."""

import numpy as np

from ...analysis import Sampled
from ...theory import multitask
from .. import Checks, Lab, claim, once
from .._sampling import Inputs, Weights, drawn_losses, ridge
from .runs_search import (
    SIZE,
    closed_form,
    free_heads,
    risks_along,
    search,
    search_free,
    search_groups,
    unit_blocks,
    unit_tasks,
)

# The context length of the estimators, and d/L; signal and noise have variance 1 on each task.
_LENGTH = 50
_RATIOS = (0.1, 0.5, 1.0, 2.0, 4.0)
_WEAK, _STRONG = 0.05, 5.0
_TASKS = 10
# d, L and noise of the comparisons with Bayes: two long contexts first, a short one last.
_GAPS = (
    (4, 1000, 1.0), (4, 1000, 2.0), *((round(r * _LENGTH), _LENGTH, 1.0) for r in _RATIOS),
    (500, 5, 1.0),
)  # fmt: skip
_CURVES = ("Bayes", "strong ridge", "own heads", "one head", "weak ridge")


def _note(lab: Lab, **more) -> None:
    lab.note(
        signal=1.0, noise=1.0, ratios=_RATIOS, context=_LENGTH, contexts=_count(lab),
        penalties=(_WEAK, _STRONG), tasks=_TASKS, **more,
    )  # fmt: skip


def _count(lab: Lab) -> int:
    return lab.scaled(500, 1000, 4000)


@once
def _curves(lab: Lab) -> dict[str, np.ndarray]:
    """Losses per task over d/L: estimators sampled at finite L, heads by search."""
    drawn = [_draw_losses(lab, round(r * _LENGTH)) for r in _RATIOS]
    found = _head_curves()
    for name in drawn[0]:
        values, errors = np.array([Sampled.of(each[name]) for each in drawn]).T
        found |= {name: values, f"{name} ±": errors}
    return found


def _draw_losses(lab: Lab, dim: int) -> dict[str, np.ndarray]:
    """Losses of ridge with a penalty for each sample, and of Bayes, beyond the query's noise."""
    estimators = {
        "weak ridge": _ridge(_WEAK * _LENGTH),
        "strong ridge": _ridge(_STRONG * _LENGTH),
        "Bayes": _ridge(float(dim)),
    }
    losses = drawn_losses(estimators, dim, _LENGTH, 1.0, _count(lab))
    return {name: each - 1.0 for name, each in losses.items()}


def _ridge(penalty: float) -> Weights:
    """Ridge regression, through the Gram matrix of coordinates or of samples: the smaller one."""

    def weights(inputs: Inputs) -> np.ndarray:
        x, q = inputs
        if x.shape[2] <= x.shape[1]:
            return ridge(penalty)(inputs)
        gram = x @ x.swapaxes(1, 2) + penalty * np.eye(x.shape[1])
        return np.linalg.solve(gram, x @ q[..., None])[..., 0]

    return weights


def _head_curves() -> dict[str, np.ndarray]:
    """The best heads on ten equal tasks by the closed form, which depends on d/L alone."""
    risks = risks_along(_TASKS, _RATIOS, noise=1.0)
    find = lambda heads: search_groups(risks, _TASKS, heads) / _TASKS
    return {"one head": find(1), "own heads": find(_TASKS)}


def _ratio_blocks(ratio: float, tasks: int = 1) -> multitask.Blocks:
    return unit_blocks(round(ratio * _LENGTH), _LENGTH, tasks, noise=1.0)


def _predict_curves() -> dict[str, np.ndarray]:
    """All five curves by theory."""
    over = lambda loss: np.array([float(np.sum(loss(_ratio_blocks(ratio)))) for ratio in _RATIOS])
    single = [multitask.single_head(_ratio_blocks(r, _TASKS)).loss / _TASKS for r in _RATIOS]
    return {
        "weak ridge": over(lambda b: multitask.ridge(b, _WEAK, "per sample")),
        "strong ridge": over(lambda b: multitask.ridge(b, _STRONG, "per sample")),
        "Bayes": over(multitask.bayes),
        "own heads": over(lambda b: multitask.gradient_flow_limit(b).losses),
        "one head": np.array(single),
    }


@claim(
    "multitask/estimators",
    """With signal and noise of variance 1 on each task and the penalty counted for each sample, one
    head a task comes to within 0.12 of ridge regression with penalty 5 from d = L on. From each d/L
    to the next, from 0.1 to 4, its loss rises, while that of penalty 0.05 has its peak at d = L. No
    curve is below Bayes, and the single head is above one head per task, at all of them.""",
    source="Figure 5, with conventions that it does not state",
    tolerance_reason="""Estimators are drawn, with labels averaged over by hand: four standard
    errors. Losses of heads are minima of a closed form, found to rounding, and so are their rises.
    0.12 of the signal is what passes as similar in a figure; by theory 0.097 at d = 2L is the
    most.""",
)
def estimators(lab: Lab) -> Checks:
    """All five curves, where they rise and fall, and their order at d = L and at d = 4L."""
    found, expected = _curves(lab), _predict_curves()
    _note(lab, curves={name: np.round(found[name], 4) for name in _CURVES})
    pick = lambda curves, *names: np.array([curves[name] for name in names])
    drawn, heads = ("weak ridge", "strong ridge", "Bayes"), ("own heads", "one head")
    errors = pick(found, *(f"{name} ±" for name in drawn))
    name = "losses of ridge and Bayes"
    yield lab.sampled(name, pick(expected, *drawn), pick(found, *drawn), errors)
    name = "losses of one head per task, and of one head"
    yield lab.relative(name, pick(expected, *heads), pick(found, *heads), 1e-9)
    wide = np.array(_RATIOS) >= 1
    apart = np.abs(found["own heads"] - found["strong ridge"])[wide].max()
    yield lab.at_most("one head per task beside ridge 5, d ≥ L", 0.12, float(apart))
    measured = _peak(found["weak ridge"])
    yield lab.close("d/L at the peak of ridge 0.05", _peak(expected["weak ridge"]), measured, 0.0)
    name = "peak of ridge 0.05, above the loss of predicting zero"
    yield lab.at_least(name, 1.0, float(found["weak ridge"].max()))
    rises = np.diff(found["own heads"])
    yield lab.relative("rises of one head per task", np.diff(expected["own heads"]), rises, 1e-8)
    yield lab.equal("whether it rises", np.ones(len(rises), bool), rises > 0)
    order, predicted = ([_order(c, ratio) for ratio in (1.0, 4.0)] for c in (found, expected))
    # The nearest wrong order swaps the first two.
    wrong = [[each[1], each[0], *each[2:]] for each in predicted]
    yield lab.equal("order at d = L and d = 4L", predicted, order, wrong=wrong)
    least = min(np.min(found[name] - found["Bayes"]) for name in _CURVES[1:])
    yield lab.at_least("least distance of any curve from Bayes", 0.0, least)
    name = "least distance of the single head from one head per task"
    yield lab.at_least(name, 0.0, np.min(found["one head"] - found["own heads"]))


def _order(curves: dict[str, np.ndarray], ratio: float) -> list[str]:
    """Names from the smallest loss to the largest."""
    return sorted(_CURVES, key=lambda name: curves[name][_RATIOS.index(ratio)])


def _peak(curve: np.ndarray) -> float:
    return _RATIOS[int(np.argmax(curve))]


@claim(
    "multitask/estimators-other-convention",
    """With signal and noise of variance 1 on each coordinate and the penalty counted once, one head
    a task behaves as ridge regression with penalty 5 does for d ≥ L.""",
    source="Figure 5, with λ = σ² = 1 taken as the variance of a coefficient, as in Figure 4",
    tolerance_reason="""0.12 of the signal, as for `multitask/estimators`. The losses are drawn to 2
    % of themselves.""",
    corrected_by="multitask/estimators",
    undecided="the figure names neither the convention of λ nor that of the penalty",
)
def other_convention(lab: Lab) -> Checks:
    """The distance of the two, in units of the signal, at d = L and d = 2L."""
    ratios = (1.0, 2.0)

    def loss(ratio: float) -> float:
        dim = round(ratio * _LENGTH)
        estimator = {"ridge": _ridge(_STRONG)}
        losses = drawn_losses(estimator, dim, _LENGTH, 1 / dim, _count(lab))["ridge"]
        return (losses - 1 / dim).mean()

    ridges = lab.compute(lambda: np.array([loss(ratio) for ratio in ratios]))
    risks = risks_along(1, ratios, noise=1 / SIZE)
    start = np.full((2, 1), 0.5) / SIZE**0.5
    heads = lab.compute(lambda: search(risks, start, lambda x: x[None]).losses)
    lab.note(signal="1 a coordinate", noise=1.0, penalty=_STRONG, ratios=ratios, ridge=ridges,
             one_head_a_task=heads, contexts=_count(lab))  # fmt: skip
    yield lab.close("one head per task − ridge 5", np.zeros(2), heads - ridges, 0.12, scale=1.0)


@claim(
    "multitask/bayes-gap",
    """The bound for two heads and for three on two tasks is above the Bayes risk at d/L from 0.004
    to 4. For L ≫ d three heads, I + 1, pay φ/(φ − 1) times the Bayes risk, twice with noise as
    large as the signal and 1.5 times with noise twice as large; two heads, (H − 1)/I = ½, twice as
    much. For L ≪ d nothing is lost: at d/L = 100 less than 1 %.""",
    source="""Figure 4, with noise as large as the signal of a task; the factors are derived in
    docs/theory/multitask.md""",
    tolerance_reason="""The Bayes risk is drawn: four standard errors, each up to 2 % of it.
    Searches leave 1e-6 of the bound. At d/L = 0.004 the limit is left by 2 %: with two standard
    errors 6 %.""",
)
def bayes_gap(lab: Lab) -> Checks:
    """Losses of 2 and 3 searched heads on two tasks over the Bayes risk, beside theory's ratio."""
    heads = (2, 3)
    found = lab.compute(lambda: np.array([_bound_curve(h) for h in heads]))
    drawn = lab.compute(lambda: np.array([Sampled.of(_drawn_bayes(lab, *at)) for at in _GAPS]))
    bayes, error = drawn.T
    exact = [multitask.bayes(unit_blocks(d, n, noise=noise))[0] for d, n, noise in _GAPS]
    settings = [unit_blocks(d, n, 2, noise) for d, n, noise in _GAPS]
    bounds = [[multitask.lower_bound(at, h).loss / 2 for at in settings] for h in heads]
    ratio = found / bayes
    # φ/(φ − 1) is one over the share of noise in the variance of a label.
    limits = np.array([[2.0], [1.0]]) * np.array([1 + 1 / noise for _, _, noise in _GAPS[:2]])
    lab.note(settings=_GAPS, heads=heads, tasks=2, contexts=_count(lab),
             ratios_to_bayes=np.round(ratio, 4))  # fmt: skip
    yield lab.sampled("bound / Bayes risk", np.array(bounds) / exact, ratio, ratio * error / bayes)
    yield lab.at_least("least ratio up to d/L = 4", 1.0, ratio[:, :-1].min())
    name = "limit of long contexts, by heads and noise"
    yield lab.relative(name, limits, ratio[:, :2], 0.06)
    yield lab.close("ratio at d/L = 100", np.ones(2), ratio[:, -1], 0.01)


@claim(
    "multitask/bayes-gap-ten-tasks",
    """On ten tasks, with λ = σ² = 1 meant for each task or for each coordinate, the bound falls
    with the number of heads up to I + 1 = 11, and is above the Bayes risk at every d/L. How far
    above depends on the reading: with 1 a coordinate the noise is a small share of a label, and
    Bayes gains by it what no heads do.""",
    source="Figure 4: I = 10, λ = σ² = 1, several H and d/L; the convention of λ is not stated",
    tolerance_reason="""Heads that approach the bound are 1e-4 above it, and the Bayes risk is
    drawn: four standard errors.""",
)
def bayes_gap_ten(lab: Lab) -> Checks:
    """Losses of small heads near the bound over the drawn Bayes risk, under both readings."""
    heads, sizes = (2, 6, 11), (5, 25, 50, 100)
    lab.note(tasks=_TASKS, heads=heads, context=_LENGTH, sizes=sizes, contexts=_count(lab))
    for reading in ("task", "coordinate"):
        # Noise for a signal of variance 1: where a coordinate has 1, a task has d.
        noises = [1.0 if reading == "task" else 1 / size for size in sizes]
        at = [unit_blocks(d, _LENGTH, _TASKS, noise) for d, noise in zip(sizes, noises)]
        found = np.array([[_near_bound(each, h) for each in at] for h in heads])
        drawn = [Sampled.of(_drawn_bayes(lab, d, _LENGTH, s)) for d, s in zip(sizes, noises)]
        bayes, error = np.array(drawn).T
        exact = np.array([multitask.bayes(each)[0] for each in at])
        bounds = np.array([[multitask.lower_bound(b, h).loss / _TASKS for b in at] for h in heads])
        lab.note(**{f"bound_over_bayes_by_{reading}": np.round(found / bayes, 3)})
        name = f"bound over Bayes, λ for each {reading}"
        yield lab.relative(f"bound, λ for each {reading}", bounds, found, 1e-3)
        yield lab.sampled(name, bounds / exact, found / bayes, found / bayes * error / bayes)
        above, falls = bool(np.all(found > bayes)), bool(np.all(np.diff(found, axis=0) < 0))
        yield lab.equal(f"whether it is above Bayes everywhere, {reading}", True, above)
        yield lab.equal(f"whether more heads have a lower bound, {reading}", True, falls)


def _near_bound(blocks: multitask.Blocks, heads: int) -> float:
    """The closed-form risk of heads that approach the bound, a task, by the library's risk."""
    omega = multitask.approach(blocks, heads)
    size, length = int(blocks.sizes[0]), int(blocks.length)
    task = unit_tasks((size,) * blocks.count, length, float(blocks.noise[0]))
    model = free_heads(omega, multitask.best_mu(blocks, omega), task.coordinates)
    return float(closed_form(task)(model)) / blocks.count


def _drawn_bayes(lab: Lab, dim: int, length: int, noise: float) -> np.ndarray:
    """Losses of Bayes beyond the query's noise."""
    estimator = {"Bayes": _ridge(noise * dim)}
    return drawn_losses(estimator, dim, length, noise, _count(lab))["Bayes"] - noise


def _bound_curve(heads: int) -> np.ndarray:
    """The smallest loss of H free heads on two tasks in each of the settings, for each task."""
    risks = [
        closed_form(unit_tasks((SIZE, SIZE), 1, noise)).at_length(SIZE * n / d)
        for d, n, noise in _GAPS
    ]
    return search_free(risks, 2, heads) / 2

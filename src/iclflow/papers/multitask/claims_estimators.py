"""Claims of arXiv 2402.19442 that compare heads with ridge regression and Bayes."""

import numpy as np

from ...theory import multitask
from .. import Checks, Lab, claim, once
from ..softmax.runs_sampling import Inputs, Sampled, Weights, drawn_losses, ridge
from .runs_search import closed_form, search, unit_tasks

# Contexts of the estimators, and d/L; signal and noise have the variance 1 on each task.
_LENGTH = 50
_RATIOS = (0.1, 0.5, 1.0, 2.0, 4.0)
_WEAK, _STRONG = 0.05, 5.0
_TASKS, _SIZE = 10, 100
# d, L and the noise of comparisons with Bayes: two of long contexts first, a short one at last.
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
    """Losses over d/L, one task's share: estimators drawn at finite L, heads by search."""
    drawn = [_draw_losses(lab, round(r * _LENGTH)) for r in _RATIOS]
    found = {name: np.array([each[name].mean() for each in drawn]) for name in drawn[0]}
    found |= {f"{name} ±": _errors(drawn, name) for name in drawn[0]}
    return found | _head_curves()


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
    """Ridge regression, through the products of coordinates or of samples: the fewer of them."""

    def weights(inputs: Inputs) -> np.ndarray:
        x, q = inputs
        if x.shape[2] <= x.shape[1]:
            return ridge(penalty)(inputs)
        gram = x @ x.swapaxes(1, 2) + penalty * np.eye(x.shape[1])
        return np.linalg.solve(gram, x @ q[..., None])[..., 0]

    return weights


def _errors(drawn: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.array([Sampled.of(each[name]).standard_error for each in drawn])


def _head_curves() -> dict[str, np.ndarray]:
    """The best heads on ten equal tasks by the closed form, which depends on d/L alone."""
    risk = closed_form(unit_tasks((_SIZE,) * _TASKS, 1, 1.0))
    risks = [risk.at_length(_SIZE / ratio) for ratio in _RATIOS]
    starts = np.random.default_rng(0).uniform(0.3, 1.2, (len(risks), _TASKS)) / _SIZE**0.5
    own = np.eye(_TASKS, dtype=bool)
    single = search(risks, starts, lambda x: x[None])
    each = search(risks, starts, lambda x: x * own, own)
    return {"one head": single.losses / _TASKS, "own heads": each.losses / _TASKS}


def _ratio_blocks(ratio: float, tasks: int = 1) -> multitask.Blocks:
    return _unit_blocks(round(ratio * _LENGTH), _LENGTH, tasks)


def _unit_blocks(size: int, length: int, tasks: int = 1, noise: float = 1.0) -> multitask.Blocks:
    """Tasks with signals of variance 1 each."""
    every = np.ones(tasks)
    return multitask.Blocks(size * every, every / size, noise * every, float(length))


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
    curve is below Bayes, and the single head is above one head a task, at all of them.""",
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
    names = ("weak ridge", "strong ridge", "Bayes")
    errors = np.array([found[f"{name} ±"] for name in names])
    wide = np.array(_RATIOS) >= 1
    apart = np.abs(found["own heads"] - found["strong ridge"])[wide].max()
    rising = np.ones(len(_RATIOS) - 1, bool)
    order = [_order(found, ratio) for ratio in (1.0, 4.0)]
    predicted = [_order(expected, ratio) for ratio in (1.0, 4.0)]
    yield lab.sampled(
        "losses of ridge and Bayes",
        np.array([expected[n] for n in names]),
        np.array([found[n] for n in names]),
        errors,
    )
    yield lab.relative(
        "losses of one head a task, and of one head",
        np.array([expected["own heads"], expected["one head"]]),
        np.array([found["own heads"], found["one head"]]),
        1e-9,
    )
    yield lab.at_most("one head a task beside ridge 5, d ≥ L", 0.12, apart, wrong=0.05)
    measured = _peak(found["weak ridge"])
    yield lab.close("d/L at the peak of ridge 0.05", _peak(expected["weak ridge"]), measured, 0.0)
    yield lab.at_least(
        "peak of ridge 0.05, above that of predicting zero",
        1.0,
        found["weak ridge"].max(),
        wrong=3.0,
    )
    measured = np.diff(found["own heads"])
    yield lab.relative("rises of one head a task", np.diff(expected["own heads"]), measured, 1e-8)
    yield lab.equal("whether it rises", rising, np.diff(found["own heads"]) > 0)
    yield lab.equal(
        "order at d = L and d = 4L", predicted, order, wrong=[each[::-1] for each in predicted]
    )
    measured = min(np.min(found[name] - found["Bayes"]) for name in _CURVES[1:])
    yield lab.at_least("least distance of any curve from Bayes", 0.0, measured, wrong=1.0)
    yield lab.at_least(
        "least distance of the single head from one head a task",
        0.0,
        np.min(found["one head"] - found["own heads"]),
        wrong=1.0,
    )


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
)
def other_convention(lab: Lab) -> Checks:
    """The distance of the two, in units of the signal, at d = L and d = 2L."""
    ratios = (1.0, 2.0)

    def compute() -> np.ndarray:
        dims = [round(ratio * _LENGTH) for ratio in ratios]
        losses = [
            drawn_losses({"ridge": _ridge(_STRONG)}, d, _LENGTH, 1 / d, _count(lab))["ridge"]
            - 1 / d
            for d in dims
        ]
        return np.array([each.mean() for each in losses])

    ridges = lab.compute(compute)
    risk = closed_form(unit_tasks((_SIZE,), 1, 1 / _SIZE))
    risks = [risk.at_length(_SIZE / ratio) for ratio in ratios]
    heads = lab.compute(
        lambda: search(risks, np.full((2, 1), 0.5) / _SIZE**0.5, lambda x: x[None]).losses
    )
    lab.note(signal="1 a coordinate", noise=1.0, penalty=_STRONG, ratios=ratios, ridge=ridges,
             one_head_a_task=heads, contexts=_count(lab))  # fmt: skip
    yield lab.close("one head a task − ridge 5", np.zeros(2), heads - ridges, 0.12)


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
    exact = [multitask.bayes(_unit_blocks(d, n, noise=noise))[0] for d, n, noise in _GAPS]
    settings = [_unit_blocks(d, n, 2, noise) for d, n, noise in _GAPS]
    bounds = [[multitask.lower_bound(at, h).loss / 2 for at in settings] for h in heads]
    ratio = found / bayes
    # φ/(φ − 1) is one over the share of noise in the variance of a label.
    limits = np.array([[2.0], [1.0]]) * np.array([1 + 1 / noise for _, _, noise in _GAPS[:2]])
    lab.note(settings=_GAPS, heads=heads, tasks=2, contexts=_count(lab),
             ratios_to_bayes=np.round(ratio, 4))  # fmt: skip
    yield lab.sampled("bound / Bayes risk", np.array(bounds) / exact, ratio, ratio * error / bayes)
    yield lab.at_least("least ratio up to d/L = 4", 1.0, ratio[:, :-1].min(), wrong=1.1)
    yield lab.relative(
        "limit of long contexts, by heads and noise", limits, ratio[:, :2], 0.06, wrong=1.1 * limits
    )
    yield lab.close("ratio at d/L = 100", np.ones(2), ratio[:, -1], 0.01)


def _drawn_bayes(lab: Lab, dim: int, length: int, noise: float) -> np.ndarray:
    """Losses of Bayes beyond the query's noise."""
    estimator = {"Bayes": _ridge(noise * dim)}
    return drawn_losses(estimator, dim, length, noise, _count(lab))["Bayes"] - noise


def _bound_curve(heads: int) -> np.ndarray:
    """The smallest loss of H free heads on two tasks in each of the settings, for each task."""
    risks = [
        closed_form(unit_tasks((_SIZE, _SIZE), 1, noise)).at_length(_SIZE * n / d)
        for d, n, noise in _GAPS
    ]
    starts = np.random.default_rng(0).normal(size=(4 * len(risks), 2 * heads)) / _SIZE**0.5
    shape = lambda x: 0.5 * x.reshape(heads, 2)
    return search(risks, starts, shape, gain=1e-8).best(len(risks)).losses / 2

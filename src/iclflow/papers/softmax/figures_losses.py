"""Figures of arXiv 2503.12734: losses of heads and of estimators against the context length."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ... import theory
from ...drawing import Axes, Drawing
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above, smooth_curve
from ...risks import ExactSoftmaxRisk, exact_softmax_risk
from ...tasks import LinearRegression, isotropic
from .. import Lab, figure
from .runs import DIM, NOISE, SIGNS, paper_task, structured_heads
from .runs_exact import best_linear, linear_lengths, one_head_loss, pair_loss

_CIRCLES = {"ls": "none", "marker": "o", "ms": 4.5, "mfc": "none"}
_RISK = {"risk": "exact, eight digits"}
# Colour, width and dashes. Pair, debiased GD and GD all but coincide: the lower ones are wider, the
# upper ones dashed.
_LOOKS: dict[str, tuple[str, float, Any]] = {
    "one head": (COLOURS[0], 1.6, "-"),
    "pair": (COLOURS[1], 1.6, (0, (3, 3))),
    "debiased GD": (COLOURS[2], 2.0, "-"),
    "GD = linear attention": (COLOURS[5], 4.0, "-"),
    "any heads, bound": (COLOURS[4], 1.6, "-"),
    "Bayes": ("0.25", 1.6, "-."),
}


@figure(
    "softmax/estimators",
    "Softmax attention among estimators",
    """Loss (a) and its excess over the noise (b) against the context length: the best
    single head, the best pair, one step of debiased and of plain gradient descent, the bound
    for any number of heads, and the Bayes predictor. Lines are theory, circles the exact
    risk, by quadrature, of models with the weights that theory calls best. Pair, debiased and
    plain gradient descent all but coincide.""",
)
def estimators(lab: Lab) -> Drawing:
    """Losses of estimators and of the best heads against the context length."""
    lengths = np.unique(np.geomspace(8, 1000, lab.scaled(6, 9, 40)).astype(int))
    # Formulas are cheap. The two optima take seconds each: their curves are interpolated.
    fine = np.unique(np.geomspace(8, 1000, 80).astype(int))
    heads = [theory.one_head_optimum(paper_task(int(n))) for n in lengths]
    pairs = [theory.pair_optimum(paper_task(int(n))) for n in lengths]

    def between(losses: list[float]) -> np.ndarray:
        return NOISE + smooth_curve(lengths, np.asarray(losses) - NOISE, fine)

    def at_all(loss: Callable[[LinearRegression], float]) -> np.ndarray:
        return np.asarray([loss(paper_task(int(n))) for n in fine])

    curves = {
        "one head": between([each.loss for each in heads]),
        "pair": between([each.loss for each in pairs]),
        "debiased GD": at_all(lambda task: theory.debiased_optimum(task).risk),
        "GD = linear attention": at_all(lambda task: theory.gradient_step_optimum(task).risk),
        "any heads, bound": at_all(theory.any_heads_bound),
        "Bayes": at_all(theory.bayes_risk_isotropic),
    }
    measured = {
        "one head": [one_head_loss(h.omega, h.mu, n) for h, n in zip(heads, lengths)],
        "pair": [pair_loss(p.w, p.mu, n) for p, n in zip(pairs, lengths)],
    }
    figure, (a, b) = canvas("double", 3.0, 1, 2)
    for panel, subtract in ((a, 0.0), (b, NOISE)):
        for name, values in curves.items():
            colour, width, dashes = _LOOKS[name]
            panel.plot(fine, values - subtract, color=colour, lw=width, ls=dashes, label=name,
                       zorder=3 - width / 4)  # fmt: skip
        for name, values in measured.items():
            panel.plot(lengths, np.asarray(values) - subtract, color=_LOOKS[name][0], zorder=4,
                       **_CIRCLES)  # fmt: skip
    a.axhline(NOISE, label="noise σ²", **LEVEL)
    _name_both(a)
    a.set(xscale="log", xlabel="context length L", ylabel="loss", ylim=(0, None))
    b.set(xscale="log", yscale="log", xlabel="context length L", ylabel="loss − σ²")
    legend_above(figure, a, columns=5)
    settings = {"dim": DIM, "noise": NOISE, "lengths": lengths.tolist()} | _RISK
    return Drawing(figure, _collect(fine, curves, lengths, measured), settings)


@figure(
    "softmax/context",
    "Longer contexts at test time",
    """Optimal models for d = 10, L = 20, tested at other context lengths: the softmax pair,
    the single softmax head, linear attention divided by the length of the test, the same as a
    plain sum, and linear attention retrained at each length. Lines are theory, circles the
    exact risk of the models. Softmax heads go on improving towards σ² + (1 − Σμω)² (dashed);
    the plain sum is right at its own length alone, and diverges.""",
)
def context(lab: Lab) -> Drawing:
    """Trained at one context length, tested at others."""
    dim, trained_at = 10, 20
    lengths = np.unique(np.geomspace(10, 10_000, lab.scaled(6, 10, 40)).astype(int))
    fine = np.geomspace(10, 10_000, 120)
    task = isotropic(dim, trained_at, NOISE)
    best, single = theory.pair_optimum(task), theory.one_head_optimum(task)
    heads = {
        "softmax pair": (best.w * SIGNS, best.mu * SIGNS),
        "one softmax head": (np.array([single.omega]), np.array([single.mu])),
    }
    exact = exact_softmax_risk(task, digits=8)
    measured = {
        name: np.asarray(
            [_loss(exact.at_length(n), structured_heads(omega, mu, dim)) for n in lengths]
        )
        for name, (omega, mu) in heads.items()
    }
    linear = best_linear(dim, trained_at)
    names = {True: "linear, divided by L′", False: "linear, plain sum"}
    for divided, name in names.items():
        measured[name] = linear_lengths(linear, trained_at, divided, lengths.tolist())
    pairs = [theory.pair_loss(isotropic(dim, n, NOISE), best.w, best.mu) for n in lengths]
    between = [theory.Setting(dim, n, NOISE) for n in fine]  # lengths that are not whole
    transfers = [theory.length_transfer(task, n) for n in fine]
    curves = {
        "softmax pair": smooth_curve(lengths, np.asarray(pairs), fine),
        "one softmax head": np.asarray(
            [theory.kernel_regression_risk(at, single.omega, single.mu) for at in between]
        ),
        names[True]: np.asarray([each.step for each in transfers]),
        names[False]: np.asarray([each.unnormalised for each in transfers]),
        "linear, retrained at L′": np.asarray([each.retrained for each in transfers]),
    }
    limits = [theory.infinite_length_loss(task, omega, mu) for omega, mu in heads.values()]
    figure, (panel,) = canvas("double", 3.0)
    for i, (name, values) in enumerate(curves.items()):
        panel.plot(fine, values, color=COLOURS[i], lw=1.5, label=name)
        if name in measured:
            panel.plot(lengths, measured[name], color=COLOURS[i], **_CIRCLES)
    _name_both(panel)
    for i, value in enumerate(limits):
        panel.axhline(value, color=COLOURS[i], lw=1.0, ls=(0, (4, 2.2)), zorder=1)
    panel.plot([], [], color="0.4", lw=1.0, ls=(0, (4, 2.2)), label="limit σ² + (1 − Σμω)²")
    panel.axhline(NOISE, label="noise σ²", **LEVEL)
    panel.axvline(trained_at, color="0.6", lw=0.8, ls="-.", label="L in training")
    panel.set(xscale="log", yscale="log", xlabel="context length in the test L′", ylabel="loss")
    panel.set(xlim=(9, 12_000), ylim=(0.08, 5))
    legend_above(figure, panel, columns=1, loc="outside right upper")
    data = _collect(fine, curves, lengths, measured) | {"limits": np.asarray(limits)}
    settings = {"dim": dim, "trained_at": trained_at, "noise": NOISE, "tested_at": lengths.tolist()}
    return Drawing(figure, data, settings | _RISK)


def _name_both(panel: Axes) -> None:
    """Entries of a legend that tell theory and measurement apart, whatever the colour."""
    panel.plot([], [], color="0.4", lw=1.6, label="lines: theory")
    panel.plot([], [], color="0.4", label="circles: exact risk", **_CIRCLES)


def _collect(
    fine: np.ndarray, curves: Mapping[str, Any], lengths: np.ndarray, measured: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Predicted and measured losses, by the names of the curves as names of arrays."""

    def key(name: str) -> str:
        words = name.replace("′", "").replace(",", "").replace(" = ", " ").lower().split()
        return "_".join(words)

    data = {"length": fine, "measured_length": lengths}
    data |= {key(name): values for name, values in curves.items()}
    return data | {f"measured_{key(name)}": np.asarray(v) for name, v in measured.items()}


@eqx.filter_jit
def _loss(exact: ExactSoftmaxRisk, model) -> jax.Array:
    return exact(model)

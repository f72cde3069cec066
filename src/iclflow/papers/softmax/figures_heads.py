"""Figures of arXiv 2503.12734: what trained heads look like, and how they came about."""

from typing import Any

import numpy as np

from ...analysis import Patterns, patterns
from ...drawing import Drawing
from ...drawing.heads import draw_circuit, name_tokens
from ...drawing.style import COLOURS, LEVEL, WIDTHS, canvas, colour_bar, fixed_canvas, legend_above
from ...theory import head_integrals, one_head_optimum, optimal_mu_from, pair_optimum
from .. import Lab, figure
from .runs import DIM, SETTING, paper_task
from .runs_heads import trained_run
from .runs_seeds import one_task_training

_SHOWN = (1, 2, 4)
# Inches: a cell of a circuit, the space from head to head and from model to model, the margin.
_CELL, _GAP, _WIDE_GAP, _LEFT = 0.126, 0.12, 0.26, 0.75


def _config(lab: Lab, heads: tuple[int, ...]) -> dict[str, Any]:
    own = one_task_training(lab, heads[-1]).settings(heads)
    return SETTING | own | {"shown": "the first seed that ends in the pattern"}


@figure(
    "softmax/heads",
    "Softmax attention: what trained heads look like",
    """Key-query (upper row) and output-value circuits (lower row) of models with (a) one,
    (b) two and (c) four heads, all of Q, K, V and O trained by Adam from the usual random
    weights; one colour scale a row. Below each head its ω, the mean of the diagonal, and its
    μ, the entry that reads labels; by theory, the μ of the best single head, or the best μ
    for heads with these ω (four heads: none, since dummies are not multiples of the
    identity). The share is |μω| relative to the strongest head: dummies, below 10 %, add
    next to nothing to the step, whatever their attention.""",
)
def heads(lab: Lab) -> Drawing:
    """Heat maps of the circuits of trained models with one, two and four heads."""
    models = {count: trained_run(lab, count).final for count in _SHOWN}
    circuits = {h: (np.asarray(m.kq()), np.asarray(m.ov())[:, 0]) for h, m in models.items()}
    largest, widest = (max(np.abs(each).max() for each in row) for row in zip(*circuits.values()))
    figure, place = fixed_canvas(WIDTHS["double"], 2.65)
    upper_at, lower_at, left = 1.36, 0.98, _LEFT
    width, data = DIM * _CELL, {}
    for letter, (count, (attention, values)) in zip("abc", circuits.items()):
        found = patterns(models[count])
        predicted = _predict_mu(found)
        steps = [abs(head.omega * head.mu) for head in found.heads]
        for h, head in enumerate(found.heads):
            upper = place(left, upper_at, width, (DIM + 1) * _CELL)
            lower = place(left, lower_at, width, width / (DIM + 1))
            image = draw_circuit(upper, attention[h], largest)
            row = draw_circuit(lower, values[h][None], widest)
            upper.set_title(head.role)
            name_tokens(upper.set_yticks, DIM, 1, left == _LEFT)
            name_tokens(upper.set_xticks, DIM, 0, True)
            lower.set_xticks([0, DIM], ["$x_1$", "$y$"])
            lower.set_yticks([])
            if h == 0:
                upper.text(0, -2.4, letter, weight="bold", va="bottom", ha="right")
                upper.text(0.3, -2.4, f"H = {count}", va="bottom")
            numbers = map(_format_signed, (head.omega, head.mu, predicted[h]))
            lines = (*numbers, f"{steps[h] / max(steps):.0%}".replace("%", " %"))
            lower.text(0.5, -2.2, "\n".join(lines), transform=lower.transAxes, ha="center",
                       va="top", linespacing=1.35)  # fmt: skip
            if left == _LEFT:
                upper.set_ylabel("key token")
                lower.text(-0.25, 0.5, "label", transform=lower.transAxes, ha="right", va="center")
                lower.text(-0.25, -2.2, "ω\nμ\nμ, theory\nshare", transform=lower.transAxes,
                           ha="right", va="top", linespacing=1.35)  # fmt: skip
            left += width + _GAP
        left += _WIDE_GAP - _GAP
        data |= {f"kq_{count}": attention, f"ov_{count}": values}
        if np.isfinite(predicted).all():
            data[f"theory_mu_{count}"] = predicted
    for shown, bottom, name in ((image, upper_at, "key-query"), (row, 0.24, "out-value")):
        bar = place(left - 0.1, bottom, 0.09, (DIM + 1) * _CELL)
        colour_bar(figure, shown, bar, name)
    return Drawing(figure, data, _config(lab, _SHOWN))


def _predict_mu(found: Patterns) -> np.ndarray:
    """μ by theory: of the best single head; of a pair, the best for the ω that it has reached.

    Where heads are not multiples of the identity there is no prediction.
    """
    omega = np.asarray([head.omega for head in found.heads])
    if len(omega) == 1:
        return np.sign(omega) * one_head_optimum(paper_task()).mu
    if "dummy" in found.roles:
        return np.full(len(omega), np.nan)
    return optimal_mu_from(paper_task(), head_integrals(paper_task(), omega))


def _format_signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if np.isfinite(value) else "–"


@figure(
    "softmax/evolution",
    "Softmax attention: how the patterns emerge",
    """Training of two heads (left) and of four (right). (a, b) The attention ω of each
    head. (c, d) What each head reads from a label, μ, and the sum over heads, which goes to
    zero. (e, f) Of all heads together: the share of the key-query circuits on the diagonal,
    that of the output-value circuits in the label's entry, and the step Σμω with the value
    that it has for the best pair (dotted, theory).""",
)
def evolution(lab: Lab) -> Drawing:
    """ω, μ and shares of the circuits of trained models against steps."""
    figure, panels = canvas("double", 5.0, 3, 2, sharex="col", sharey="row")
    data: dict[str, np.ndarray] = {}
    optimum = pair_optimum(paper_task())
    for column, count in enumerate((2, 4)):
        run = trained_run(lab, count)
        found = [patterns(run.at(i)) for i in range(len(run))]
        numbers = np.asarray([[(h.omega, h.mu) for h in each.heads] for each in found])
        omega, mu = numbers[..., 0], numbers[..., 1]
        a, b, c = panels[column], panels[2 + column], panels[4 + column]
        for h in range(count):
            a.plot(run.times, omega[:, h], color=COLOURS[h])
            b.plot(run.times, mu[:, h], color=COLOURS[h], label=f"head {h + 1}")
        for panel in (a, b):
            panel.axhline(0, color="0.8", lw=0.7, zorder=0)
        b.plot(run.times, mu.sum(1), color="0.2", lw=1.0, label="Σμ")
        # Other colours than those of heads: these belong to all heads together.
        shares = {
            "diagonal_share": (COLOURS[4], "share of key-query on the diagonal"),
            "last_entry_share": (COLOURS[5], "share of out-value on the label"),
            "step_size": ("0.2", "step Σμω"),
        }
        for name, (colour, label) in shares.items():
            values = np.asarray([getattr(each, name) for each in found])
            c.plot(run.times, values, color=colour, lw=1.6, label=label)
            data[f"{name}_{count}"] = values
        c.axhline(optimum.gain, label="step of the best pair (theory)",
                  **{**LEVEL, "lw": 1.2, "zorder": 5})  # fmt: skip
        a.set_title(f"H = {count}")
        a.set(ylabel="ω" if column == 0 else None)
        b.set(ylabel="μ" if column == 0 else None)
        c.set(xlabel="step", ylabel="share, step" if column == 0 else None, ylim=(-0.05, 1.1))
        data |= {f"step_{count}": run.times, f"omega_{count}": omega, f"mu_{count}": mu}
    legend_above(figure, panels[3])
    legend_above(figure, panels[4], columns=2, loc="outside lower center")
    return Drawing(figure, data, _config(lab, (2, 4)))

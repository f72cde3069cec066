"""Figures of arXiv 2503.12734: what trained heads look like, and how they came about."""

import jax
import numpy as np

from ..analysis import patterns
from ..claims import Lab
from ..claims._softmax_runs import (
    BATCH,
    CONTEXT,
    DIM,
    NOISE,
    blind_ensemble,
    trained,
    training_steps,
)
from ..claims.softmax_seeds import blind_sizes, final_patterns, is_one_sign, is_zero_sum
from ..theory import one_head_optimum, one_sign_share, pair_optimum
from ._base import Drawing
from ._heads import draw_circuit
from ._style import COLOURS, LEVEL, THEORY, canvas, legend_above, shades

_SHOWN = (1, 2, 4)


def _config(lab: Lab, **settings) -> dict:
    return {
        "dim": DIM, "context": CONTEXT, "noise": NOISE, "batch": BATCH,
        "steps": training_steps(lab), "optimiser": "Adam, annealed", **settings,
    }  # fmt: skip


def heads(lab: Lab) -> Drawing:
    """Heat maps of the circuits of trained models with one, two and four heads."""
    total = sum(_SHOWN)
    widths = [2.0] * total
    figure, panels = canvas(
        "double", 2.5, 2, total, squeeze=False, height_ratios=(DIM + 1, 1.6), width_ratios=widths
    )
    panels = panels.reshape(2, total)
    data, place = {}, 0
    for count in _SHOWN:
        model = trained(lab, count).final
        attention, values = np.asarray(model.kq()), np.asarray(model.ov())
        largest, widest = np.max(np.abs(attention)), np.max(np.abs(values))
        for h, head in enumerate(patterns(model).heads):
            upper, lower = panels[0, place], panels[1, place]
            draw_circuit(upper, attention[h], largest)
            draw_circuit(lower, values[h][None], widest)
            upper.set_title(f"H = {count}\n{head.role}" if h == 0 else f"\n{head.role}", fontsize=8)
            lower.set_xlabel(f"ω {head.omega:+.2f}\nμ {head.mu:+.2f}", fontsize=7)
            for panel in (upper, lower):
                panel.set(xticks=[], yticks=[])
                panel.set_title("", loc="left")
            place += 1
        data |= {f"kq_{count}": attention, f"ov_{count}": values}
    panels[0, 0].set_ylabel("key-query")
    panels[1, 0].set_ylabel("out-\nvalue")
    return Drawing(figure, data, _config(lab, heads=_SHOWN))


def evolution(lab: Lab) -> Drawing:
    """ω, μ and shares of the circuits of trained models against steps."""
    figure, panels = canvas("double", 4.6, 3, 2, sharex="row")
    data: dict[str, np.ndarray] = {}
    optimum = pair_optimum(DIM, CONTEXT, NOISE)
    for column, count in enumerate((2, 4)):
        run = trained(lab, count)
        found = [patterns(run.at(i)) for i in range(len(run))]
        omega = np.asarray([[h.omega for h in each.heads] for each in found])
        mu = np.asarray([[h.mu for h in each.heads] for each in found])
        a, b, c = panels[column], panels[2 + column], panels[4 + column]
        for h in range(count):
            a.plot(run.times, omega[:, h], color=COLOURS[h])
            b.plot(run.times, mu[:, h], color=COLOURS[h], label=f"head {h + 1}")
        for panel in (a, b):
            panel.axhline(0, color="0.8", lw=0.7, zorder=0)
        b.plot(run.times, mu.sum(1), **THEORY, label="Σμ")
        c.plot(run.times, [each.diagonal_share for each in found], color=COLOURS[3],
               label="diagonal share of KQ")  # fmt: skip
        c.plot(run.times, [each.last_entry_share for each in found], color=COLOURS[4],
               label="last-entry share of OV")  # fmt: skip
        c.plot(run.times, [each.step_size for each in found], color=COLOURS[5], label="step Σμω")
        c.axhline(optimum.gain, label="best step of a pair", **LEVEL)
        a.set_title(f"H = {count}")
        a.set(ylabel="ω" if column == 0 else None)
        b.set(ylabel="μ" if column == 0 else None)
        c.set(xlabel="step", ylabel="share, step" if column == 0 else None, ylim=(-0.05, 1.1))
        data |= {f"step_{count}": run.times, f"omega_{count}": omega, f"mu_{count}": mu}
    legend_above(figure, panels[3], panels[4], columns=5)
    return Drawing(figure, data, _config(lab, heads=(2, 4)))


def seeds(lab: Lab) -> Drawing:
    """Where random initialisations of merged heads end."""
    sizes = blind_sizes(lab)
    figure, panels = canvas("double", 2.7, 1, 3)
    a, b, c = panels
    data: dict[str, np.ndarray] = {}
    runs = blind_ensemble(lab, 2, *sizes)
    found = final_patterns(runs)
    one = np.asarray([is_one_sign(each) for each in found])
    ends = np.asarray([[(h.omega, h.mu) for h in each.heads] for each in found])
    for flag, name, colour in ((False, "both signs", 0), (True, "one sign: the trap", 1)):
        points = ends[one == flag].reshape(-1, 2)
        a.plot(*points.T, "o", ms=3, mfc="none", color=COLOURS[colour], label=name)
    best = one_head_optimum(DIM, CONTEXT, NOISE)
    for sign in (1, -1):
        shared = np.linspace(0, sign * best.mu, 2)
        a.plot([sign * best.omega] * 2, shared, label="one head, shared" if sign > 0 else None,
               **THEORY)  # fmt: skip
    a.set(xlabel="ω", ylabel="μ")
    sums = np.asarray([_sums(run) for run in runs])
    for i, colour in enumerate(COLOURS[j] for j in one.astype(int)):
        b.plot(runs[0].times, sums[i], color=colour, lw=0.8, alpha=0.6)
    b.set(xlabel="step", ylabel="|Σμ| / Σ|μ|", ylim=(-0.03, 1.05))
    counts = (2, 3)
    shares, expected = [], [one_sign_share(h) for h in counts]
    for h in counts:
        final = final_patterns(blind_ensemble(lab, h, *sizes))
        shares.append([np.mean([is_one_sign(p) for p in final]),
                       np.mean([is_zero_sum(p) for p in final])])  # fmt: skip
    lost, kept = np.asarray(shares).T
    error = np.sqrt(lost * (1 - lost) / sizes[0])
    c.bar(counts, lost, 0.5, yerr=error, capsize=3, color=shades(2)[1], label="measured")
    for h, value in zip(counts, expected):
        c.plot([h - 0.35, h + 0.35], [value, value], label=None if h > 2 else r"$2^{1-H}$",
               **THEORY)  # fmt: skip
    c.set(xlabel="heads H", ylabel="share that ends with one sign", xticks=counts, ylim=(0, 0.8))
    c.legend(loc="upper right")
    legend_above(figure, a)
    data |= {"omega_mu": ends, "one_sign": one, "step": runs[0].times, "zero_sum": sums}
    data |= {"share_one_sign": lost, "share_both": kept, "theory_share": np.asarray(expected)}
    config = {"dim": DIM, "context": CONTEXT, "noise": NOISE, "heads": counts}
    return Drawing(figure, data, config | dict(zip(("seeds", "steps", "batch"), sizes)))


def _sums(run) -> np.ndarray:
    """|Σμ| / Σ|μ| along a run."""
    mu = np.asarray(jax.device_get(run.models.v))
    return np.abs(mu.sum(1)) / np.abs(mu).sum(1)

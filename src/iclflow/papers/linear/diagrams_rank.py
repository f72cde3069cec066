"""Rank × heads: how many plateaus there are, and how many of them need a new head."""

import itertools

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.panels import cells
from ...drawing.style import COLOURS, canvas
from .. import Swept, diagram
from .._needs import regression

# Tenfold smaller weights make a plateau that waits for a new head ten times as long, and one inside
# a head about twice as long at most: half the ratio of the scales separates the two.
_LONG = 0.5


@diagram(
    "linear",
    "Rank × heads: the number of plateaus",
    """Separate linear attention of H heads of rank R on four components, by exact gradient flow
    from weights of size 10⁻³ and 10⁻⁴. (a) The median number of plateaus, the last one
    included, over seeds and both scales; theory: min(D, HR) + 1. (b) How many of them are ten
    times as long from the smaller weights, at least half of it: theory has one for each head
    that must start, min(H, D/R rounded up). Where theory's number is another, it is in
    brackets. (c) By how much each of the other plateaus lengthens, all ranks, heads and seeds,
    against the slope in ln(1/s) that theory gives for a head that fills up (dashed: equal).""",
    smoke={"seeds": 1, "axes": {"model.rank": [1, 2], "model.heads": [2]}},
    paper_tier={
        "seeds": 16,
        "axes": {"model.rank": [1, 2, 3, 4], "model.heads": [1, 2, 3, 4, 5, 6]},
    },
)
def rank(swept: Swept) -> Drawing:
    """Numbers of plateaus for each rank and number of heads, and how the durations grow."""
    task = regression(swept.config)
    found = _runs(swept)
    ranks, heads = (sorted({key[i] for key in found}) for i in (0, 1))
    shape = (len(heads), len(ranks))
    names = ("plateaus", "long", "theory_plateaus", "theory_long", "agree")
    data = {name: np.zeros(shape) for name in names}
    steps: list[tuple[float, float]] = []
    for (j, h), (i, r) in itertools.product(enumerate(heads), enumerate(ranks)):
        predicted = theory.rank_plateaus(task, h, r)
        powers = sum(each.scaling == "power" for each in predicted)
        seeds = found[r, h]
        longs = [_long_ones(pair) for pair in seeds]
        counts = np.asarray([[len(times) + 1 for times in pair.values()] for pair in seeds])
        data["plateaus"][j, i] = np.median(counts)
        known = [value for value in longs if not np.isnan(value)]
        data["long"][j, i] = np.median(known) if known else np.nan
        data["theory_plateaus"][j, i] = len(predicted) + 1
        data["theory_long"][j, i] = powers
        right = np.all(counts == len(predicted) + 1, axis=1) & (np.asarray(longs) == powers)
        data["agree"][j, i] = right.mean()
        steps += [s for pair in seeds for s in _log_steps(pair, [p.log_slope for p in predicted])]
    figure, (a, b, c) = canvas("double", 2.75, 1, 3)
    top = (0, task.dim + 1)
    for panel, name in ((a, "plateaus"), (b, "long")):
        texts = [
            [_text(data[name][j, i], data[f"theory_{name}"][j, i]) for i in range(len(ranks))]
            for j in range(len(heads))
        ]
        cells(panel, data[name], ranks, heads, texts, top)
        panel.set(xlabel="rank R", ylabel="heads H")
    a.set_title("all plateaus")
    b.set_title("those that last ∝ 1/s")
    predicted_steps, measured_steps = np.asarray(steps).reshape(-1, 2).T
    c.loglog(predicted_steps, measured_steps, "o", mfc="none", ms=3.5, mew=0.8, color=COLOURS[0])
    if len(steps):
        ends = np.asarray([predicted_steps.min() / 1.5, predicted_steps.max() * 1.5])
        plot_theory(c, ends, ends)
    c.set(xlabel="predicted (τ)", ylabel="measured (τ)")
    c.set_title("lengthening of the others")
    data |= {"rank": np.asarray(ranks), "heads": np.asarray(heads)}
    data |= {"lengthening": measured_steps, "theory_lengthening": predicted_steps}
    return Drawing(figure, data, {}, _findings(data))


def _runs(swept: Swept) -> dict[tuple[int, int], list[dict[float, list[float]]]]:
    """Drop times by scale, for each seed of each rank and number of heads."""
    columns = ("model.rank", "model.heads", "seed", "model.scale", "drop_times")
    found: dict[tuple[int, int], dict[int, dict[float, list[float]]]] = {}
    for r, h, seed, s, times in swept.rows(*columns):
        found.setdefault((r, h), {}).setdefault(seed, {})[s] = times or []
    return {key: list(seeds.values()) for key, seeds in found.items()}


def _durations(pair: dict[float, list[float]]) -> tuple[float, np.ndarray, np.ndarray] | None:
    """The ratio of the scales, and how long each plateau lasts at the large and the small one."""
    small, large = min(pair), max(pair)
    if len(pair[small]) != len(pair[large]):
        return None
    each = [np.diff(pair[s], prepend=0.0) for s in (large, small)]
    return large / small, each[0], each[1]


def _long_ones(pair: dict[float, list[float]]) -> float:
    """How many plateaus lengthen in proportion to 1/s; NaN if drops are missing at one scale."""
    found = _durations(pair)
    if found is None:
        return np.nan
    ratio, before, after = found
    return float(np.sum(after / before > _LONG * ratio))


def _log_steps(pair: dict[float, list[float]], slopes: list[float]) -> list[tuple[float, float]]:
    """Predicted and measured lengthening of each plateau inside a head."""
    found = _durations(pair)
    if found is None or len(found[1]) != len(slopes):
        return []
    ratio, before, after = found
    return [
        (slope * np.log(ratio), later - sooner)
        for slope, sooner, later in zip(slopes, before, after)
        if np.isfinite(slope)
    ]


def _text(measured: float, predicted: float) -> str:
    """The text of a cell: the measured number, and theory's in brackets if it differs."""
    if np.isnan(measured):
        return f"?\n({predicted:g})"
    return f"{measured:g}" if measured == predicted else f"{measured:g}\n({predicted:g})"


def _findings(data: dict[str, np.ndarray]) -> str:
    """What was measured, as the end of the caption."""
    agree = data["agree"]
    full = int(np.sum(agree == 1))
    words = f"Measured: all seeds have both of theory's numbers in {full} of {agree.size} cells"
    if full < agree.size:
        words += f", and {100 * agree.min():.0f} % of them in the worst"
    if data["lengthening"].size:
        ratio = data["lengthening"] / data["theory_lengthening"]
        low, high = np.min(ratio), np.max(ratio)
        words += f"; measured over predicted lengthening lies between {low:.2f} and {high:.2f}"
    return words + "."

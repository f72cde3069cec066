"""Draws the small picture of every preset of the explorer: its loss, with theory's levels dashed.

    python tools/preset_pictures.py [ID …]

The pictures are part of the source; run this after a preset has changed.
"""

import sys
from pathlib import Path

import numpy as np

from iclflow.experiment import overlay, prepare, train
from iclflow.explorer._presets import picture_of, presets
from iclflow.papers import Study
from iclflow.runtime import start

WIDTH, HEIGHT, MARGIN = 160, 90, 8
# Okabe and Ito's blue, which reads on light and on dark ground.
BLUE = "#0072B2"
_POINTS = 120
FOLDER = Path(__file__).resolve().parent.parent / "src/iclflow/explorer/static/presets"


def picture(preset: Study) -> str:
    """The picture of a preset as SVG: a run of it, on the time axis that shows most of it."""
    experiment = prepare(preset.config)
    run, predicted = train(experiment), overlay(experiment)
    times, losses = np.asarray(run.times), np.asarray(run.losses)
    levels = [] if predicted is None else [*predicted.levels, *(x for _, x in predicted.references)]
    top = float(losses.max())
    bottom = min([float(losses.min()), *(level for level in levels if level > 0)])
    axis = _axis(times, losses)
    place = lambda loss: MARGIN + (top - loss) / (top - bottom) * (HEIGHT - 2 * MARGIN)
    across = MARGIN + axis * (WIDTH - 2 * MARGIN)
    heights = place(losses)
    dashes = [
        f'<path d="M{MARGIN} {y}H{WIDTH - MARGIN}"/>'
        for y in sorted({f"{place(level):.1f}" for level in levels if bottom <= level <= top})
    ]
    title = preset.title.replace("&", "&amp;").replace("<", "&lt;")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f'<g fill="none" stroke="{BLUE}" stroke-width="2.5" stroke-linejoin="round">',
        f'<polyline points="{_thinned(across, heights)}"/>',
        "</g>",
    ]
    if dashes:
        style = 'stroke="currentColor" stroke-opacity="0.55" stroke-dasharray="3 3"'
        lines.insert(2, f'<g fill="none" {style}>{"".join(dashes)}</g>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _axis(times: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Places between 0 and 1: even in time or in its logarithm, whichever spreads the fall of the
    loss more."""
    even = times / times[-1]
    later = times[times > 0]
    # Before the loss has moved a logarithm would show nothing.
    moved = times[np.abs(losses - losses[0]) > 5e-3 * np.ptp(losses)]
    first = max(float(later[0]), float(moved[0]) / 5 if moved.size else 0.0)
    ratios = np.log(np.maximum(times, first) / first) / np.log(times[-1] / first)
    speeds = -np.diff(losses) / np.diff(times)
    # On a logarithmic axis whatever falls at once would seem to wait.
    if speeds[0] >= 0.5 * speeds.max():
        return even
    weights = np.abs(np.diff(losses, prepend=losses[0]))
    return max((even, ratios), key=lambda places: _spread(places, weights))


def _spread(places: np.ndarray, weights: np.ndarray) -> float:
    mean = np.average(places, weights=weights)
    return float(np.average((places - mean) ** 2, weights=weights))


def _thinned(across: np.ndarray, heights: np.ndarray) -> str:
    """The points of a line, no more than are seen."""
    length = np.append(0.0, np.cumsum(np.hypot(np.diff(across), np.diff(heights))))
    even = np.linspace(0.0, length[-1], _POINTS)
    chosen = np.unique(np.searchsorted(length, even).clip(0, len(length) - 1))
    return " ".join(f"{across[i]:.1f},{heights[i]:.1f}" for i in chosen)


def main(wanted: list[str]) -> None:
    start(brief=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for preset in presets():
        if not wanted or preset.id in wanted:
            (FOLDER / picture_of(preset)).write_text(picture(preset), encoding="utf-8")
            print(preset.id, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

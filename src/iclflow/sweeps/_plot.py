"""Figures of a sweep: curves with their spread, and phase diagrams."""

import dataclasses
import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..config import InputError
from ._plot_labels import (
    MOST_TICKS,
    axis_name,
    panel_width,
    place_values,
    set_labels,
    set_scales,
    sort_values,
    value_text,
    wrap,
)
from ._plot_rows import Note, Row, drop_diverged, drop_unusable, select_rows
from ._statistics import SPREADS, STATISTICS, choose_statistic
from ._table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PANELS, _MOST_CURVES = 12, 24
# Up to this many curves have distinct colours; more are shades of one scale.
_MOST_COLOURS = 6
_MOST_TEXTS = 40
_BAND: dict[str, Any] = {"alpha": 0.2, "lw": 0}


@dataclasses.dataclass(frozen=True)
class Plot:
    """What to draw: columns of the table, or SQL over them.

    **Fields:**

    - `kind`: `"line"`: the median of y over all runs with the same x, with quartiles, a curve for
      each hue; `"heat"`: the median of hue at each x and y; `"auto"`: heat if y is a setting that
      was swept and hue is none, else line.
    - `statistic`: `"median"`; `"mean"`, with its standard error; `"share"`, of the runs where it is
      true, with its 95 % interval (Wilson); `"auto"`: the share of what is true or false, else the
      median.
    - `log`: which of `"x"`, `"y"` and `"hue"` are logarithmic.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 2, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "scale": 0.1}, "flow": {"end": 50.0}},
    ...     "axes": {"model.heads": [1, 2]}}
    >>> table = icl.sweep(spec, progress=False)
    >>> plot = icl.sweeps.Plot(x="model.heads", y="final_loss")
    >>> plot.kind_of(table), plot.draw(table, "png")[:4]
    ('line', b'\\x89PNG')
    ```
    """

    x: str
    y: str
    hue: str | None = None
    facet: str | None = None
    where: str | None = None
    kind: Literal["auto", "line", "heat"] = "auto"
    log: Sequence[str] = ()
    statistic: Literal["auto", "median", "mean", "share"] = "auto"

    @property
    def name(self) -> str:
        """A name for its file."""
        parts = [self.y, self.x] + ([] if self.hue is None else [self.hue])
        return "-".join(re.sub(r"\W+", "_", part).strip("_") for part in parts)

    def kind_of(self, table: Table) -> str:
        """The kind that is drawn, if `kind` is "auto" too."""
        if self.kind != "auto":
            return self.kind
        settings = [name for name in table.columns if "." in name or name == "seed"]
        if self.y in settings and self.x in settings and self.hue is None:
            raise InputError(
                "hue",
                problem="is missing",
                allowed=f"{self.y} is a swept setting, so that this is a phase diagram, which "
                'needs a column for its colour; kind "line" draws a curve',
            )
        return "heat" if self.y in settings and self.hue not in (None, *settings) else "line"

    def draw(self, table: Table, form: str, note: Note = warnings.warn) -> bytes:
        """The figure as a file of this format: png, pdf or svg; `note` is called with a sentence on
        runs that are left out."""
        from ..drawing.style import canvas, style

        kind = self.kind_of(table)
        if kind == "heat" and self.hue is None:
            allowed = "a phase diagram needs a column for its colour"
            raise InputError("hue", problem="is missing", allowed=allowed)
        panels, statistic = self._panels(table, kind, note)
        across = min(len(panels), 3)
        rows = -(-len(panels) // across)
        with style():
            columns = "single" if across == 1 else "double"
            figure, axes = canvas(columns, 2.6 * rows, rows, across, squeeze=False, sharey=True)
            for axis in axes[len(panels) :]:
                axis.set_axis_off()
                axis.set_title("", loc="left")
            if kind == "heat":
                self._heat(figure, axes, panels, statistic)
            else:
                self._lines(figure, axes, panels, statistic)
            up = self.y if kind == "heat" else axis_name(statistic, self.y)
            for i, (axis, (value, _)) in enumerate(zip(axes, panels)):
                axis.set_xlabel(wrap(self.x, panel_width(figure, len(panels))))
                axis.set_ylabel("" if i % across else wrap(up, 2.2))
                if self.facet is not None:
                    axis.set_title(f"{self.facet} = {value_text(value)}", fontsize=8)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=form)
        return buffer.getvalue()

    def _panels(
        self, table: Table, kind: str, note: Note
    ) -> tuple[list[tuple[Any, list[Row]]], str]:
        """Rows of x, y, hue and facet for each facet, in order, and the statistic. Rows that cannot
        be drawn are left out."""
        flags = {"x": self.x, "y": self.y, "hue": self.hue, "facet": self.facet}
        rows = select_rows(table, flags, self.where, kind == "heat")
        shown, place = (("hue", 2), ("y", 1))[kind == "line"]
        values = [row[place] for row in rows if row[place] is not None]
        statistic = choose_statistic(self.statistic, shown, flags[shown] or "", values)
        if statistic == "share" and shown in self.log:
            raise InputError("log", shown, "a share, which may be 0, has no logarithm")
        if statistic != "share":  # a share counts runs that diverged too
            remedy = '; where "result IS NOT NULL" keeps them'
            rows = drop_diverged(rows, [*flags.values(), self.where], note, remedy)
        log = [flag for flag in self.log if flag != "hue" or kind == "heat"]
        rows = drop_unusable(rows, flags, log, note)
        if not rows:
            raise InputError(f"There is nothing to draw: no run has `{self.x}` and `{self.y}`.")
        for letter, i in (("x", 0), ("y", 1)):
            texts = {row[i] for row in rows if isinstance(row[i], str | tuple)}
            if len(texts) > _MOST_TEXTS:
                problem = f"has {len(texts)} different texts"
                allowed = f"must have at most {_MOST_TEXTS}"
                raise InputError(letter, flags[letter], allowed, problem)
        facets = sort_values({row[3] for row in rows})
        if len(facets) > _MOST_PANELS:
            problem = f"has {len(facets)} values"
            raise InputError("facet", self.facet, f"must have at most {_MOST_PANELS}", problem)
        return [(value, [row for row in rows if row[3] == value]) for value in facets], statistic

    def _lines(self, figure: "Figure", axes, panels: list[tuple[Any, list[Row]]], statistic: str):
        from ..drawing.style import COLOURS, legend_above, shades

        hues = sort_values({row[2] for _, rows in panels for row in rows})
        if len(hues) > _MOST_CURVES:
            problem = f"has {len(hues)} values"
            raise InputError("hue", self.hue, f"must have at most {_MOST_CURVES}", problem)
        many = len(hues) > _MOST_COLOURS or all(isinstance(hue, float) for hue in hues)
        colours = shades(len(hues)) if many and len(hues) > 1 else COLOURS
        places = place_values({row[0] for _, rows in panels for row in rows})
        has_band = False
        for axis, (_, rows) in zip(axes, panels):
            for hue, colour in zip(hues, colours):
                points = _group((row[0], row[1]) for row in rows if row[2] == hue)
                if not points:
                    continue
                x = np.asarray([places[value] for value in points])
                low, middle, high = np.asarray(
                    [STATISTICS[statistic](np.asarray(values)) for values in points.values()]
                ).T
                label = statistic if self.hue is None else value_text(hue)
                axis.plot(x, middle, "o-", color=colour, ms=3, lw=1.4, label=label)
                if statistic == "share" or any(len(values) > 1 for values in points.values()):
                    axis.fill_between(x, low, high, color=colour, **_BAND)
                    has_band = True
                    if len(x) == 1:  # a band without width
                        axis.vlines(x, low, high, color=colour, alpha=0.4)
            whole = statistic == "median" and all(isinstance(row[1], int) for row in rows)
            set_scales(axis, self.log, places, whole, panel_width(figure, len(panels)))
            if statistic == "share":
                axis.set_ylim(-0.03, 1.03)
        if has_band:  # one entry of the legend for the bands of all curves
            colour = colours[0] if self.hue is None else "0.5"
            axes[0].fill([], [], color=colour, label=SPREADS[statistic], **_BAND)
        if self.hue is not None or has_band:
            legend_above(figure, *axes[: len(panels)], columns=min(len(hues) + has_band, 4))
        if self.hue is not None:
            figure.legends[0].set_title(self.hue)

    def _heat(self, figure: "Figure", axes, panels: list[tuple[Any, list[Row]]], statistic: str):
        from matplotlib.colors import LogNorm, Normalize

        across = sort_values({row[0] for _, rows in panels for row in rows})
        up = sort_values({row[1] for _, rows in panels for row in rows})
        grids = []
        for _, rows in panels:
            cells = _summarise_cells(rows, statistic)
            middle = {place: cell.middle for place, cell in cells.items()}
            grids.append(np.asarray([[middle.get((x, y), np.nan) for x in across] for y in up]))
        least, most = (0, 1) if statistic == "share" else (np.nanmin(grids), np.nanmax(grids))
        norm = LogNorm(least, most) if "hue" in self.log else Normalize(least, most)
        for axis, grid in zip(axes, grids):
            image = axis.pcolormesh(grid, norm=norm, cmap="viridis", edgecolors="face", lw=0.2)
            set_labels(axis, across, np.arange(len(across)) + 0.5, panel_width(figure, len(panels)))
            chosen = range(0, len(up), -(-len(up) // (2 * MOST_TICKS)))
            axis.yaxis.set_ticks([i + 0.5 for i in chosen], [value_text(up[i]) for i in chosen])
            axis.tick_params(length=0)
        bar = figure.colorbar(
            image,
            ax=list(axes[: len(panels)]),
            label=wrap(axis_name(statistic, self.hue or ""), 2.2),
        )
        bar.outline.set_linewidth(0.7)  # pyright: ignore[reportCallIssue]


class Cell(NamedTuple):
    """One cell of a phase diagram: the middle and the spread of a value, over how many runs."""

    low: float
    middle: float
    high: float
    runs: int


def phase_cells(
    table: Table, x: str, y: str | None, value: str, note: Note = warnings.warn
) -> tuple[dict[tuple[Any, Any], Cell], str]:
    """The cells of a phase diagram by the values of x and y, and the statistic in them.

    **Arguments:**

    - `x`, `y`: swept settings; without `y`, its value is None in every cell.
    - `value`: the column to summarise, or SQL over columns.
    - `note`: called with a sentence on runs that are left out.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 2, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "scale": 0.1}, "flow": {"end": 50.0}},
    ...     "axes": {"model.heads": [1, 2]}}
    >>> table = icl.sweep(spec, progress=False)
    >>> cells, statistic = icl.sweeps.phase_cells(table, "model.heads", None, "final_loss")
    >>> statistic, [cell.runs for cell in cells.values()]
    ('median', [2, 2])
    ```
    """
    fields = {"x": x, "y": y, "hue": value}
    rows = select_rows(table, fields, None, heat=True)
    found = [row[2] for row in rows if row[2] is not None]
    statistic = choose_statistic("auto", "hue", value, found)
    if statistic != "share":  # a share counts runs that diverged too
        rows = drop_diverged(rows, [x, y, value], note)
    return _summarise_cells(drop_unusable(rows, fields, (), note), statistic), statistic


def _summarise_cells(rows: Sequence[Row], statistic: str) -> dict[tuple[Any, Any], Cell]:
    """Cells by x and y, from rows that begin with x, y and the value."""
    values: dict[tuple[Any, Any], list[float]] = {}
    for x, y, value, *_ in rows:
        values.setdefault((x, y), []).append(float(value))
    cells = {}
    for place, each in values.items():
        low, middle, high = STATISTICS[statistic](each)
        cells[place] = Cell(low, middle, high, len(each))
    return cells


def _group(pairs) -> dict[Any, list[float]]:
    """Values by their key, keys in order."""
    found: dict[Any, list[float]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(float(value))
    return {key: found[key] for key in sort_values(found)}

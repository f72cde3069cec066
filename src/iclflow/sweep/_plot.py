"""Figures of a sweep: curves with their spread, and phase diagrams."""

import dataclasses
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..config import InputError
from ._table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PANELS, _MOST_CURVES = 12, 24
# So many curves have colours of their own; more are shades of one scale.
_MOST_COLOURS = 6
_MOST_TICKS = 7


@dataclasses.dataclass(frozen=True)
class Plot:
    """What to draw: columns of the table, or SQL over them.

    **Fields:**

    - `kind`: `"line"`: the median of y over all runs with the same x, with quartiles, a curve for
      each hue; `"heat"`: the median of hue at each x and y; `"auto"`: heat if y is a setting that
      was swept and hue is none, else line.
    - `log`: which of `"x"`, `"y"` and `"hue"` are logarithmic.
    """

    x: str
    y: str
    hue: str | None = None
    facet: str | None = None
    where: str | None = None
    kind: Literal["auto", "line", "heat"] = "auto"
    log: Sequence[str] = ()

    @property
    def name(self) -> str:
        """A name for its file."""
        parts = [self.y, self.x] + ([] if self.hue is None else [self.hue])
        return "-".join(re.sub(r"\W+", "_", part).strip("_") for part in parts)

    def kind_of(self, table: Table) -> str:
        """The kind, if it is chosen by itself."""
        if self.kind != "auto":
            return self.kind
        swept = lambda name: name is not None and ("." in name or name == "seed")
        settings = [name for name in table.columns if swept(name)]
        return "heat" if self.y in settings and self.hue not in (None, *settings) else "line"

    def drawn(self, table: Table, form: str) -> bytes:
        """The figure as a file of this format: png, pdf or svg."""
        from ..figures._style import canvas, style

        kind = self.kind_of(table)
        if kind == "heat" and self.hue is None:
            raise InputError("`--hue` is missing: a phase diagram needs a column for its colour.")
        panels = self._panels(table)
        across = min(len(panels), 3)
        rows = -(-len(panels) // across)
        with style():
            columns = "single" if across == 1 else "double"
            figure, axes = canvas(columns, 2.6 * rows, rows, across, squeeze=False, sharey=True)
            for axis in axes[len(panels) :]:
                axis.set_axis_off()
                axis.set_title("", loc="left")
            if kind == "heat":
                self._heat(figure, axes, panels)
            else:
                self._lines(figure, axes, panels)
            for i, (axis, (value, _)) in enumerate(zip(axes, panels)):
                axis.set_xlabel(self.x)
                axis.set_ylabel("" if i % across else self.y)
                if self.facet is not None:
                    axis.set_title(f"{self.facet} = {_shown(value)}", fontsize=8)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=form)
        return buffer.getvalue()

    def _panels(self, table: Table) -> list[tuple[Any, list[tuple]]]:
        """Rows of x, y and hue for each facet, in order; those without a value are left out."""
        hue, facet = self.hue or "NULL", self.facet or "NULL"
        query = f"SELECT {self.x}, {self.y}, {hue}, {facet} FROM results"
        query += f" WHERE {self.where}" if self.where else ""
        _, rows = table.ask(query)
        rows = [row for row in rows if row[0] is not None and row[1] is not None]
        if self.hue is not None:
            rows = [row for row in rows if row[2] is not None]
        if not rows:
            raise InputError(f"There is nothing to draw: no run has `{self.x}` and `{self.y}`.")
        for place, letter in enumerate(("x", "y", "hue")):
            if letter in self.log:
                _check_positive(letter, [row[place] for row in rows])
        values = _sorted({_key(row[3]) for row in rows})
        if len(values) > _MOST_PANELS:
            raise InputError(
                f"`--facet` = {self.facet} has {len(values)} values: must have at most "
                f"{_MOST_PANELS}."
            )
        return [(value, [row for row in rows if _key(row[3]) == value]) for value in values]

    def _lines(self, figure: "Figure", axes, panels: list[tuple[Any, list[tuple]]]) -> None:
        from ..figures._style import COLOURS, legend_above, shades

        for row in panels[0][1][:1]:
            _check_number("y", self.y, row[1])
        hues = _sorted({_key(row[2]) for _, rows in panels for row in rows})
        if len(hues) > _MOST_CURVES:
            raise InputError(
                f"`--hue` = {self.hue} has {len(hues)} values: must have at most {_MOST_CURVES}."
            )
        many = len(hues) > _MOST_COLOURS or all(isinstance(hue, float) for hue in hues)
        colours = shades(len(hues)) if many and len(hues) > 1 else COLOURS
        places = _places({_key(row[0]) for _, rows in panels for row in rows})
        for axis, (_, rows) in zip(axes, panels):
            for hue, colour in zip(hues, colours):
                points = _grouped((row[0], row[1]) for row in rows if _key(row[2]) == hue)
                if not points:
                    continue
                x = np.asarray([places[value] for value in points])
                low, middle, high = np.asarray(
                    [np.quantile(values, [0.25, 0.5, 0.75]) for values in points.values()]
                ).T
                label = None if self.hue is None else _shown(hue)
                axis.plot(x, middle, "o-", color=colour, ms=3, lw=1.4, label=label)
                if any(len(values) > 1 for values in points.values()):
                    axis.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
            whole = all(isinstance(row[1], int) for row in rows)
            _scales(axis, self.log, places, whole)
        if self.hue is not None:
            legend_above(figure, *axes[: len(panels)], columns=min(len(hues), 4))
            figure.legends[0].set_title(self.hue)

    def _heat(self, figure: "Figure", axes, panels: list[tuple[Any, list[tuple]]]) -> None:
        from matplotlib.colors import LogNorm, Normalize

        for row in panels[0][1][:1]:
            _check_number("hue", self.hue or "", row[2])
        across = _sorted({_key(row[0]) for _, rows in panels for row in rows})
        up = _sorted({_key(row[1]) for _, rows in panels for row in rows})
        grids = []
        for _, rows in panels:
            cells = _grouped(((_key(row[0]), _key(row[1])), row[2]) for row in rows)
            grids.append(
                np.asarray([[np.median(cells.get((x, y), np.nan)) for x in across] for y in up])
            )
        least, most = np.nanmin(grids), np.nanmax(grids)
        norm = LogNorm(least, most) if "hue" in self.log else Normalize(least, most)
        for axis, grid in zip(axes, grids):
            image = axis.pcolormesh(grid, norm=norm, cmap="viridis", edgecolors="face", lw=0.2)
            for side, values in ((axis.xaxis, across), (axis.yaxis, up)):
                chosen = np.unique(
                    np.linspace(0, len(values) - 1, min(len(values), _MOST_TICKS)).round()
                ).astype(int)
                side.set_ticks(chosen + 0.5, [_shown(values[i]) for i in chosen])
            axis.tick_params(length=0)
        bar = figure.colorbar(image, ax=list(axes[: len(panels)]), label=self.hue)
        bar.outline.set_linewidth(0.7)  # pyright: ignore[reportCallIssue]


def _grouped(pairs) -> dict[Any, list[float]]:
    """Values by their key, keys in order."""
    found: dict[Any, list[float]] = {}
    for key, value in pairs:
        found.setdefault(_key(key), []).append(float(value))
    return {key: found[key] for key in _sorted(found)}


def _places(values) -> dict[Any, float]:
    """Where each value of x goes: numbers where they are, others one after the other."""
    ordered = _sorted(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in ordered):
        return {value: float(value) for value in ordered}
    return {value: float(i) for i, value in enumerate(ordered)}


def _scales(axis: "Axes", log: Sequence[str], places: dict[Any, float], whole: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    if any(key != place for key, place in places.items()):
        axis.set_xticks(list(places.values()), [_shown(key) for key in places])
    elif "x" in log:
        axis.set_xscale("log")
    elif all(isinstance(key, int) for key in places) and len(places) <= 2 * _MOST_TICKS:
        axis.set_xticks(list(places))
    if "y" in log:
        axis.set_yscale("log")
    elif whole:
        axis.yaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _sorted(values) -> list[Any]:
    """In order; values of several kinds, such as numbers and None, by kind first."""
    return sorted(values, key=lambda value: (value is None, isinstance(value, str), value or 0))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(_shown, value)) if isinstance(value, tuple) else str(value)


def _check_number(letter: str, name: str, value: Any) -> None:
    if not isinstance(value, int | float):
        raise InputError(f"`--{letter}` = {name} holds {value!r}: must be a column of numbers.")


def _check_positive(letter: str, values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, int | float) or value <= 0:
            raise InputError(
                f"`--log` = {letter}: its values must be positive, and {value} is not."
            )

"""Figures of a sweep: each flag is one expression, and what is left out is said."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from iclflow.config import InputError
from iclflow.explorer import _job_stored
from iclflow.sweeps import Plot, Table, phase_cells
from iclflow.sweeps._plot_labels import sort_values
from iclflow.sweeps._plot_rows import select_rows
from iclflow.sweeps._statistics import STATISTICS
from iclflow.sweeps._table import encode_part

SCHEMA = {
    "run": "BIGINT", "model.scale": "DOUBLE", "task.noise": "DOUBLE",
    "task.eigenvalues": "DOUBLE[]", "seed": "BIGINT", "hash": "VARCHAR", "result": "VARCHAR",
    "final_loss": "DOUBLE", "over_floor": "DOUBLE", "levels": "DOUBLE[]", "verdict": "VARCHAR",
}  # fmt: skip
SCALES = [0.02 * 1.63**i for i in range(9)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """108 runs, of which the last six diverged and a third is at the floor."""
    folder = tmp_path_factory.mktemp("table")
    rows = []
    for run in range(108):
        point, seed = divmod(run, 6)
        rows.append(
            {
                "run": run, "model.scale": SCALES[point // 2], "task.noise": 0.1 * (point % 2),
                "task.eigenvalues": [0.5, 0.1 * (point % 2)], "seed": seed, "hash": f"{run:08x}",
                "result": "diverged" if run >= 102 else "finished",
                "final_loss": 1e90 if run >= 102 else 1.0 + seed,
                "over_floor": -1e-16 if seed < 2 else 0.1, "levels": [1.0] * seed,
                "verdict": None if seed == 5 else "holds" if seed < 4 else "fails",
            }
        )  # fmt: skip
    file = folder / "rows.parquet"
    file.write_bytes(encode_part(SCHEMA, rows, folder))
    return Table([file])


@pytest.fixture
def drawn(table, monkeypatch):
    """Draws a plot, and gives the words on what is left out and the panels."""
    from iclflow.drawing import style as _style

    canvas, kept = _style.canvas, []

    def watched(*words, **options):
        kept[:] = canvas(*words, **options)
        return tuple(kept)

    monkeypatch.setattr(_style, "canvas", watched)

    def draw(plot):
        words = []
        assert plot.draw(table, "png", words.append).startswith(b"\x89PNG")
        kept[0].draw_without_rendering()  # places texts for its own resolution again
        return words, kept[1]

    return draw


def refusal(table, *columns, **options):
    with pytest.raises(InputError) as refused:
        Plot(*columns, **options).draw(table, "png", lambda words: None)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "run, seed",
        "*",
        "run) AS a, (seed",
        "COLUMNS('run|seed')",
        "1) UNION ALL SELECT (2",
        "run;",
        " ",
    ],
)
@pytest.mark.parametrize("flag", ["x", "y", "hue", "facet", "where"])
def test_every_flag_is_one_expression(table, flag, text):
    columns = {"x": "model.scale", "y": "final_loss"} | {flag: text}
    words = refusal(table, **columns)
    assert f"`{flag}` = " in words and ("must be one" in words or "cannot be answered" in words)


def test_expressions_with_commas_and_comments_inside_are_taken(table):
    flags = {"x": "greatest(run, 5) -- of both", "y": "'a, (b'", "hue": None, "facet": "(seed)"}
    rows = select_rows(table, flags, "run < 7 /* ) */")
    assert rows == [(max(i, 5), "a, (b", None, i % 6, False) for i in range(7)]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (("levels", "final_loss"), "must be one column of numbers or texts, such as levels[1]"),
        (("{'a': run}", "final_loss"), "must be one column of numbers or texts, and this"),
        (("run", "task.eigenvalues"), "such as task.eigenvalues[1]"),
        (("unnest([1, 2])", "final_loss"), "must each have one value for every run"),
        (("run", "avg(final_loss)"), "cannot be answered"),
        (("hash", "final_loss"), "has 102 different texts: must have at most 40"),
        (("run", "verdict"), "`y` = \"verdict = 'holds'\" draws the share of runs"),
        (("run", "'nan'::DOUBLE"), "There is nothing to draw"),
        (("run", "final_los"), "`y` = final_los cannot be answered: there is no column"),
        (("model.scale", "task.noise"), "`hue` is missing: `y` = task.noise is a swept"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(table, columns, sentence):
    assert sentence in refusal(table, *columns)


def test_shares_need_what_is_true_or_false_and_have_no_logarithm(table):
    words = refusal(table, "model.scale", "seed", kind="line", statistic="share")
    assert 'must be true or false, such as `y` = "seed = 0"' in words
    assert "has no logarithm" in refusal(table, "model.scale", "seed > 1", log=["y"])


def test_diverged_runs_are_left_out_unless_one_asks_for_them(drawn):
    words, (panel,) = drawn(Plot("model.scale", "final_loss"))
    (word,) = words
    assert word.startswith("6 of 108 runs diverged and are left out")
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), 3.5)
    words, (panel,) = drawn(Plot("model.scale", "final_loss", where="result IS NOT NULL"))
    assert words == [] and panel.lines[0].get_ydata()[-1] > 1e89


@pytest.mark.parametrize(
    "hue, entries",
    [(None, ["median", "quartiles"]), ("task.noise", None)],
)
def test_the_legend_names_the_band(drawn, hue, entries):
    _, axes = drawn(Plot("model.scale", "final_loss", hue))
    (legend,) = axes[0].figure.legends
    found = [text.get_text() for text in legend.get_texts()]
    assert found[-1] == "quartiles" and entries in (None, found)


def test_values_that_are_not_finite_or_have_no_logarithm_are_left_out_and_counted(drawn):
    words, _ = drawn(Plot("run", "1e308 * run", where="run < 9"))
    assert words == ["8 of 9 runs have a `1e308 * run` that is not finite and are left out."]
    words, (panel,) = drawn(Plot("model.scale", "over_floor", where="run < 60", log=["x", "y"]))
    assert words[0].startswith("20 of 60 runs have a `over_floor` that is not positive")
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), 0.1)


def test_what_is_true_or_false_is_drawn_as_a_share_with_its_interval(drawn):
    words, (panel,) = drawn(Plot("model.scale", "verdict = 'holds'"))
    assert words == ["18 of 108 runs have no `verdict = 'holds'` and are left out."]
    np.testing.assert_allclose(panel.lines[0].get_ydata(), 0.8)
    assert panel.get_ylim() == (-0.03, 1.03)
    # Wilson's interval for 8 of 10, from the formula itself.
    z, n, p = 1.959963984540054, 10, 0.8
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [(p + z**2 / (2 * n) + side * half) / (1 + z**2 / n) for side in (-1, 1)]
    band = panel.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], expected)


def test_statistics_are_those_of_their_names():
    values = [1.0, 2.0, 3.0, 10.0]
    assert STATISTICS["median"](values)[1] == 2.5
    error = math.sqrt(sum((v - 4) ** 2 for v in values) / 3 / 4)
    np.testing.assert_allclose(STATISTICS["mean"](values), [4 - error, 4, 4 + error])
    assert STATISTICS["mean"]([2.0]) == (2, 2, 2)
    assert STATISTICS["share"]([1.0, 0.0, 0.0, 1.0])[1] == 0.5


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("facet", [None, "task.noise", "seed", "task.eigenvalues"])
def test_labels_of_phase_diagrams_are_even_and_do_not_touch(drawn, facet):
    plot = Plot("model.scale", "task.noise", "final_loss", facet, where="run < 102")
    if facet == "task.noise":
        plot = Plot("model.scale", "seed", "final_loss", facet, where="run < 102")
    _, panels = drawn(plot)
    for panel in panels:
        labels = [label for label in panel.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        assert len(labels) > 2 and len(set(np.diff(panel.get_xticks()))) == 1
        assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:]))


def test_long_names_are_wrapped(drawn):
    y = "final_loss + final_loss + final_loss + final_loss > 1"
    _, (panel,) = drawn(Plot("model.scale", y))
    figure = panel.get_figure()
    box = panel.yaxis.label.get_window_extent()
    assert "\n" in panel.get_ylabel() and 0 <= box.y0 and box.y1 <= figure.bbox.height


def test_values_of_every_kind_have_an_order():
    values = [False, 2, (), (1.0, 2.0), "a", None]
    assert sort_values(values[::-1]) == values


def test_long_texts_leave_room_for_the_figure(drawn):
    _, panels = drawn(Plot("repeat(hash, 8)", "final_loss", facet="seed", where="run < 36"))
    assert all(panel.get_window_extent().height > 50 for panel in panels)


def test_cells_of_a_phase_diagram_leave_out_what_a_plot_leaves_out(table):
    notes: list[str] = []
    cells, statistic = phase_cells(table, "model.scale", "task.noise", "final_loss", notes.append)
    assert statistic == "median" and notes == ["6 of 108 runs diverged and are left out."]
    # All runs of the last cell diverged.
    assert len(cells) == 17 and (SCALES[-1], 0.1) not in cells
    assert all(cell == (2.25, 3.5, 4.75, 6) for cell in cells.values())
    shares, statistic = phase_cells(
        table, "task.eigenvalues", None, "verdict = 'holds'", notes.append
    )
    assert statistic == "share" and shares[(0.5, 0.0), None][1::2] == (0.8, 45)


def test_a_diagram_of_the_explorer_has_the_cells_of_a_plot(table, monkeypatch):
    points = [SimpleNamespace(settings={"model.scale": scale, "task.noise": noise})
              for scale in SCALES for noise in (0.0, 0.1)]  # fmt: skip
    sweep = SimpleNamespace(axes=("model.scale", "task.noise"), points=points, seeds=range(6))
    monkeypatch.setattr(_job_stored, "_open", lambda folder: (sweep, table))
    found = _job_stored.draw_diagram(None, "", "model.scale", "task.noise", "final_loss")
    assert found["z"] == [[3.5] * 9, [3.5] * 8 + [None]]
    assert found["spread"][0] == [2.5] * 9 and found["count"][0] == [6] * 9
    words = "median over 6 runs (seed). 6 of 108 runs diverged and are left out"
    assert found["words"] == words
    shares = _job_stored.draw_diagram(None, "", "task.noise", None, "verdict")
    assert shares["z"] == [[0.8, 0.8]] and "share of 45 runs" in shares["words"]

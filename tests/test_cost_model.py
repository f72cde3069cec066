"""The cost model finds what things cost, and says when it cannot."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import benchmarks as bench
from benchmarks import _small_sweeps, scale
from benchmarks._cost_model import (
    Overheads,
    adam_counts,
    fit_cost,
    flow_counts,
    flow_weights,
    million_runs,
)
from benchmarks._row import Timing
from iclflow.models import Attention

FLOWS = [(2, 2, 500, 100), (4, 2, 300, 100), (4, 4, 500, 100), (4, 4, 1200, 100)]
FLOWS += [(4, 4, 700, 400), (4, 8, 450, 100), (8, 2, 600, 100), (8, 4, 550, 50)]
PRICES = {
    "run": 3e-4, "try": 2e-7, "weight of a try": 2e-8, "product of a try": 5e-9,
    "kept number": 1e-8,
}  # fmt: skip


def test_known_prices_are_found_whatever_their_size():
    counts = [flow_counts(*size) for size in FLOWS]
    seconds = [sum(PRICES[name] * each[name] for name in PRICES) for each in counts]
    model = fit_cost(counts, seconds)
    # Rounding, times the condition of eight sizes in five prices, below 1e4.
    assert model.prices == pytest.approx(PRICES, rel=1e-9)
    beyond = flow_counts(12, 8, 900, 100)
    assert model.seconds(beyond) == pytest.approx(sum(PRICES[k] * beyond[k] for k in PRICES))


def test_small_sizes_count_as_much_as_large_ones():
    # One price for two sizes that disagree, so that the relative errors are −ε and ε.
    counts = [{"run": 1.0}, {"run": 1000.0}]
    price = fit_cost(counts, [0.9, 1100.0]).prices["run"]
    shares = np.asarray([1 / 0.9, 1000 / 1100])
    assert price == pytest.approx(shares.sum() / (shares @ shares))


def test_a_price_is_never_negative():
    counts = [{"run": 1.0, "step": float(steps)} for steps in (1, 2, 3, 4)]
    model = fit_cost(counts, [4.0, 3.0, 2.0, 1.0])
    assert model.prices["step"] == 0 and model.prices["run"] > 0


@pytest.mark.parametrize(
    "counts, seconds, sentence",
    [
        ([{"run": 1.0, "step": 2.0}] * 2, [1.0, 2.0], "2 prices need at least 3"),
        ([{"run": 1.0}] * 3, [1.0, 2.0], "3 sizes and 2 times"),
        ([{"run": 1.0}] * 2, [1.0, 0.0], "every time must be positive"),
        ([], [], "holds 0 sizes"),
    ],
)
def test_what_cannot_be_fitted_is_refused(counts, seconds, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit_cost(counts, seconds)


def test_the_fits_have_more_sizes_than_prices_and_the_checks_are_not_among_them():
    flow, adam = flow_counts(2, 2, 1, 1), adam_counts(2, 2, 3, 1, 1, 1)
    assert len(scale.FLOW_SIZES) > len(flow) and len(scale.ADAM_SIZES) > len(adam)
    for sizes, checks in (
        (scale.FLOW_SIZES, scale.FLOW_CHECKS),
        (scale.ADAM_SIZES, scale.ADAM_CHECKS),
    ):
        assert len(sizes) >= 6 and len(checks) >= 2 and not set(sizes) & set(checks)
    # Every price can be told from the others.
    tries = 500
    for rows in (
        [flow_counts(s.dim, s.heads, tries * s.end / 200, s.points) for s in scale.FLOW_SIZES],
        [adam_counts(*size) for size in scale.ADAM_SIZES],
    ):
        matrix = np.asarray([list(row.values()) for row in rows])
        assert np.linalg.matrix_rank(matrix / np.linalg.norm(matrix, axis=0)) == matrix.shape[1]


@pytest.mark.parametrize("dim, heads", [(2, 3), (4, 4)])
def test_weights_are_counted_as_the_model_has_them(dim, heads, getkey):
    model = jax.eval_shape(lambda key: Attention.separate(key, dim, heads, 1), getkey())
    assert flow_weights(dim, heads) == sum(leaf.size for leaf in jax.tree.leaves(model))


OVERHEADS = Overheads(row=1e-4, join=1e-5, task=1e-2, compile=10.0, row_bytes=100.0)


def test_the_bottleneck_moves_from_computing_to_the_driver():
    one = million_runs(1e-2, OVERHEADS, workers=1, batch=250)
    assert one.parts == pytest.approx(
        {"computing": 1e4, "compiling": 10, "rows": 100, "tasks": 40, "joining": 10}
    )
    assert (one.seconds, one.bottleneck) == (pytest.approx(1e4 + 10 + 10), "computing")
    many = million_runs(1e-2, OVERHEADS, workers=1000, batch=250)
    # 4 000 batches are four turns of 1 000 workers; the driver cannot keep up.
    assert many.parts["computing"] == pytest.approx(4 * 250 * 1e-2)
    assert (many.seconds, many.bottleneck) == (pytest.approx(100 + 40 + 10), "rows")


def test_more_workers_than_batches_are_no_faster():
    most = million_runs(1.0, OVERHEADS, workers=4000, batch=250)
    assert most.parts["computing"] == pytest.approx(250.0)
    assert million_runs(1.0, OVERHEADS, workers=9000, batch=250).parts == most.parts


@pytest.fixture
def tiny(monkeypatch):
    """Sizes that run in a moment; the flow is that of the rows, and compiled once."""
    monkeypatch.setattr(_small_sweeps, "workers", lambda: 1)
    monkeypatch.setattr(scale, "FLOW_SIZES", (scale.Flow(2, 1, end=1e-3, points=2),))
    monkeypatch.setattr(scale, "ADAM_SIZES", (scale.Adam(2, 1, 3, 4, 3, 2),))


@pytest.mark.slow
def test_a_quick_run_measures_and_judges_nothing(tiny, capsys):
    results = json.loads(json.dumps(bench.main("scale", quiet=True, quick=True)))
    assert capsys.readouterr().out == "" and results["model"] == {}
    rows = {row["name"]: row for row in results["rows"]}
    assert {row["group"] for row in rows.values()} == {scale.FLOWS, scale.ADAM, "around the runs"}
    assert all(row["met"] is None for row in rows.values())
    timed = [row for row in rows.values() if row["unit"] != "MiB"]
    assert all(row["value"] > 0 for row in timed) and len(timed) == 6
    assert "tries" in rows["D = 2, H = 1, to t = 0.001, 2 points"]["note"]
    # Two whole numbers, three times and texts that compress: not nothing, and not kilobytes.
    assert 20 < rows["a row of the table"]["value"] < 1000


def test_a_full_run_fits_checks_and_reckons(monkeypatch):
    random = dict(zip(adam_counts(1, 1, 1, 1, 1, 1), (1.0, 1e-4, 0.0, 1e-9, 0.0)))

    def measured(size, repeats, quick=False):
        flow = isinstance(size, scale.Flow)
        tries = 500.0 * size.end / 200 if flow else 0.0
        blank = _small_sweeps.Measured(size, 4, Timing(()), 2.0, tries, size.points, 8.0)
        prices = PRICES if flow else random
        seconds = sum(price * blank.counts[name] for name, price in prices.items())
        timing = Timing((4 * seconds / _small_sweeps.workers(),) * repeats)
        return dataclasses.replace(blank, timing=timing)

    monkeypatch.setattr(scale, "measured", measured)
    costs = {"row": 1e-4, "join": 1e-5, "row_bytes": 100.0}
    monkeypatch.setattr(scale, "table_costs", lambda few, many: (costs, []))
    monkeypatch.setattr(scale, "task_cost", lambda *_: (0.01, bench.Row("g", "a task", 10.0)))
    found = {}
    rows = scale.run(keep=found.update)
    assert found["prices"]["flows"] == pytest.approx(PRICES, rel=1e-6)
    assert found["compile"] == {"flows": 2.0, "adam": 2.0}
    unseen = [row for row in rows if row.group.endswith("not in the fit") and row.unit == "ms"]
    assert len(unseen) == len(scale.FLOW_CHECKS) + len(scale.ADAM_CHECKS)
    assert all(row.note.endswith("1.00 ×") for row in unseen)
    context = next(row for row in rows if "L = 1000 over one with L = 31" in row.name)
    assert context.value == pytest.approx(1.0)
    paper = [row for row in rows if row.group.startswith(scale.PAPER)]
    hours = [row.value or 0.0 for row in paper]
    assert len(hours) == 8 and hours[0] > hours[1] >= hours[2] > 0

"""Progress: a share of what is done wherever one is known, in any width."""

import io

import numpy as np
import pytest
from rich.console import Console

from iclflow.experiment import overlay, prepare
from iclflow.experiment._share import Share
from iclflow.flows import Status
from iclflow.papers import study
from iclflow.runtime import progress_bar


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_bar_cuts_its_text_and_no_time(width):
    bar = progress_bar()
    state = "t = 1.152e+06, 71,168 steps of the solver, loss 0.37737"
    bar.add_task("a-run", total=1.0, completed=0.4, state=state)
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(bar.get_renderable())
    (line,) = text.getvalue().splitlines()
    assert len(line) <= width
    for shown in ("a-run", "40%", "0:00:00", "-:--:--"):
        assert shown in line, (shown, line)
    assert ("loss 0.37737" in line) == (width == 120) and ("…" in line) == (width < 120)


def test_a_flow_without_an_end_is_measured_by_the_drops_that_theory_expects():
    experiment = prepare(study("linear/staircase"))
    predicted = overlay(experiment)
    assert predicted is not None
    last = float(np.max(predicted.drop_times))
    at = lambda clock, fraction=None: Status(clock, 0.5, 100, fraction)
    share = Share(experiment, patience=0.0)
    assert share(at(0.6 * last)) == pytest.approx(0.5)
    assert share(at(0.6 * last, 0.1)) == 0.1  # what is known is not guessed
    assert share(at(5 * last)) < 1
    # A run that is over soon is not kept waiting for theory.
    assert Share(experiment)(at(last)) is None
    # Without theory nothing is promised.
    unknown = prepare(study("linear/in-weight").model_copy(update={"theory": False}))
    assert overlay(unknown) is None and Share(unknown, patience=0.0)(at(5.0)) is None

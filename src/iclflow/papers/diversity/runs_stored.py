"""Outputs that are stored with the code of arXiv 2405.11751, and theory with its extra column."""

import numpy as np

from ...theory import diversity
from .. import Lab, once
from .runs_data import Point, draw_tasks, white_law

# ICL errors at d = 100, κ = ½, ρ = .01 by α and τ: means of ten runs, and their standard errors.
STORED = {
    (1.0, 0.5): (1.305, 0.003),
    (1.0, 1.15): (4.167, 0.038),
    (1.0, 2.0): (1.279, 0.004),
    (10.0, 0.85): (2.200, 0.020),
    (10.0, 1.15): (3.107, 0.041),
    (10.0, 2.0): (0.9438, 0.005),
}


@once
def stored_theory(lab: Lab) -> np.ndarray:
    """The corrected errors for each of `STORED`, for one set of tasks."""
    del lab
    rows, found = draw_tasks(np.random.default_rng(8), 50, 100), []
    for alpha, tau in STORED:
        at = Point.of_ratios(100, tau, alpha, 0.5, 0.01)
        fresh = white_law(at)
        task = diversity.with_tasks(fresh, rows)
        column = diversity.label_column(task, rows)
        found.append(
            diversity.corrected_risks(task, at.sequences, fresh, rows, label_column=column).test
        )
    return np.array(found)

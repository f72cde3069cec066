"""Least squares on drawn sequences with contexts from short to very long."""

import numpy as np

from .. import Lab
from .runs_data import Point, drawn_errors

# d; α; and τ, κ, ρ on both sides of κ = min(τ, 1), where arXiv 2405.11751 has its Figure 3.
MAPPED = 16
ALONG = (1, 4, 16, 64, 256, 1024)
PLACES = tuple((tau, kappa, rho) for tau, kappa in ((0.5, 0.25), (0.5, 1.5), (3.0, 0.25),
               (3.0, 0.75), (3.0, 1.5)) for rho in (0.1, 0.5))  # fmt: skip


def along_contexts(lab: Lab, sets: int) -> np.ndarray:
    """The mean ICL error on drawn data at each of `PLACES` (rows) and `ALONG`."""
    found = np.empty((len(PLACES), len(ALONG)))
    for i, (tau, kappa, rho) in enumerate(PLACES):
        for j, alpha in enumerate(ALONG):
            at = Point.of_ratios(MAPPED, tau, alpha, kappa, rho)
            found[i, j] = drawn_errors(lab, at, sets)[1][:, 0].mean()
    return found

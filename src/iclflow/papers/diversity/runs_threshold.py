"""The exact optimum of a layer on many sets of random tasks: plain linear algebra."""

import numpy as np

from .. import Lab, once

SIZE, COUNTS, LENGTHS = 10, (4000, 16_000), (20, 200)
_NOISE, _DRAWN = 0.1, 2_000_000


@once
def many_tasks(lab: Lab) -> np.ndarray:
    """The mean loss on unseen unit tasks above that on K of them, for each K and N."""
    del lab
    rng = np.random.default_rng(0)
    return np.array([_gaps(rng, count) for count in COUNTS])


def _gaps(rng: np.random.Generator, count: int) -> list[float]:
    sets, gaps = _DRAWN // count, []
    moments = np.empty((sets, SIZE, SIZE))
    for i in range(sets):
        w = rng.standard_normal((count, SIZE))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        moments[i] = w.T @ w / count
    off = np.eye(SIZE) / SIZE - moments
    # Gaps follow the spread of M, whose mean over sets of tasks is known: this takes out most of
    # what single sets do.
    known = (1 - 1 / SIZE) / count / np.mean(np.sum(off**2, (1, 2)))
    for length in LENGTHS:
        features = (1 + 1 / length) * moments + (1 + _NOISE) / length * np.eye(SIZE)
        A = np.linalg.solve(features, moments)
        # The mean of w(I − A)(I − A)ᵀw + (wAAᵀw)/N is all that depends on the tasks.
        left = np.eye(SIZE) - A
        risk = left @ left.transpose(0, 2, 1) + A @ A.transpose(0, 2, 1) / length
        gaps.append(known * float(np.mean(np.sum(off * risk, (1, 2)))))
    return gaps

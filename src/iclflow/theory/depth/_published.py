"""The experiments of arXiv 2306.00297 as exact numbers: what its stacks can reach.

Its tasks, x ~ N(0, Λ) and w ~ N(0, Λ⁻¹), are white in disguise (`whitened`). Its released baseline
of preconditioned gradient descent takes the pairs `Z[0:N-1]`, where the query is no longer among
the N: it uses N − 1 of the N pairs. Derived in docs/theory/depth.md.
"""

from typing import NamedTuple

import numpy as np

from ...tasks import LinearRegression
from .._check import check_positive, check_whole
from ._best_steps import best_steps
from ._loop import tied_loop
from ._spectrum import Sizes, Spectrum
from ._stack import stack_loss


class PublishedLosses(NamedTuple):
    """Losses E(y_q − ŷ)² of L layers on one task.

    - `optimum`: the best untied steps, with B = 0.
    - `loop`: the best single step, used L times.
    - `baseline`: the released baseline, L equal steps on all pairs but one.
    """

    optimum: float
    loop: float
    baseline: float


def published_losses(
    task: LinearRegression | Sizes, layers: int, rate: float = 0.04
) -> PublishedLosses:
    """Optimum, loop and released baseline of white inputs.

    **Arguments:**

    - `rate`: η of the baseline, the step on the sum over pairs.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> np.round(icl.theory.depth.published_losses(task, 2), 7)
    array([0.3612397, 0.4990074, 0.5419008])

    ```
    """
    spectrum, layers = Spectrum.of(task), check_whole("layers", layers)
    best, loop = best_steps(spectrum, layers), tied_loop(spectrum, layers)
    loss = lambda risk: spectrum.query_noise + spectrum.power * risk
    baseline = released_baseline(task, layers, rate)
    return PublishedLosses(loss(best.risk), loss(loop.risk), baseline)


def released_baseline(task: LinearRegression | Sizes, layers: int, rate: float = 0.04) -> float:
    """The loss of L steps of size η on Σ over N − 1 of the N pairs: γ = η(N − 1) on N − 1 pairs.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> round(icl.theory.depth.released_baseline(task, 1), 9)
    1.2

    ```
    """
    sizes, rate = Sizes.of(task), check_positive("rate", rate)
    pairs = check_whole("length", sizes.length, 2) - 1
    fewer = Sizes(sizes.dim, pairs, sizes.variance, sizes.signal, sizes.noise, sizes.query_noise)
    return stack_loss(fewer, np.full(check_whole("layers", layers), rate * pairs))

"""The best real steps where no formula gives them: noise makes layers equal, in pairs and groups.

Where the bound of their degree wants complex steps, some layers merge. R then has several minima in
γ, and these are found by descent from many starts: the steps that are best without noise, drawn
together towards the loop by degrees, and random ones. Derived in docs/theory/depth.md.
"""

import numpy as np
import scipy
from jaxtyping import Float

from .._check import check_whole
from ._loop import tied_loop
from ._optimum import NotReached, OptimalStack, gauss_nodes, optimal_stack, stack_bayes, stack_bound
from ._spectrum import ScalarTask, Spectrum
from ._stack import stack_force, stack_hessian, stack_risk

# How far the steps without noise are drawn towards the loop, as powers of their ratio to it.
_DRAWN = (1.0, 0.7, 0.4, 0.2, 0.05)
_RANDOM = 12


def best_steps(task: ScalarTask, layers: int, seed: int = 0) -> OptimalStack:
    """The best real steps at any noise: by formula where there is one, else the best of a search.

    **Arguments:**

    - `seed`: of the random starts of the search.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=0.25)
    >>> best = icl.theory.depth.best_steps(task, 4)
    >>> best.steps.round(3), round(best.risk, 7), best.exact  # the last two have merged
    (array([0.365, 0.49 , 1.251, 1.251]), 0.0851842, False)

    ```
    """
    spectrum = Spectrum.of(task)
    try:
        return optimal_stack(spectrum, layers)
    except NotReached:
        pass
    found = [local_minimum(spectrum, start) for start in _starts(spectrum, layers, seed)]
    best = np.sort(min(found, key=lambda steps: stack_risk(spectrum, steps)))
    bound, bayes = stack_bound(spectrum, layers), stack_bayes(spectrum)
    return OptimalStack(best, stack_risk(spectrum, best), bound, bayes, False)


def local_minimum(task: ScalarTask, start: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """The minimum of R in γ to which descent leads from `start`."""
    spectrum = Spectrum.of(task)
    return scipy.optimize.minimize(
        lambda steps: stack_risk(spectrum, steps),
        start,
        jac=lambda steps: -2 * stack_force(spectrum, steps),
        hess=lambda steps: 2 * stack_hessian(spectrum, steps),
        method="trust-exact",
        options={"gtol": 1e-12},
    ).x


def _starts(spectrum: Spectrum, layers: int, seed: int) -> list[np.ndarray]:
    """Steps to descend from, none with equal entries: descent would keep them equal."""
    rng, loop = np.random.default_rng(check_whole("seed", seed, 0)), tied_loop(spectrum, layers)
    free = 1 / gauss_nodes(spectrum, layers)
    # Equal layers that are stable stay so; tiny differences decide where they are not.
    apart = 1 + 1e-3 * np.linspace(-1, 1, layers)
    drawn = [loop.step * (free / loop.step) ** power * apart for power in _DRAWN]
    spread = np.exp(rng.uniform(np.log(free.min()), np.log(free.max()), (_RANDOM, layers)))
    return [loop.step * apart, *drawn, *spread]

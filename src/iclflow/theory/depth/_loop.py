"""One step used L times: where tied layers rest, how they are left, and when they are best.

At equal steps γ°, with q = 1 − γ°s, any small difference between two layers grows at the rate
κ = E[s G q^{L−2}], G = (s + c)q^L − c. Without noise κ = E[s²q^{2L−2}] > 0: the loop is a saddle
of index L − 1, with half Hessian κ(2·11ᵀ − I). Derived in docs/theory/depth.md.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_positive, check_whole
from ._optimum import stack_bayes
from ._search import find_lowest, find_root
from ._spectrum import ScalarTask, Sizes, Spectrum
from ._stack import Steps, check_steps


@dataclass(frozen=True)
class TiedLoop:
    """L layers with one step, at rest.

    - `step`: γ°; `risk`: R there.
    - `rate`: κ, at which differences between layers grow; negative where the loop is stable.
    - `stable_rate`: how fast a common deviation decays; (2L − 1)κ without noise.
    - `index`: the number of growing directions, L − 1 or 0.

    Rates are those of γ̇_l = F_l; a task multiplies them with `Spectrum.speed`.
    """

    step: float
    risk: float
    rate: float
    stable_rate: float
    index: int


def tied_loop(task: ScalarTask, layers: int) -> TiedLoop:
    """The best single step γ° of a loop of L layers, and its Hessian among untied layers.

    With noise R of a loop may have more than one minimum: this is the one that training reaches
    from γ = 0.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> loop = icl.theory.depth.tied_loop(task, 2)
    >>> round(loop.step, 8), round(loop.risk, 8), round(loop.rate, 8), loop.index
    (0.74251814, 0.09980148, 0.23922991, 1)

    ```
    """
    spectrum, layers = Spectrum.of(task), check_whole("layers", layers)
    step = _first_rest(spectrum, layers)
    rate, stable = loop_rates(spectrum, layers, step)
    index = (layers - 1) * int(rate > 0)
    risk = float(more_loops(spectrum, step, [layers])[0])
    return TiedLoop(step, risk, rate, stable, index)


def loop_rates(spectrum: Spectrum, layers: int, step: float) -> tuple[float, float]:
    """The rates of growth of differences and of decay of the mean at equal steps γ.

    κ = E[s G q^{L−2}], and −dF/dγ = L·E[s(s + c)q^{2L−2}] + (L − 1)κ.
    """
    s, c = spectrum.values, spectrum.cost
    q = 1 - step * s
    own = spectrum.mean(s * (s + c) * q ** (2 * layers - 2))
    if layers == 1:
        return float(own), float(own)
    growth = spectrum.mean(s * ((s + c) * q**layers - c) * q ** (layers - 2))
    return float(growth), float(layers * own + (layers - 1) * growth)


def tied_force(spectrum: Spectrum, layers: int, step: float) -> float:
    """F = E[((s + c)q^L − c)q^{L−1}] of each of L equal layers."""
    s, c = spectrum.values, spectrum.cost
    q = 1 - step * s
    return float(spectrum.mean(((s + c) * q**layers - c) * q ** (layers - 1)))


def tied_invariant(task: ScalarTask, steps: Steps) -> Float[np.ndarray, " L"]:
    """(γ_l − γ̄) F(γ̄)^{1/(2L−1)}, which the flow keeps as long as layers are nearly equal.

    To first order in the differences, without noise.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.theory.depth.tied_invariant(task, [0.001, -0.001]).round(6)
    array([ 0.001, -0.001])

    ```
    """
    spectrum, steps = Spectrum.of(task), check_steps(steps)
    if spectrum.cost > 0:
        raise Refusal("`task` has noise: this invariant is exact without noise alone.")
    count = len(steps)
    force = tied_force(spectrum, count, float(steps.mean()))
    return (steps - steps.mean()) * np.sign(force) * abs(force) ** (1 / (2 * count - 1))


def loop_noise_threshold(dim: int, length: int, layers: int) -> float:
    """σ²* above which the loop is stable against splitting, for E(w·x)² = 1 at finite d and N.

    There κ changes sign: E[s(s + c)q^{2L−2}] = cE[s q^{L−2}]. For two layers the loop is then the
    best of all steps; for more this is its stability alone.

    ```pycon
    >>> round(icl.theory.depth.loop_noise_threshold(5, 20, 2), 6)
    0.849728

    ```
    """
    dim, length = check_whole("dim", dim), check_whole("length", length)
    layers = check_whole("layers", layers, 2)
    free = Spectrum.of(Sizes(dim, length, 1.0, 1 / dim, 0.0, 0.0))
    return length / dim * cost_threshold(free, layers)


def cost_threshold(task: ScalarTask, layers: int) -> float:
    """c* above which the loop is stable against splitting, for any spectral measure.

    ```pycon
    >>> limit = icl.theory.depth.Spectrum.proportional(0.25)
    >>> round(icl.theory.depth.cost_threshold(limit, 2), 8)
    0.18046042

    ```
    """
    spectrum, layers = Spectrum.of(task), check_whole("layers", layers, 2)

    def rate(cost: float) -> float:
        noisy = with_cost(spectrum, cost)
        return loop_rates(noisy, layers, _first_rest(noisy, layers))[0]

    high = 0.1 * float(spectrum.mean(spectrum.values))
    while rate(high) > 0:
        high *= 2
    return find_root(rate, 0.0, high)


def cost_threshold_limit(ratio: float) -> float:
    """c* = ⅔[√((1 + φ)² + 3φ) − (1 + φ)] of two layers for d, N → ∞, d/N → φ.

    ```pycon
    >>> round(icl.theory.depth.cost_threshold_limit(0.25), 8)
    0.18046042

    ```
    """
    ratio = check_positive("ratio", ratio)
    return float(2 / 3 * (np.sqrt((1 + ratio) ** 2 + 3 * ratio) - (1 + ratio)))


def more_loops(
    task: ScalarTask, step: float, loops: list[int] | range
) -> Float[np.ndarray, " loops"]:
    """R of a loop with one step run for each number of `loops`, however it was trained.

    Without end it diverges for every γ ≠ 0 at finite d and N, as the spectrum has no end.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> step = icl.theory.depth.tied_loop(task, 2).step
    >>> icl.theory.depth.more_loops(task, step, [1, 2, 4, 10]).round(4)
    array([0.2317, 0.0998, 0.0376, 4.8571])

    ```
    """
    spectrum = Spectrum.of(task)
    counts = [check_whole("loops", count, 0) for count in loops]
    with np.errstate(over="ignore", invalid="ignore"):
        powers = (1 - step * spectrum.values) ** np.array(counts)[:, None]
        risks = spectrum.mean(powers**2) + spectrum.cost * spectrum.over((1 - powers) ** 2)
    if not np.all(np.isfinite(risks)):
        raise Refusal(f"`loops` = {counts}: the risk is too large for a number.")
    return risks


def stopped_flow(task: ScalarTask) -> tuple[float, float]:
    """Time a and risk of optimally stopped gradient flow, min_a E[e^{−2as} + c(1 − e^{−as})²/s].

    Where noise makes the loop best, this is the limit of ever more layers; it is above Bayes.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=1.0)
    >>> np.round(icl.theory.depth.stopped_flow(task), 4)
    array([1.9949, 0.2504])

    ```
    """
    spectrum = Spectrum.of(task)
    if spectrum.cost == 0:
        return np.inf, stack_bayes(spectrum)
    s = spectrum.values

    def risk(log_time: float) -> float:
        kept = np.exp(-np.exp(log_time) * s)
        return float(spectrum.mean(kept**2) + spectrum.cost * spectrum.over((1 - kept) ** 2))

    # The best time lies between those that suit the largest and the smallest eigenvalue alone.
    grid = np.linspace(-np.log(s.max() + spectrum.cost) - 5, 15, 400)
    at = int(np.argmin([risk(point) for point in grid]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    best, value = find_lowest(risk, low, high, 1e-10)
    return float(np.exp(best)), value


def with_cost(spectrum: Spectrum, cost: float) -> Spectrum:
    """The same spectrum with another price of noise."""
    return Spectrum(spectrum.values, spectrum.weights, cost, spectrum.power, spectrum.speed)


def _first_rest(spectrum: Spectrum, layers: int) -> float:
    """The smallest γ > 0 at which a loop rests; F > 0 below it."""
    force = lambda step: tied_force(spectrum, layers, step)
    # F(0) = E s, and |F′| is largest at 0 without noise: a rest is not nearer than this.
    grain = float(0.2 * spectrum.mean(spectrum.values) / loop_rates(spectrum, layers, 0.0)[1])
    low, high = 0.0, grain
    while force(high) > 0:
        low, high = high, high * 1.1 + grain
    return find_root(force, low, high)

"""Gradient flow of two opposite heads: growth, landing on a slow manifold, drift along it.

The heads (w, μ), (−w, −μ) stay opposite. With L = σ² + 1 − 2ηb(z) + η²c(z), η = 2μw and z = w²,
each head moves by −½∂L/∂(ω, μ):

    ẇ = μ(b − ηc) + ½wη(2b′ − ηc′),     μ̇ = w(b − ηc).

The first terms close the gap to η = b/c within a time of order one and conserve w² − μ². The rest
is a slow drift on the curve η = b/c. By the large-context loss it never ends (w ∝ t^−⅙); by the
exact loss it ends at w*. Derived in docs/theory/softmax.md.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import Refusal
from ._check import Times, check_number, check_times
from ._integrate import integrate
from ._softmax_pair import PairForm, exact_pair
from ._softmax_setting import Isotropic, Setting

PairLoss = Literal["exact", "large_context"]

# Below this x the difference cosh(x) − sinh(x)/x is taken from its series.
_SERIES = 1e-3


class PairFlow(NamedTuple):
    """w(t), μ(t) and the loss of the pair (±w, ±μ) at `times`."""

    times: Float[np.ndarray, " T"]
    w: Float[np.ndarray, " T"]
    mu: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]


class Landing(NamedTuple):
    """Where the pair reaches the slow manifold."""

    w: float
    mu: float


def pair_flow(
    task: Isotropic, times: Times, w: float, mu: float, loss: PairLoss = "exact"
) -> PairFlow:
    """Gradient flow of the pair from (w, μ) at t = 0 by the module's equations for ẇ and μ̇.

    `loss` chooses b and c of the exact or of the large-context loss.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> flow = icl.theory.pair_flow(task, np.array([0.0, 5.0, 20.0]), w=0.01, mu=0.01)
    >>> flow.loss.round(4)
    array([1.0996, 0.3164, 0.2403])
    >>> flow.w.round(3)
    array([0.01 , 0.564, 0.538])
    >>> # From here w drifts, ever more slowly, to that of the best pair.
    >>> round(icl.theory.pair_optimum(task).w, 3)
    0.082
    ```
    """
    at, times = Setting.of(task), check_times(times)
    form = pair_form(at, _widest(w, mu), loss)

    def velocity(_, state):
        w, mu = state
        now, gain = form(w**2), 2 * w * mu
        left = now.b - gain * now.c
        return mu * left + w * gain * (2 * now.db - gain * now.dc) / 2, w * left

    path_w, path_mu = _follow(velocity, times, [w, mu])
    return _with_losses(times, path_w, path_mu, form, at)


def slow_manifold(task: Isotropic, times: Times, w: float, loss: PairLoss = "exact") -> PairFlow:
    """The reduced flow on the curve μ = μ*(w), from w at t = 0: ẇ = −¼L_eff′(w)/(1 + μ*′(w)²).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> drift = icl.theory.slow_manifold(task, np.array([0.0, 1e4, 1e6]), w=0.2)
    >>> drift.w.round(3)
    array([0.2  , 0.134, 0.083])
    >>> drift.loss.round(5)
    array([0.22236, 0.22169, 0.22158])
    >>> best = icl.theory.pair_optimum(task)
    >>> round(best.w, 3), round(best.loss, 5)
    (0.082, 0.22158)
    ```
    """
    at, times = Setting.of(task, shortest=2), check_times(times)
    form = pair_form(at, 1.1 * abs(w), loss)
    (path,) = _follow(lambda _, state: [_drift(form, state[0])], times, [_positive(w)])
    mu = np.array([form(v**2).gain / (2 * v) for v in path])
    return _with_losses(times, path, mu, form, at)


def drift_time(task: Isotropic, start: float, end: float, loss: PairLoss = "exact") -> float:
    """∫ dw/|ẇ|, how long the drift along `slow_manifold` takes from one w to another.

    Both must lie on one side of the optimum w*, which is reached only as t → ∞.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> time = icl.theory.drift_time(task, start=0.2, end=0.15)
    >>> round(time, 1)
    4550.6
    >>> path = icl.theory.slow_manifold(task, np.array([0.0, time]), w=0.2).w
    >>> path.round(4)
    array([0.2 , 0.15])
    ```
    """
    at = Setting.of(task, shortest=2)
    form = pair_form(at, 1.01 * max(start, end), loss)
    low, high = sorted((np.log(_positive(start)), np.log(_positive(end))))
    speeds = np.array([_drift(form, v) for v in np.exp(np.linspace(low, high, 200))])
    if np.any(speeds * np.sign(end - start) <= 0):
        raise Refusal(
            f"`start` = {start} and `end` = {end}: the drift does not lead from one to the other; "
            "both must lie on one side of the optimum, `end` nearer to it."
        )
    time, _ = scipy.integrate.quad(
        lambda x: np.exp(x) / abs(_drift(form, np.exp(x))), low, high, epsrel=1e-10, limit=200
    )
    return time


def drift_law(task: Isotropic, times: Times, start: float = np.inf) -> Float[np.ndarray, " T"]:
    """w(t) = (w₀⁻⁶ + 4(1 + σ²)d³t/L)^−⅙: the drift by the large-context loss while dw² ≪ 1.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> times = np.array([0.0, 100.0, 10_000.0])
    >>> icl.theory.drift_law(task, times, start=0.2).round(4)
    array([0.2   , 0.1985, 0.1505])
    >>> icl.theory.slow_manifold(task, times, w=0.2, loss="large_context").w.round(4)
    array([0.2   , 0.1985, 0.1506])
    ```
    """
    at, times = Setting.of(task), check_times(times)
    return (start**-6.0 + 4 * at.spread * at.dim**3 * times) ** (-1 / 6)


def final_rate(task: Isotropic, w: float) -> float:
    """−dẇ/dw at the optimum `w` of the exact loss: w − w* ∝ e^−rate·t on `slow_manifold`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> best = icl.theory.pair_optimum(task)
    >>> rate = icl.theory.final_rate(task, best.w)
    >>> print(f"{rate:.2e}")
    2.49e-06
    >>> path = icl.theory.slow_manifold(task, np.array([0.0, 1 / rate]), w=1.001 * best.w).w
    >>> # After a time of 1/rate e⁻¹ of the distance is left.
    >>> round(float((path[1] - best.w) / (path[0] - best.w)), 2)
    0.37
    ```
    """
    at = Setting.of(task, shortest=2)
    form, step = pair_form(at, 2 * w, "exact"), 1e-3 * w
    # The drift is smooth and known to about 1e-12: a fourth-order difference keeps six digits.
    near, far = (_drift(form, w + k * step) - _drift(form, w - k * step) for k in (1, 2))
    return float(-(8 * near - far) / (12 * step))


def landing(task: Isotropic, w: float, mu: float, loss: PairLoss = "exact") -> Landing:
    """Where the pair that starts at (w, μ) meets the curve μ = μ*(w) at constant w² − μ².

    An estimate: it leaves out the drift while the pair lands, a time of order one. Needs wμ > 0, or
    weights so small that they get the same sign as they grow.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> place = icl.theory.landing(task, w=0.01, mu=0.3, loss="large_context")
    >>> round(place.w, 3), round(place.mu, 3)
    (0.623, 0.692)
    >>> # w² − μ² is that of the start.
    >>> round(place.w**2 - place.mu**2, 4), round(0.01**2 - 0.3**2, 4)
    (-0.0899, -0.0899)
    ```
    """
    at = Setting.of(task, shortest=2)
    kept = w**2 - mu**2
    widest = _widest(w, mu)
    form = pair_form(at, widest, loss)

    def gap(w: float) -> float:
        return 2 * w * np.sqrt(max(w**2 - kept, 0.0)) - form(w**2).gain

    bracket = (max(kept, 0.0) ** 0.5, widest)
    end = float(scipy.optimize.root_scalar(gap, bracket=bracket, xtol=1e-14).root)
    return Landing(end, float(form(end**2).gain / (2 * end)))


def pair_form(at: Setting, widest: float, loss: PairLoss) -> Callable[[float], PairForm]:
    """b and c of `loss` as a function of z = w², for w up to `widest`."""
    if loss == "exact":
        return exact_pair(at, widest).form
    if loss != "large_context":
        raise Refusal(f'`loss` = {loss!r}: must be "exact" or "large_context".')

    def form(z: float) -> PairForm:
        x = at.dim * z
        # sinh(x)/x and its derivative, which cancels near 0.
        ratio = np.sinh(x) / x if x > 0 else 1.0
        slope = (np.cosh(x) - ratio) / x if x > _SERIES else x / 3 + x**3 / 30
        odds = at.spread * at.dim
        return PairForm(1.0, 1 + odds * ratio, 0.0, odds * at.dim * slope)

    return form


def _drift(form: Callable[[float], PairForm], w: float) -> float:
    """ẇ on the curve η = b/c."""
    now = form(w**2)
    # d(η/2w)/dw with dη/dw = 2w η′, η′ = (b′ − ηc′)/c.
    turn = (now.db - now.gain * now.dc) / now.c - now.gain / (2 * w**2)
    return -0.25 * 2 * w * now.slope / (1 + turn**2)


def _follow(velocity: Callable, times: np.ndarray, start: list[float]) -> np.ndarray:
    options = {"t_eval": times, "rtol": 1e-10, "atol": 1e-13}
    return integrate("The flow of the pair", velocity, start, times[-1], **options).y


def _with_losses(times, w, mu, form, at: Setting) -> PairFlow:
    gains, forms = 2 * w * mu, [form(v**2) for v in w]
    b, c = (np.array([getattr(f, name) for f in forms]) for name in "bc")
    return PairFlow(times, w, mu, at.noise + 1 - 2 * gains * b + gains**2 * c)


def _widest(w: float, mu: float) -> float:
    """More than the w that the flow can reach: w² − μ² stays, and 2wμ stays below 1.5."""
    kept = w**2 - mu**2
    return float(max(abs(w), np.sqrt((kept + np.hypot(kept, 1.5)) / 2)))


def _positive(w: float) -> float:
    allowed = "positive and finite on the slow manifold"
    return check_number("w", w, allowed, lambda x: 0 < x < np.inf)

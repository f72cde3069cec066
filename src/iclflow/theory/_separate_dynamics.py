"""One aligned head of separate key-query attention: the scalar equation and its closed form.

A balanced head along a component, K = v left, Q = v right, stays there and obeys
τ dv/dt = c v² (1 − v³/a) with the growth rate c and the strength a of the component
(arXiv 2501.16265, Section 4; for w ~ N(0, I): c = λ² and a = 1/(λ(1 + 1/N) + (tr Λ + σ²)/N)).
In u = v/a^⅓ and x = c a^⅓ (t − T)/τ it is du/dx = u²(1 − u³), solved by x = `drop_clock(u)`.
T is where v would be infinite without the saturation. Derived in docs/theory/linear.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_fraction
from ._moments import Normaliser
from ._separate_modes import check_room, modes

_ROOT3 = np.sqrt(3.0)
# A fixed count serves whole arrays; convergence is quadratic, and further steps change nothing.
_ITERATIONS = 30


def drop_clock(u: Float[ArrayLike, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """x(u) = −1/u + ∫₀ᵘ s/(1 − s³) ds: the time of the universal drop du/dx = u²(1 − u³).

    For small u it is −1/u: without the saturation, u would be infinite at x = 0.

    **Example:**

    ```pycon
    >>> u = np.array([0.01, 0.5, 0.9])
    >>> icl.theory.drop_clock(u).round(3)
    array([-100.   ,   -1.868,   -0.462])
    >>> icl.theory.drop_profile(icl.theory.drop_clock(u)).round(3)
    array([0.01, 0.5 , 0.9 ])
    ```
    """
    u = np.asarray(u, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(-1 / u - np.log(np.abs(1 - u)) / 3 + _regular(u))


def drop_profile(x: Float[ArrayLike, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """u(x) between 0 and 1, the inverse of `drop_clock`: −1/x long before the drop, 1 after it.

    **Example:**

    ```pycon
    >>> icl.theory.drop_profile(np.array([-100.0, -2.0, 0.0, 2.0])).round(4)
    array([0.01  , 0.4724, 0.9684, 0.9999])
    >>> x, step = -1.0, 1e-5
    >>> u = icl.theory.drop_profile(x)
    >>> slope = (icl.theory.drop_profile(x + step) - icl.theory.drop_profile(x - step)) / (2 * step)
    >>> round(float(slope), 4), round(float(u**2 * (1 - u**3)), 4)
    (0.3255, 0.3255)
    ```
    """
    x = np.asarray(x, dtype=np.float64)
    early = -np.log(np.maximum(-x, 1.0))
    return np.asarray(_newton(x, np.where(x < 0, early, 3 * x + 2), _from_logit))


def aligned_rate(
    v: Float[ArrayLike, "*shape"], growth: float, strength: float
) -> Float[np.ndarray, "*shape"]:
    """τ dv/dt = c v² (1 − v³/a) of a balanced head along a component.

    **Arguments:**

    - `growth`, `strength`: c and a, from `modes(task)`.

    **Example:**

    ```pycon
    >>> # At v³ = a the head is at rest.
    >>> icl.theory.aligned_rate(np.array([0.1, 0.5, 1.0]), growth=0.16, strength=1.0).round(4)
    array([0.0016, 0.035 , 0.    ])
    >>> v = icl.theory.aligned_value(np.array([0.0, 1e-4]), 0.5, growth=0.16, strength=1.0)
    >>> round(float(v[1] - v[0]) / 1e-4, 4)
    0.035
    ```
    """
    v = np.asarray(v, dtype=np.float64)
    return np.asarray(growth * v**2 * (1 - v**3 / strength))


def aligned_time(
    v: Float[ArrayLike, "*shape"], start: float, growth: float, strength: float, tau: float = 1.0
) -> Float[np.ndarray, "*shape"]:
    """When a balanced aligned head that starts at v₀ = `start` reaches `v`.

    (τ/(c a^⅓)) [x(v/a^⅓) − x(v₀/a^⅓)] with x = `drop_clock`. Negative before the start, infinite
    where the head never comes: at a^⅓ and beyond it.

    **Example:**

    ```pycon
    >>> v = np.array([0.1, 0.5, 0.9, 1.0])
    >>> times = icl.theory.aligned_time(v, start=0.01, growth=0.16, strength=1.0)
    >>> times.round(2)
    array([562.53, 613.32, 622.11,    inf])
    >>> icl.theory.aligned_value(times[:3], start=0.01, growth=0.16, strength=1.0).round(2)
    array([0.1, 0.5, 0.9])
    ```
    """
    v, size = np.asarray(v, dtype=np.float64), np.cbrt(strength)
    # Zero and a^⅓ are fixed points: a head stays in the range between them that it starts in.
    same_range = (np.sign(v) == np.sign(start)) & (np.sign(v - size) == np.sign(start - size))
    reached = drop_clock(np.where(same_range, v, start) / size)
    times = tau * (reached - drop_clock(start / size)) / (growth * size)
    return np.asarray(np.where(same_range, times, np.inf))


def aligned_value(
    times: Float[ArrayLike, "*shape"],
    start: float,
    growth: float,
    strength: float,
    tau: float = 1.0,
) -> Float[np.ndarray, "*shape"]:
    """v(t) of a balanced aligned head: the inverse of `aligned_time`.

    A positive head tends to a^⅓, a negative one to zero, as −τ/(ct).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3], context=31)
    >>> found = icl.theory.modes(task)
    >>> growth, strength = found.growth_rates[0], found.strengths[0]
    >>> icl.theory.aligned_value(np.array([0.0, 300.0, 700.0]), 0.01, growth, strength).round(3)
    array([0.01 , 0.019, 1.319])
    >>> round(float(np.cbrt(strength)), 3)
    1.319
    ```
    """
    times = np.asarray(times, dtype=np.float64)
    size = np.cbrt(strength)
    if start == 0 or start == size:
        return np.full_like(times, start)
    u = start / size
    x = drop_clock(u) + growth * size * times / tau
    if 0 < u < 1:
        return np.asarray(size * drop_profile(x))
    if u < 0:
        return np.asarray(size * _newton(x, x, _from_inverse))
    return np.asarray(size * _newton(x, 3 * x + 4, _from_excess))


def aligned_drop_time(
    start: float, growth: float, strength: float, fraction: float = 0.5, tau: float = 1.0
) -> float:
    """When a balanced aligned head has lowered the loss by a fraction of its whole gain.

    The loss falls by y²(1 − (1 − u³)²), so half of it is gone at u³ = 1 − 1/√2.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4], context=31)
    >>> strength = icl.theory.modes(task).strengths[0]
    >>> time = icl.theory.aligned_drop_time(0.01, growth=0.16, strength=strength)
    >>> round(time, 2)
    619.11
    >>> loss = icl.theory.aligned_loss(task, np.array([0.01]), np.array([0.0, time, 1e6]))
    >>> round(float((loss[0] - loss[1]) / (loss[0] - loss[2])), 3)
    0.5
    ```
    """
    if not start > 0:
        raise Refusal(f"`start` = {start}: must be positive; other heads never learn.")
    return float(
        aligned_time(np.cbrt(strength * _drop_share(fraction)), start, growth, strength, tau)
    )


def drop_offset(fraction: float = 0.5) -> float:
    """x where a fraction f of the loss step is gone, u³ = 1 − √(1 − f); −1.2533911927 for ½.

    **Example:**

    ```pycon
    >>> round(icl.theory.drop_offset(), 4)
    -1.2534
    >>> round(float(icl.theory.drop_clock(np.cbrt(1 - np.sqrt(0.5)))), 4)
    -1.2534
    ```
    """
    return float(drop_clock(np.cbrt(_drop_share(fraction))))


def aligned_loss(
    task: LinearRegression,
    start: Float[ArrayLike, " J"],
    times: Float[ArrayLike, "*T"],
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> Float[np.ndarray, "*T"]:
    """L(t) = L(0) − Σ_j y_j² (1 − (1 − v_j³/a_j)²) for one balanced aligned head per component.

    Such heads do not interact.

    **Arguments:**

    - `start`: v(0) of the head of each component.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3], context=31)
    >>> start, times = np.array([0.01, 0.01]), np.array([0.0, 800.0, 1e4])
    >>> icl.theory.aligned_loss(task, start, times).round(3)
    array([0.7  , 0.333, 0.062])
    >>> icl.theory.plateau_losses(task).round(3)
    array([0.7  , 0.333, 0.062])
    ```
    """
    found = modes(task, normaliser)
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (found.count,):
        raise Refusal(f"`start` has shape {start.shape}: must be ({found.count},).")
    loss = found.start
    for v, gain, rate, a in zip(start, found.gains, found.growth_rates, found.strengths):
        left = 1 - aligned_value(times, float(v), float(rate), float(a), tau) ** 3 / a
        loss = loss - gain**2 * (1 - left**2)
    return np.asarray(loss)


def residual_drive(start: float, growth: float, strength: float, tau: float = 1.0) -> float:
    """∫₀^∞ (1 − v³/a) dt = (τ/c)(1/v₀ − 1/a^⅓) of a balanced aligned head.

    Other heads feel its component as if it were switched off at the time T − τ/(c a^⅓).

    **Example:**

    ```pycon
    >>> missed = icl.theory.residual_drive(start=0.01, growth=0.16, strength=2.0)
    >>> round(missed, 2)
    620.04
    >>> # The integral by the midpoint rule.
    >>> times = np.arange(0.05, 1000.0, 0.1)
    >>> v = icl.theory.aligned_value(times, start=0.01, growth=0.16, strength=2.0)
    >>> round(0.1 * float(np.sum(1 - v**3 / 2.0)), 2)
    620.04
    ```
    """
    return tau / growth * (1 / start - 1 / float(np.cbrt(strength)))


def separate_conserved(
    v: Float[ArrayLike, " H"], K: Float[ArrayLike, "H D R"], Q: Float[ArrayLike, "H D R"]
) -> tuple[Float[np.ndarray, "H R R"], Float[np.ndarray, " H"]]:
    """KᵀK − QᵀQ and v² − ‖K‖² of each head, which gradient flow conserves; nothing across heads.

    **Example:**

    ```pycon
    >>> v, k, q = np.array([0.02]), np.array([[0.012, 0.023]]), np.array([[0.034, 0.011]])
    >>> gram, sizes = icl.theory.separate_conserved(v, k[..., None], q[..., None])
    >>> gram.round(6), sizes.round(6)
    (array([[[-0.000604]]]), array([-0.000273]))
    >>> v, k, q = icl.theory.idle_heads_after(50.0, v, k, q, drive=np.array([0.16, 0.09]))
    >>> gram, sizes = icl.theory.separate_conserved(v, k[..., None], q[..., None])
    >>> gram.round(6), sizes.round(6)
    (array([[[-0.000604]]]), array([-0.000273]))
    ```
    """
    v, K, Q = (np.asarray(w, dtype=np.float64) for w in (v, K, Q))
    gram = np.einsum("hdr,hds->hrs", K, K) - np.einsum("hdr,hds->hrs", Q, Q)
    return gram, v**2 - np.sum(K**2, axis=(1, 2))


def final_loss(
    task: LinearRegression, heads: int, rank: int = 1, normaliser: Normaliser = "context"
) -> float:
    """L_S with the min(D, HR) best components learned: where learning ends.

    It is the smallest loss of H heads of rank R. Gradient flow from generic small weights has
    reached it in every run tried; there is no proof that it always does.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> [round(icl.theory.final_loss(task, heads), 4) for heads in (1, 2, 4)]
    [0.6406, 0.3774, 0.136]
    >>> round(icl.theory.final_loss(task, heads=1, rank=2), 4)
    0.3774
    ```
    """
    found = modes(task, normaliser)
    return found.loss(range(check_room(found, heads, rank)))


def _drop_share(fraction: float) -> float:
    """u³ where a fraction of the loss step is gone."""
    return 1 - np.sqrt(1 - check_fraction(fraction))


def _regular(u):
    """The part of `drop_clock` that is smooth at u = 0 and u = 1."""
    turn = np.arctan((2 * u + 1) / _ROOT3) - np.pi / 6
    return np.log1p(u + u**2) / 6 - turn / _ROOT3


def _newton(x, z, chart):
    """Solves `drop_clock(u)` = x in a chart z ↦ (u, x, dx/dz) where x is convex or concave.

    There Newton's method cannot fail: from the second step on it approaches from one side.
    """
    for _ in range(_ITERATIONS):
        _, value, slope = chart(z)
        z = z + (x - value) / slope
    return chart(z)[0]


def _from_logit(z):
    """The chart for 0 < u < 1."""
    u = 1 / (1 + np.exp(-z))
    return u, -(1 + np.exp(-z)) + np.logaddexp(0, z) / 3 + _regular(u), 1 / (u + u**2 + u**3)


def _from_inverse(z):
    """The chart for u < 0."""
    u = -1 / z
    return u, z - np.log1p(-u) / 3 + _regular(u), 1 / (1 - u**3)


def _from_excess(z):
    """The chart for u > 1."""
    u = 1 + np.exp(-z)
    return u, -1 / u + z / 3 + _regular(u), 1 / (u**2 * (1 + u + u**2))

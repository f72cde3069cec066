"""In which order separate key-query attention learns its components, and how long each plateau is.

A small head grows first along the component with the largest growth rate, λ²m where Λ and M
commute; the loss gains most from the one with the largest y, ordered as λm. For w ~ N(0, I) both
orders are that of the eigenvalues (arXiv 2501.16265, Section 4). Where they differ, the saddle
visited first is strict: its head turns, exponentially fast, to the better component, and a second
head learns the first one again.

A small head of rank R first becomes a product of two vectors. Its other R − 1 ranks then see a
linear instability, of rate v e_d/τ for component d, and learn the next components exponentially
fast; when they are used up, a new head has to grow. So with m components learned the plateau lasts
∝ 1/s if R divides m and ∝ ln(1/s) if not, s being the size of the initial weights. The paper states
where the plateaus are; the scaling is derived in docs/theory/linear.md. It is a law for small s: a
logarithm can outlast 1/s at any given s.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import Times, check_whole
from ._idle_head import as_rank_one, blow_up_times
from ._integrate import integrate
from ._moments import Normaliser, commute, moments
from ._separate_dynamics import drop_offset
from ._separate_hessian import escape_directions_of, layout_index
from ._separate_modes import Modes, check_room, modes

# Growth rates closer than this, relative to the largest, are equal.
_TIE = 1e-9


class Visit(NamedTuple):
    """A saddle on the way: its components, loss and Hessian index (rank-one heads).

    `turning_rate` is the rate of the exponential escape from a strict saddle, in units of 1/τ; 0 at
    a saddle that is left algebraically, when a new head has grown.

    **Example:**

    ```pycon
    >>> prior = np.diag([1.0, 1.5])
    >>> task = icl.LinearRegression([0.4, 0.3], context=31, prior_covariance=prior)
    >>> for visit in icl.theory.learning_order(task).visits:
    ...     print(visit.components, round(visit.loss, 3), visit.index, round(visit.turning_rate, 3))
    ...
    () 0.85 0 0.0
    (1,) 0.487 1 0.011
    (0,) 0.438 0 0.0
    (0, 1) 0.075 0 0.0
    ```
    """

    components: tuple[int, ...]
    loss: float
    index: int
    turning_rate: float


class LearningOrder(NamedTuple):
    """The two orders of the components of a task, and the saddles that they imply.

    - `growth_order`, `gain_order`: components from the largest down; component 0 has the largest
      gain, so that `gain_order` is 0, 1, 2, …
    - `agree`: whether they are the same; equal growth rates agree with any order.
    - `commuting`: whether Λ and M commute. If not, a growing head leaves every component: growth
      rates are those of heads held along each component, and `visits` is a guess from them.
    - `visits`: the saddles on the way from zero to all components, one head per component.
    """

    growth_order: tuple[int, ...]
    gain_order: tuple[int, ...]
    agree: bool
    commuting: bool
    visits: tuple[Visit, ...]

    @property
    def strict_saddle(self) -> Visit | None:
        """The first saddle on the way with a negative Hessian eigenvalue; None if orders agree."""
        return next((visit for visit in self.visits if visit.index > 0), None)


class RankPlateau(NamedTuple):
    """The plateau with `learned` components.

    - `scaling`: `"power"`: duration ∝ 1/s, a new head is needed; `"logarithm"`: ∝ ln(1/s).
    - `log_slope`: d(duration)/d ln(1/s) in units of τ for a logarithm; infinite for a power.
    """

    learned: int
    loss: float
    scaling: Literal["power", "logarithm"]
    log_slope: float


class SingleHead(NamedTuple):
    """One head of rank D along all components: v(t), κ_j(t) and the loss, at each time."""

    v: Float[np.ndarray, " T"]
    kappa: Float[np.ndarray, "T J"]
    loss: Float[np.ndarray, " T"]


def learning_order(task: LinearRegression, normaliser: Normaliser = "context") -> LearningOrder:
    """The orders of growth rates e_j and of gains y_j, and the saddles that are visited.

    From a saddle, a head turns to a component of larger gain if there is one; otherwise a new head
    learns the component that grows fastest.

    **Example:**

    ```pycon
    >>> icl.theory.learning_order(icl.LinearRegression([0.4, 0.3], context=31)).agree
    True
    >>> prior = np.diag([1.0, 1.5])
    >>> task = icl.LinearRegression([0.4, 0.3], context=31, prior_covariance=prior)
    >>> order = icl.theory.learning_order(task)
    >>> order.growth_order, order.gain_order
    ((1, 0), (0, 1))
    >>> order.strict_saddle.components
    (1,)
    ```
    """
    found = modes(task, normaliser)
    order = growth_order(found)
    gain_order = tuple(range(found.count))
    return LearningOrder(
        growth_order=order,
        gain_order=gain_order,
        agree=order == gain_order,
        commuting=commute(task),
        visits=_visits(task, found, order, normaliser),
    )


def growth_order(found: Modes) -> tuple[int, ...]:
    """Components by growth rate, the largest first; rates equal up to rounding keep gain order."""
    rates = found.growth_rates
    order = sorted(range(found.count), key=lambda j: -rates[j])
    runs = np.split(order, np.flatnonzero(-np.diff(rates[order]) > _TIE * rates[order[0]]) + 1)
    return tuple(int(j) for run in runs for j in sorted(run))


def rank_plateaus(
    task: LinearRegression, heads: int, rank: int, normaliser: Normaliser = "context"
) -> tuple[RankPlateau, ...]:
    """Every plateau of H heads of rank R that fill up in turn, L_m = L(0) − Σ_{j<m} y_j².

    `log_plateau_slope` has the formula of the slope.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> for plateau in icl.theory.rank_plateaus(task, heads=2, rank=2):
    ...     print(plateau.learned, round(plateau.loss, 3), plateau.scaling)
    ...
    0 1.0 power
    1 0.641 logarithm
    2 0.377 power
    3 0.21 logarithm
    ```
    """
    found = _order_modes(task, normaliser)
    return tuple(
        RankPlateau(
            learned=m,
            loss=found.loss(range(m)),
            scaling="power" if m % rank == 0 else "logarithm",
            log_slope=_log_slope(found, rank, m),
        )
        for m in range(check_room(found, heads, rank))
    )


def log_plateau_slope(
    task: LinearRegression, rank: int, learned: int, normaliser: Normaliser = "context"
) -> float:
    """d(duration)/d ln(1/s) of the plateau with m components learned, in units of τ.

    (1 − e_{m+1}/e_m) / (v_m e_{m+1}) with v_m³ the summed strengths of the components in the head
    that is being filled. Infinite where R divides m.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> round(icl.theory.log_plateau_slope(task, rank=2, learned=1), 2)
    3.71
    >>> icl.theory.log_plateau_slope(task, rank=2, learned=2)
    inf
    ```
    """
    found = _order_modes(task, normaliser)
    learned = check_whole("learned", learned, 0, found.count - 1)
    return _log_slope(found, check_whole("rank", rank), learned)


def first_drop_time(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    K: Float[ArrayLike, "H D R"],
    Q: Float[ArrayLike, "H D R"],
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> float:
    """The half-drop time of the first component from initial weights of any rank, min T − 1.2534
    τ/(e a^⅓), T being the blow-up time of each head; exact in the limit of small weights.

    **Arguments:**

    - `v`, `K`, `Q`: weights at t = 0.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.2], context=31)
    >>> v, K = 0.01 * np.ones(2), 0.01 * np.ones((2, 2, 2))
    >>> round(icl.theory.first_drop_time(task, v, K, K), 1)
    466.2
    >>> round(icl.theory.first_drop_time(task, v / 10, K / 10, K / 10), 1)
    4715.1
    ```
    """
    found = _order_modes(task, normaliser)
    along = (np.einsum("dj,hdr->hjr", found.left, np.asarray(w, np.float64)) for w in (K, Q))
    k, q = as_rank_one(*along)
    width = 1 / (found.growth_rates[0] * np.cbrt(found.strengths[0]))
    times = blow_up_times(v, k, q, found.growth_rates)
    return float(tau * (np.min(times) + drop_offset() * width))


def single_head_rate(
    task: LinearRegression,
    v: float,
    kappa: Float[ArrayLike, " J"],
    normaliser: Normaliser = "context",
) -> tuple[float, Float[np.ndarray, " J"]]:
    """τ dv/dt and τ dκ/dt of one head with K = Q = diag(κ) in the eigenbasis: exact.

    τ dv/dt = Σ_j κ_j² E_j and τ dκ_j/dt = v κ_j E_j, with E_j = e_j (1 − v κ_j²/a_j).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.2], context=31)
    >>> kappa = np.array([0.11, 0.17])
    >>> dv, dkappa = icl.theory.single_head_rate(task, 0.13, kappa)
    >>> round(dv, 6), dkappa.round(6)
    (0.00309, array([0.002286, 0.000883]))
    >>> flow = icl.theory.single_head_flow(task, 0.13, kappa, np.array([0.0, 1e-3]))
    >>> ((flow.kappa[1] - kappa) / 1e-3).round(6)
    array([0.002286, 0.000883])
    ```
    """
    found = _order_modes(task, normaliser)
    rate = _single_head_rate(found, np.concatenate([[v], np.asarray(kappa, dtype=np.float64)]))
    return float(rate[0]), rate[1:]


def single_head_flow(
    task: LinearRegression,
    v: float,
    kappa: Float[ArrayLike, " J"],
    times: Times,
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> SingleHead:
    """One head with K = Q = diag(κ) in the eigenbasis: the J + 1 equations of `single_head_rate`.

    **Arguments:**

    - `v`, `kappa`: weights at time 0; component 0 has the largest gain.
    - `times`: increasing, from 0 up.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.2], context=31)
    >>> kappa, times = np.array([0.01, 0.005]), np.array([0.0, 550.0, 650.0, 1000.0])
    >>> flow = icl.theory.single_head_flow(task, 0.01, kappa, times)
    >>> flow.loss.round(3)
    array([0.6  , 0.6  , 0.229, 0.053])
    >>> round(icl.theory.optimal_loss(task), 3)
    0.053
    ```
    """
    found = _order_modes(task, normaliser)
    start = np.concatenate([[v], np.asarray(kappa, dtype=np.float64)])
    if start.shape != (found.count + 1,):
        raise Refusal(f"`kappa` has {start.size - 1} entries: must have {found.count}.")
    times = np.asarray(times, dtype=np.float64)
    if np.any(np.diff(times) <= 0) or times[0] < 0:
        raise Refusal("`times` must increase, from 0 up.")
    # Small weights decide how long a plateau lasts, so they have to be resolved.
    floor = 1e-9 * float(np.max(np.abs(start)))
    solution = integrate(
        "The flow of a single head",
        lambda t, state: _single_head_rate(found, state) / tau,
        start,
        times[-1],
        t_eval=times,
        rtol=1e-10,
        atol=max(floor, 1e-300),
    )
    v_path, kappa_path = solution.y[0], solution.y[1:].T
    left = 1 - v_path[:, None] * kappa_path**2 / found.strengths
    return SingleHead(v_path, kappa_path, found.start - (1 - left**2) @ found.gains**2)


def _visits(
    task: LinearRegression, found: Modes, order: tuple[int, ...], normaliser: Normaliser
) -> tuple[Visit, ...]:
    """Follows `learning_order` from saddle to saddle until all components are learned."""
    m = moments(task, normaliser)
    learned: list[int] = []
    visits = []
    while True:
        layout = [(j,) for j in learned]
        index = layout_index(found, layout, 1)
        loss = found.loss(learned)
        if index > 0:
            escape = escape_directions_of(m, found, layout, len(layout), 1)[0]
            visits.append(Visit(tuple(sorted(learned)), loss, index, escape.rate))
            learned[escape.head] = escape.component
            continue
        visits.append(Visit(tuple(sorted(learned)), loss, 0, 0.0))
        if len(learned) == found.count:
            return tuple(visits)
        learned.append(next(j for j in order if j not in learned))


def _single_head_rate(found: Modes, state: np.ndarray) -> np.ndarray:
    v, kappa = state[0], state[1:]
    force = found.growth_rates * (1 - v * kappa**2 / found.strengths)
    return np.concatenate([[np.sum(kappa**2 * force)], v * kappa * force])


def _log_slope(found: Modes, rank: int, learned: int) -> float:
    if learned % rank == 0:
        return np.inf
    in_head = slice(rank * (learned // rank), learned)
    v = np.cbrt(np.sum(found.strengths[in_head]))
    now, following = found.growth_rates[learned - 1], found.growth_rates[learned]
    return float((1 - following / now) / (v * following))


def _order_modes(task: LinearRegression, normaliser: Normaliser) -> Modes:
    """The components of a task; refuses tasks where they are not learned in order."""
    found = modes(task, normaliser)
    if not commute(task) or growth_order(found) != tuple(range(found.count)):
        raise Refusal(
            "Λ and M = E[wwᵀ] of `task` must commute, with growth rates and gains in the same "
            "order: otherwise heads turn from one component to another. See `learning_order`."
        )
    return found

"""Heads of rank R: which plateaus are long, and how the duration of each scales with the weights.

A small head first becomes a product of two vectors, whatever its rank. Its other R − 1 ranks then
see a linear instability, of rate v e_d/τ for component d, and learn the next components
exponentially fast; when they are used up, a new head has to grow. So with m components learned the
plateau lasts ∝ 1/s if R divides m and ∝ ln(1/s) if not, s being the size of the initial weights
(arXiv 2501.16265, Section 4, states where the plateaus are; the scaling is derived in
docs/theory/linear.md). This is a law for small s: a logarithm can outlast 1/s at any given s.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._integrate import integrate
from ._learning_order import growth_order
from ._moments import Normaliser, commute, moments
from ._separate_modes import Modes, modes


class RankPlateau(NamedTuple):
    """The plateau with `learned` components.

    - `scaling`: `"power"`: duration ∝ 1/s, a new head is needed; `"logarithm"`: ∝ ln(1/s).
    - `log_slope`: d(duration)/d ln(1/s) in units of τ for a logarithm; infinite for a power.
    """

    learned: int
    loss: float
    scaling: Literal["power", "logarithm"]
    log_slope: float


def rank_plateaus(
    task: LinearRegression, heads: int, rank: int, normaliser: Normaliser = "context"
) -> tuple[RankPlateau, ...]:
    """Every plateau on the way down of H heads of rank R that fill up one after the other."""
    found = _order_modes(task, normaliser)
    room = check_whole("heads", heads) * check_whole("rank", rank)
    base = moments(task, normaliser).label_variance
    plateaus = []
    for m in range(min(found.count, room)):
        slope = _log_slope(found, rank, m)
        plateaus.append(
            RankPlateau(
                learned=m,
                loss=float(base - np.sum(found.gains[:m] ** 2)),
                scaling="power" if m % rank == 0 else "logarithm",
                log_slope=slope,
            )
        )
    return tuple(plateaus)


def log_plateau_slope(
    task: LinearRegression, rank: int, learned: int, normaliser: Normaliser = "context"
) -> float:
    """d(duration)/d ln(1/s) of the plateau with m components learned, in units of τ.

    (1 − e_{m+1}/e_m) / (v_m e_{m+1}) with v_m³ the summed strengths of the components in the head
    that is being filled. Infinite where R divides m.
    """
    found = _order_modes(task, normaliser)
    if isinstance(learned, bool) or learned != int(learned) or not 0 <= learned < found.count:
        raise Refusal(f"`learned` = {learned}: must be a whole number from 0 to {found.count - 1}.")
    return _log_slope(found, check_whole("rank", rank), int(learned))


class SingleHead(NamedTuple):
    """One head of rank D along all components: v(t), κ_j(t) and the loss, at each time."""

    v: Float[np.ndarray, " T"]
    kappa: Float[np.ndarray, "T J"]
    loss: Float[np.ndarray, " T"]


def single_head_rate(
    task: LinearRegression,
    v: float,
    kappa: Float[ArrayLike, " J"],
    normaliser: Normaliser = "context",
) -> tuple[float, Float[np.ndarray, " J"]]:
    """τ dv/dt and τ dκ/dt of one head with K = Q = diag(κ) in the eigenbasis: exact.

    τ dv/dt = Σ_j κ_j² E_j and τ dκ_j/dt = v κ_j E_j, with E_j = e_j (1 − v κ_j²/a_j).
    """
    found = _order_modes(task, normaliser)
    rate = _single_head_rate(found, np.concatenate([[v], np.asarray(kappa, dtype=np.float64)]))
    return float(rate[0]), rate[1:]


def single_head_flow(
    task: LinearRegression,
    v: float,
    kappa: Float[ArrayLike, " J"],
    times: Float[ArrayLike, " T"],
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> SingleHead:
    """One head with K = Q = diag(κ) in the eigenbasis, by its J + 1 exact equations.

    **Arguments:**

    - `v`, `kappa`: weights at time 0; component 0 has the largest gain.
    - `times`: increasing, from 0 up.
    """
    found = _order_modes(task, normaliser)
    start = np.concatenate([[v], np.asarray(kappa, dtype=np.float64)])
    if start.shape != (found.count + 1,):
        raise Refusal(f"`kappa` has {start.size - 1} entries: must have {found.count}.")
    times = np.asarray(times, dtype=np.float64)
    if np.any(np.diff(times) <= 0) or times[0] < 0:
        raise Refusal("`times` must increase, from 0 up.")
    # The plateaus are governed by the small weights, so they have to be resolved.
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
    base = moments(task, normaliser).label_variance
    return SingleHead(v_path, kappa_path, base - (1 - left**2) @ found.gains**2)


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
    """The components of a task, checked to be learned one after the other."""
    found = modes(task, normaliser)
    if not commute(task) or growth_order(found) != tuple(range(found.count)):
        raise Refusal(
            "Λ and M = E[wwᵀ] of `task` must commute, with growth rates and gains in the same "
            "order: otherwise heads turn from one component to another. See `learning_order`."
        )
    return found

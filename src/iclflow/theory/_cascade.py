"""The cascade: all drop times of a rank-one separate model from its initial weights alone.

Small heads race. The head with the earliest blow-up time T takes the largest unlearned component it
can; half of that loss step is gone at T − 1.2534 τ/(c a^⅓). The other heads feel the component as
if it were switched off at T − τ/(c a^⅓) (`residual_drive`), apart from an impulse due to the
misalignment of the winner (`_race`). From there the others race on, with one component less. Each
race is solved exactly (`_idle_head`).

A drop takes the same time whatever the initial weights; the wait before it is inversely
proportional to their size s. So 1 − (fraction on plateaus) is proportional to s, with a constant
that the cascade gives for each direction of the initial weights. Derived in docs/theory/linear.md.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import BeyondLimit, Refusal
from ..runtime.precision import check_made_in_float64
from ..tasks import LinearRegression
from ._check import PerHead, check_positive
from ._moments import Normaliser, aligned_moments, moments
from ._race import RaceConstants, impulses, race
from ._separate_dynamics import drop_offset, drop_profile

# Rates and gains that are meant to be equal are so up to this share of the largest.
_TIE = 1e-9
# Components with a drive below this share of the largest have none, up to rounding.
_NO_DRIVE = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Staircase:
    """The predicted staircase of a loss curve, with one entry for each drop.

    - `levels`: the plateaus, one more than there are drops.
    - `drop_times`: when half of each step is gone.
    - `drop_order`: the component of each drop; 0 has the largest gain.
    - `heads`: the head that learns it.
    - `blow_up_times`: T of each drop, where the head would be infinite without saturation.
    - `widths`: τ/(c a^⅓), the duration of each drop.
    """

    levels: Float[np.ndarray, " levels"]
    drop_times: Float[np.ndarray, " n"]
    drop_order: tuple[int, ...]
    heads: tuple[int, ...]
    blow_up_times: Float[np.ndarray, " n"]
    widths: Float[np.ndarray, " n"]

    def __repr__(self) -> str:
        numbers = lambda values: ", ".join(f"{value:.4g}" for value in values)
        return (
            f"Staircase(levels {numbers(self.levels)}; half-drops at "
            f"{numbers(self.drop_times) or 'no time'})"
        )

    def loss(self, times: Float[ArrayLike, "*T"]) -> Float[np.ndarray, "*T"]:
        """The predicted loss curve: each step has the closed-form shape of an aligned head."""
        times = np.asarray(times, dtype=np.float64)
        since = (times[..., None] - self.blow_up_times) / self.widths
        left = 1 - drop_profile(since) ** 3
        return np.asarray(self.levels[0] + (1 - left**2) @ np.diff(self.levels))


class PlateauFraction(NamedTuple):
    """`fraction` = 1 − `falling`/`end`.

    - `falling`: time spent between levels; it does not depend on the size of the weights.
    - `end`: when the staircase is done; inversely proportional to that size.
    """

    fraction: float
    falling: float
    end: float


def staircase(task: LinearRegression, model: Any, tau: float = 1.0) -> Staircase:
    """Levels and drop times of a model from its weights at t = 0: `cascade` of these weights.

    **Arguments:**

    - `model`: attention with blind separate circuits of rank one, or anything else with weights
      `.v`, `.K`, `.Q`; a `.normaliser` is respected.
    - `tau`: the time constant of the flow τ dW/dt = −½ ∂L/∂W.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=1e-2)
    >>> stairs = icl.theory.staircase(task, model)
    >>> stairs.levels.round(3)
    array([1.   , 0.641, 0.377, 0.21 , 0.136])
    >>> stairs.drop_times.round(0)
    array([  578.,   847.,  3978., 36173.])
    >>> stairs.heads
    (0, 3, 1, 2)
    >>> stairs.loss(np.array([0.0, 1e6])).round(3)
    array([1.   , 0.136])
    ```
    """
    circuits = getattr(model, "circuits", model)
    missing = [name for name in ("v", "K", "Q") if not hasattr(circuits, name)]
    if missing or not getattr(circuits, "blind", True):
        lacking = f", without `{missing[0]}`" if missing else ""
        raise TypeError(
            f"`model` has the circuits {type(circuits).__name__}{lacking}: the cascade is for "
            "attention with separate keys and queries on the inputs alone, as "
            "`Attention.separate` makes it. For merged attention there are `drop_time` and "
            "`reduced_flow`."
        )
    if getattr(model, "activation", "linear") != "linear":
        raise Refusal(
            f"`model` has activation {model.activation!r}: the cascade is for linear attention."
        )
    check_made_in_float64(model=model)
    normaliser: Normaliser = getattr(model, "normaliser", "context")
    # `.v` is a slice, which takes NumPy a microsecond and a device a tenth of a millisecond.
    circuits = jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, circuits)
    return cascade(task, circuits.v, circuits.K, circuits.Q, normaliser, tau)


def cascade(
    task: LinearRegression,
    v: PerHead,
    K: Float[ArrayLike, "H D R"],
    Q: Float[ArrayLike, "H D R"],
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> Staircase:
    """All drop times from initial weights, T − 1.2534 τ/(c a^⅓); exact in the limit of small ones.

    Λ and M must commute, with growth rates and gains in the same order (`learning_order`). The
    relative error falls about as the square of the size of the weights; two heads that nearly tie
    and eigenvalues that nearly do are the worst cases.

    **Arguments:**

    - `v`, `K`, `Q`: weights at t = 0, R = 1.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.2], context=31)
    >>> v, K = np.array([0.01, 0.02]), 0.01 * np.ones((2, 2, 1))
    >>> stairs = icl.theory.cascade(task, v, K, K)
    >>> stairs
    Staircase(levels 0.6, 0.2299, 0.05271; half-drops at 460.4, 1518)
    >>> stairs.drop_order, stairs.heads
    ((0, 1), (1, 0))
    ```
    """
    check_positive("tau", tau)
    ladder = _ladder(_Fingerprint(task, normaliser))
    v, K, Q = (np.asarray(w, dtype=np.float64) for w in (v, K, Q))
    shape = (*v.shape, task.dim, 1)
    if v.ndim != 1 or K.shape != shape or Q.shape != shape:
        raise Refusal(
            f"`v`, `K`, `Q` have shapes {v.shape}, {K.shape}, {Q.shape}: must be (H,), "
            f"(H, {task.dim}, 1) and (H, {task.dim}, 1). The cascade is for heads of rank one."
        )
    if not np.isfinite(v.sum() + K.sum() + Q.sum()):
        raise Refusal("`v`, `K` or `Q` holds NaN or infinity: every entry must be finite.")
    found = np.asarray(race(v, K, Q, ladder.constants, min(v.size, ladder.gains.size)))
    times, components, heads = found[:, np.isfinite(found[0])]
    order = components.astype(int)
    widths = ladder.widths[order]
    steps = np.concatenate([[0.0], np.cumsum(ladder.gains[order])])
    drops = tau * (times + drop_offset() * widths)
    if np.any(np.diff(drops, prepend=0.0) <= 0):
        raise BeyondLimit(
            "`v`, `K` and `Q` are too large: the cascade is the limit of small weights, and here "
            "its drops would come before the start or out of order."
        )
    return Staircase(
        levels=ladder.start - steps,
        drop_times=drops,
        drop_order=tuple(order.tolist()),
        heads=tuple(heads.astype(int).tolist()),
        blow_up_times=tau * times,
        widths=tau * widths,
    )


def plateau_fraction(stairs: Staircase, band: float = 0.02, done: float = 0.999) -> PlateauFraction:
    """The share of a run in which the loss is near a level that it will leave again.

    1 − Σ width · (x_out − x_in)/end, x = `drop_offset` where the loss leaves or enters a band.

    **Arguments:**

    - `stairs`: from `staircase` or `cascade`; needs at least one drop.
    - `band`: how near, as a share of the whole fall from the first level to the last.
    - `done`: the run ends when this share of the whole fall is gone.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.2], context=31)
    >>> v, K = np.array([0.01, 0.02]), 0.01 * np.ones((2, 2, 1))
    >>> for s in (1.0, 0.1, 0.01):
    ...     stairs = icl.theory.cascade(task, s * v, s * K, s * K)
    ...     print(round(icl.theory.plateau_fraction(stairs).fraction, 4))
    ...
    0.9557
    0.9955
    0.9995
    ```
    """
    steps = -np.diff(stairs.levels)
    if steps.size == 0:
        raise Refusal("`stairs` has no drop: it never leaves its first level.")
    if not 0 < band < done < 1 or (1 - done) * steps.sum() >= steps[-1]:
        raise Refusal(
            f"`band` = {band}, `done` = {done}: must satisfy 0 < band < done < 1, with the end "
            "inside the last drop."
        )
    near = band * steps.sum()
    stop = 1 - (1 - done) * steps.sum() / steps[-1]
    falling = 0.0
    for n, (step, width) in enumerate(zip(steps, stairs.widths)):
        leaves, arrives = near / step, stop if n == steps.size - 1 else 1 - near / step
        if leaves < arrives:  # else the bands of both levels meet
            falling += width * (drop_offset(arrives) - drop_offset(leaves))
    end = stairs.blow_up_times[-1] + stairs.widths[-1] * drop_offset(stop)
    return PlateauFraction(float(1 - falling / end), float(falling), float(end))


class _Ladder(NamedTuple):
    """A task in its eigenbasis, components from the largest growth rate and gain down."""

    start: float
    gains: np.ndarray
    widths: np.ndarray
    constants: RaceConstants


class _Fingerprint:
    """A task as the key of a cache: equal if all its numbers are equal."""

    def __init__(self, task: LinearRegression, normaliser: Normaliser):
        self.task = task
        self.normaliser: Normaliser = normaliser
        leaves = (np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(task))
        self.key = (task.contexts, task.noisy_query, normaliser, *leaves)

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return self.key == other.key


@functools.lru_cache(maxsize=128)
def _ladder(fingerprint: _Fingerprint) -> _Ladder:
    """The constants of a task. They take milliseconds, a race microseconds: hence the cache."""
    task, normaliser = fingerprint.task, fingerprint.normaliser
    aligned = aligned_moments(task, normaliser)
    order = np.argsort(-aligned.drive, kind="stable")
    order = order[aligned.drive[order] > _NO_DRIVE * aligned.drive.max()]
    if order.size == 0:
        raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
    rates, strengths = aligned.drive[order], aligned.optimum[order]
    gains = rates * strengths
    tied = rates[:-1] - rates[1:] <= _TIE * rates[0]
    gaps = gains[:-1] - gains[1:]
    if np.any(gaps < -_TIE * gains[0]) or np.any(tied & (gaps > _TIE * gains[0])):
        raise Refusal(
            "The growth rates and the gains of `task` are not in the same order: heads turn from "
            "one component to another, which the cascade does not describe. See `learning_order`."
        )
    # Rates equal up to rounding become equal, so that the race can tell a tie.
    for j in np.flatnonzero(tied):
        rates[j + 1] = rates[j]
    sizes = np.cbrt(strengths)
    eigenvalues = aligned.eigenvalues[order]
    table = impulses(rates, eigenvalues, aligned.curvature[order] / eigenvalues, sizes)
    constants = RaceConstants(*map(jnp.asarray, (aligned.basis[:, order], rates, sizes, *table)))
    start = moments(task, normaliser).label_variance
    return _Ladder(start, gains, 1 / (rates * sizes), constants)

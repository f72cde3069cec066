"""The cascade: all drop times of a rank-one separate model from its initial weights alone.

Small heads race. The first whose blow-up time T comes takes the largest unlearned component it can;
half of that loss step is gone at T − 1.2534 τ/(c a^⅓), and to the other heads the component drives
as if it were switched off at T − τ/(c a^⅓) (`residual_drive`), apart from an impulse due to the
misalignment of the winner (`_drop_impulse`). From there the others race on, with one component
less. Each race is solved exactly (`_idle_head`). Derived in docs/theory/linear.md.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from ..errors import BeyondLimit, Refusal
from ..runtime.precision import check_made_in_float64
from ..tasks import LinearRegression
from ._drop_impulse import impulses, misalignment, struck
from ._idle_head import advance, path
from ._moments import Normaliser, aligned_moments, moments
from ._separate_dynamics import drop_offset, drop_profile

# Weights below this share of a head's largest are rounding: exactly aligned heads stay aligned.
_ALIGNED = 1e-10
_TIE = 1e-9
_HALF = drop_offset(0.5)


@dataclasses.dataclass(frozen=True, eq=False)
class Staircase:
    """The predicted staircase of a loss curve; one entry for each drop that ever happens.

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


def staircase(task: LinearRegression, model, tau: float = 1.0) -> Staircase:
    """Levels and drop times of a model from its weights at t = 0.

    **Arguments:**

    - `model`: attention with blind separate circuits of rank one, or anything else with weights
      `.v`, `.K`, `.Q`; a `.normaliser` is respected.
    - `tau`: the time constant of the flow τ dW/dt = −½ ∂L/∂W.
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
    return cascade(task, circuits.v, circuits.K, circuits.Q, normaliser, tau)


def cascade(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    K: Float[ArrayLike, "H D R"],
    Q: Float[ArrayLike, "H D R"],
    normaliser: Normaliser = "context",
    tau: float = 1.0,
) -> Staircase:
    """All drop times from initial weights; exact in the limit of small ones.

    Λ and M must commute, with growth rates and gains in the same order (`learning_order`). The
    relative error falls about as the square of the size of the weights; two heads that nearly tie
    and eigenvalues that nearly do are the worst cases.

    **Arguments:**

    - `v`, `K`, `Q`: weights at t = 0, R = 1.
    """
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
    found = np.asarray(_race(v, K, Q, ladder.constants, min(v.size, ladder.gains.size)))
    times, components, heads = found[:, np.isfinite(found[0])]
    if not tau > 0:
        raise Refusal(f"`tau` = {tau}: must be positive.")
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
        drop_times=tau * (times + _HALF * widths),
        drop_order=tuple(order.tolist()),
        heads=tuple(heads.astype(int).tolist()),
        blow_up_times=tau * times,
        widths=tau * widths,
    )


class _Constants(NamedTuple):
    """What the race needs to know of a task: arrays on the device."""

    basis: Float[Array, "D J"]
    rates: Float[Array, " J"]
    sizes: Float[Array, " J"]
    key_impulse: Float[Array, "J J"]
    query_impulse: Float[Array, "J J"]


class _Ladder(NamedTuple):
    """A task in its eigenbasis, components from the largest growth rate and gain down."""

    start: float
    gains: np.ndarray
    widths: np.ndarray
    constants: _Constants


class _Fingerprint:
    """A task as a key of a cache: equal if all its numbers are."""

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
    order = order[aligned.drive[order] > 1e-12 * aligned.drive.max()]
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
    constants = _Constants(*map(jnp.asarray, (aligned.basis[:, order], rates, sizes, *table)))
    start = moments(task, normaliser).label_variance
    return _Ladder(start, gains, 1 / (rates * sizes), constants)


@functools.partial(jax.jit, static_argnames="drops")
def _race(v: Array, K: Array, Q: Array, task: _Constants, drops: int) -> Array:
    """Blow-up time, component and head of each drop, as rows of one array."""
    count = task.rates.shape[0]
    components, heads = jnp.arange(count), jnp.arange(v.shape[0])

    def stage(carry, _):
        v, k, q, learned, done, now = carry
        e = jnp.where(learned, 0.0, task.rates)
        way = path(v, k, q, e)
        finish = jnp.where(done, jnp.inf, way.time)
        winner = jnp.argmin(finish)
        happens = jnp.isfinite(finish[winner])
        outwards = jnp.where(way.turns, -way.sign, way.sign)[winner]
        growing = k[winner] + outwards * q[winner]
        rate = jnp.max(jnp.where(growing != 0, e, 0.0))
        tied = (e == rate) & ~learned
        c = jnp.argmax(tied)
        width = 1 / (task.rates[c] * task.sizes[c])
        elapsed = jnp.where(happens, jnp.maximum(finish[winner] - width, 0.0), 0.0)
        v, k, q = advance(way, v, k, q, e, elapsed)
        # Equal rates leave the basis open: the winner's own direction becomes component c.
        axis = (components == c).astype(k.dtype)
        heading = jnp.where(tied, growing, 0.0)
        mirror = heading / jnp.linalg.norm(heading) - axis
        growing, k, q = (_reflect(x, mirror) for x in (growing, k, q))
        delta = jnp.clip(misalignment(growing, axis, e, task.sizes[c]), -1.0, 1.0)
        hit = struck(v, k, q, axis, -delta * task.key_impulse[c], -delta * task.query_impulse[c])
        learned, done = learned | (components == c) & happens, done | (heads == winner)
        carry = (*hit, learned, done, now + elapsed)
        return carry, jnp.stack([now + finish[winner], c, winner])

    k, q = K[..., 0] @ task.basis, Q[..., 0] @ task.basis
    k, q = _without_rounding(k, q)
    start = (v, k, q, components < 0, heads < 0, jnp.zeros(()))
    return lax.scan(stage, start, None, length=drops)[1].T


def _reflect(x: Array, mirror: Array) -> Array:
    """Householder's reflection along `mirror`; nothing for a mirror of length zero."""
    square = jnp.sum(mirror**2)
    scale = jnp.where(square > 1e-28, 2 / jnp.where(square > 0, square, 1.0), 0.0)
    return x - scale * jnp.sum(x * mirror, -1, keepdims=True) * mirror


def _without_rounding(k: Array, q: Array) -> tuple[Array, Array]:
    """k and q with k ± q set to zero where rotating into the eigenbasis left only rounding."""
    plus, minus = k + q, k - q
    size = jnp.max(jnp.maximum(jnp.abs(plus), jnp.abs(minus)), -1, keepdims=True)
    plus, minus = (jnp.where(jnp.abs(x) > _ALIGNED * size, x, 0.0) for x in (plus, minus))
    return (plus + minus) / 2, (plus - minus) / 2

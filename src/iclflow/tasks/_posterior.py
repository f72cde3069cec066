"""The posterior over finitely many task vectors, in chunks, with weights kept in log space."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._base import Sequences

# Numbers in the residuals of one chunk of tasks: bounds the memory.
_LARGEST_CHUNK = 2**22
# Squares may be multiplied out for noise above so many roundings of the labels: the logarithms of
# weights are then right to 1e-9.
_SAFE_NOISE = 1e9


class DiscretePosterior(NamedTuple):
    """Mean and variance of w·x_q over the tasks, for each label."""

    mean: Float[Array, "*batch I"]
    variance: Float[Array, "*batch I"]


class _Sums(NamedTuple):
    """The tasks seen so far: their best score, and relative to it the sum of their weights, the
    mean of w·x_q and the sum of its squared deviations."""

    best: Float[Array, "B I"]
    total: Float[Array, "B I"]
    mean: Float[Array, "B I"]
    spread: Float[Array, "B I"]


def discrete_posterior(
    sequences: Sequences, vectors: Float[Array, "K D"], noise: Float[Array, ""]
) -> DiscretePosterior:
    """What the context says about w·x_q if w is one of `vectors`, all equally likely.

    The weight of task k is exp(−Σₙ(yₙ − w_k·xₙ)²/2σ²). Without noise the tasks that fit best share
    all the weight.

    **Example:**

    ```pycon
    >>> vectors = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    >>> task = icl.FiniteTasks(vectors, icl.isotropic(2, context=20, noise=0.01))
    >>> drawn = task.sample(jr.key(0), 3)
    >>> found = icl.tasks.discrete_posterior(drawn, vectors, jnp.array(0.01))
    >>> bool(jnp.all(found.variance < 1e-6))  # the context tells which task it is
    True
    ```
    """
    mask = sequences.mask()[..., None]
    # Whatever the arrays hold at padding must not count.
    x, y = jnp.where(mask, sequences.x, 0.0), jnp.where(mask, sequences.y, 0.0)
    lead = x.shape[:-2]
    size = max(1, _LARGEST_CHUNK // max(1, math.prod(x.shape[:-1]) * y.shape[-1]))
    found = _posterior(
        x.reshape(-1, *x.shape[-2:]),
        y.reshape(-1, *y.shape[-2:]),
        sequences.x_query.reshape(-1, x.shape[-1]),
        vectors,
        noise,
        min(size, len(vectors)),
    )
    return DiscretePosterior(*(part.reshape(*lead, -1) for part in found))


@eqx.filter_jit
def _posterior(
    x: Float[Array, "B N D"],
    y: Float[Array, "B N I"],
    query: Float[Array, "B D"],
    tasks: Float[Array, "K D"],
    noise: Float[Array, ""],
    chunk: int,
) -> tuple[Array, Array]:
    """Sums over chunks of tasks, with weights relative to the best fit so far: none overflows."""
    whole = -(-len(tasks) // chunk) * chunk
    padded = jnp.pad(tasks, ((0, whole - len(tasks)), (0, 0)))
    real = jnp.arange(whole) < len(tasks)
    # Without noise only the best fit counts, up to rounding of the squares.
    tiny = jnp.finfo(x.dtype).eps * jnp.sum(y**2, 1)[..., None]
    width = 2 * jnp.maximum(noise, jnp.maximum(tiny, jnp.finfo(x.dtype).tiny))

    squares_of = _squares(x, y, noise)

    def add(before: _Sums, part: tuple[Array, Array]) -> tuple[_Sums, None]:
        w, kept = part
        squares = squares_of(w)
        score = jnp.where(kept, -squares / width, -jnp.inf)
        return _merge(before, score, jnp.einsum("bd,kd->bk", query, w)), None

    shape = (x.shape[0], y.shape[2])
    zero = jnp.zeros(shape, x.dtype)
    start = _Sums(jnp.full(shape, -jnp.inf, x.dtype), zero, zero, zero)
    parts = padded.reshape(-1, chunk, tasks.shape[1]), real.reshape(-1, chunk)
    sums, _ = jax.lax.scan(add, start, parts)
    return sums.mean, sums.spread / sums.total


def _squares(
    x: Float[Array, "B N D"], y: Float[Array, "B N I"], noise: Float[Array, ""]
) -> Callable[[Float[Array, "k D"]], Float[Array, "B I k"]]:
    """The function from task vectors to Σₙ(yₙ − w·xₙ)² of each.

    Multiplied out, it takes one product with the moments of a context in place of N residuals. What
    cancels there must be far below the noise.
    """
    first, second = np.triu_indices(x.shape[2])
    doubled = np.where(first == second, 1.0, 2.0).astype(x.dtype)
    gram = jnp.einsum("bnd,bne->bde", x, x)[:, first, second] * doubled
    along, whole = jnp.einsum("bnd,bni->bid", x, y), jnp.sum(y**2, 1)

    def by_moments(w: Array) -> Array:
        pairs = jnp.einsum("bp,kp->bk", gram, w[:, first] * w[:, second])
        return whole[..., None] - 2 * jnp.einsum("bid,kd->bik", along, w) + pairs[:, None]

    def by_residuals(w: Array) -> Array:
        fits = jnp.einsum("bnd,kd->bnk", x, w)
        return jnp.sum((y[..., None] - fits[:, :, None]) ** 2, 1)

    # More pairs of inputs than numbers in a context: the residuals are cheaper.
    if len(first) > x.shape[1] * x.shape[2]:
        return by_residuals
    safe = noise > _SAFE_NOISE * jnp.finfo(x.dtype).eps * jnp.max(whole, initial=0.0)
    return lambda w: jax.lax.cond(safe, by_moments, by_residuals, w)


def _merge(before: _Sums, score: Float[Array, "B I k"], values: Float[Array, "B k"]) -> _Sums:
    """The sums with one more chunk; deviations are taken from means, so that nothing cancels."""
    best = jnp.maximum(before.best, jnp.max(score, -1))
    weight = jnp.exp(score - best[..., None])
    old, new = before.total * jnp.exp(before.best - best), jnp.sum(weight, -1)
    total = old + new
    # The weights of a chunk that fits far worse than an earlier one underflow to zero.
    mean = jnp.einsum("bik,bk->bi", weight, values) / jnp.where(new > 0, new, 1.0)
    within = jnp.einsum("bik,bik->bi", weight, (values[:, None] - mean[..., None]) ** 2)
    gap, share = mean - before.mean, new / total
    spread = before.spread * jnp.exp(before.best - best) + within + old * share * gap**2
    return _Sums(best, total, before.mean + share * gap, spread)

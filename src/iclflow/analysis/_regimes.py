"""The concentration of the attention of each head: on many tokens, on some, or on a few
(arXiv 2402.19442)."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..circuits import circuits
from ..errors import InputError, Refusal
from ..models import Attention, name_of
from ..tasks import MultiTaskRegression, is_whole

Regime = Literal["exponential", "crossover", "saturated"]
# The tokens and the attention weights of one batch of sequences take at most this many bytes.
_BYTES = 2**26


@dataclasses.dataclass(frozen=True)
class SoftmaxRegimes:
    """The scores of each head, and how many tokens it attends to.

    **Fields:**

    - `length`: N, of the contexts.
    - `deviation`: the standard deviation of the scores of each head over queries and contexts.
    - `exponential`, `saturated`: √(½ log N) and √(2 log N). Well below the first, E|p|² is about
      exp(deviation²)/N, and at the first 0.63 (N = 100) to 0.80 (N = 10⁶) of that; beyond the
      second a few tokens hold all weight.
    - `regimes`: of each head.
    - `concentration`: E|p|² of the attention weights p of each head, measured.
    - `error`: its standard error.
    """

    length: int
    deviation: Float[np.ndarray, " H"]
    exponential: float
    saturated: float
    regimes: tuple[Regime, ...]
    concentration: Float[np.ndarray, " H"]
    error: Float[np.ndarray, " H"]

    @property
    def attended(self) -> Float[np.ndarray, " H"]:
        """1/E|p|², the effective number of tokens that a head attends to."""
        return 1 / self.concentration

    @property
    def attended_error(self) -> Float[np.ndarray, " H"]:
        """The standard error of `attended`."""
        return self.error / self.concentration**2


def softmax_regimes(
    model: Attention,
    task: MultiTaskRegression,
    length: int | None = None,
    sequences: int = 1000,
    key: PRNGKeyArray | None = None,
) -> SoftmaxRegimes:
    """Measures how concentrated the attention of each head is on the sequences of a task.

    The deviation is √(Σ_i d_i ω_hi²) for decomposable heads. In general it is √(‖W_X‖² + Σ_i v_i
    ‖W_Yi‖²) with the parts of the key-query circuit on inputs and on labels, whose variances are
    v_i. A single query has scores of deviation ‖W x_q‖, which is the same only for many inputs.

    **Arguments:**

    - `model`: softmax attention.
    - `length`: N; by default that of the task, which must then have one alone.
    - `sequences`: how many are drawn.
    - `key`: the random key that draws them; by default `jax.random.key(0)`.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3, 4]], context=40)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.softmax_regimes(pair, task)
    >>> found.regimes, found.deviation.round(2)
    (('exponential', 'exponential'), array([0.29, 0.29]))
    ```
    """
    if not isinstance(model, Attention) or model.activation != "softmax":
        raise TypeError(
            f"`model` is {name_of(model)} ({getattr(model, 'activation', 'own')}): must be softmax "
            "attention."
        )
    if not is_whole(sequences) or sequences < 2:
        raise InputError("sequences", sequences, "must be a whole number from 2 up")
    found = circuits(model, task)
    task = _with_length(task, length)
    length = task.max_context
    variances = np.asarray(task.signal) * found.masks.sum(1) + np.asarray(task.noise)
    inputs, labels = found.attention[:, : found.dim], found.attention[:, found.dim :]
    power = np.sum(inputs**2, (1, 2)) + np.sum(labels**2, 2) @ variances
    deviation = np.sqrt(power)
    first, second = float(np.sqrt(np.log(length) / 2)), float(np.sqrt(2 * np.log(length)))
    squares = _squares(model, task, sequences, jr.key(0) if key is None else key)
    return SoftmaxRegimes(
        length=length,
        deviation=deviation,
        exponential=first,
        saturated=second,
        regimes=tuple(_regime(a, first, second) for a in deviation),
        concentration=squares.mean(0),
        error=squares.std(0, ddof=1) / sequences**0.5,
    )


def _regime(deviation: float, first: float, second: float) -> Regime:
    if deviation <= first:
        return "exponential"
    return "saturated" if deviation > second else "crossover"


def _with_length(task: MultiTaskRegression, length: int | None) -> MultiTaskRegression:
    """The same task with contexts of one length, above 1."""
    # Without `length` these are properties of the task, which other callers of a run cannot change.
    if length is None and len(task.contexts) > 1:
        raise Refusal(
            f"`length` is missing: must be given, because `task` has {len(task.contexts)} lengths."
        )
    if length is None and task.max_context < 2:
        raise Refusal("`task` has contexts of 1 token: there is nothing to concentrate on.")
    length = task.max_context if length is None else length
    if not is_whole(length) or length < 2:
        raise InputError("length", length, "must be a whole number from 2 up")
    noise: Any = task.noise
    return MultiTaskRegression(
        task.coordinates,
        task.dim,
        int(length),
        noise=noise,
        signal=task.signal,
        input_rotation=task.input_rotation,
        output_rotation=task.output_rotation,
        noisy_query=task.noisy_query,
    )


def _squares(
    model: Attention, task: MultiTaskRegression, count: int, key: PRNGKeyArray
) -> np.ndarray:
    """|p|² of each head on many sequences, drawn in batches."""
    # In float64: two arrays of tokens, and three numbers per token and head.
    each = 8 * (task.max_context + 1) * (2 * (task.dim + task.labels) + 3 * model.heads)
    batch = int(np.clip(_BYTES // each, 1, count))
    keys = jr.split(key, -(-count // batch))
    parts = [jax.device_get(_squared_weights(model, task, one, batch)) for one in keys]
    return np.concatenate(parts)[:count]


@eqx.filter_jit
def _squared_weights(
    model: Attention, task: MultiTaskRegression, key: PRNGKeyArray, count: int
) -> Float[Array, "count H"]:
    sequences = task.sample(key, count)
    tokens = jnp.concatenate([sequences.x, sequences.y], -1)
    if model.self_attention:
        query = jnp.pad(sequences.x_query, ((0, 0), (0, task.labels)))
        tokens = jnp.concatenate([tokens, query[:, None]], 1)
    # One vector per head and query first: cheaper than a matrix per token.
    keys = jnp.einsum("hab,pb->pha", model.kq(), sequences.x_query)
    scores = jnp.einsum("pna,pha->phn", tokens, keys)
    return jnp.sum(jax.nn.softmax(scores) ** 2, -1)

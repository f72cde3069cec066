"""How noisy a batch is: labels integrated out against plain sampling, sequence for sequence."""

import statistics

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PRNGKeyArray

from iclflow.models import Attention, Merged
from iclflow.risks import AbstractSampledRisk, IntegratedRisk, QuerySampledRisk, SampledRisk
from iclflow.tasks import isotropic

from ._row import Bar, Row

GROUP = "noise of a batch at the pair ω = ±.13, μ = ±3.45; d = 5, L = 40, σ² = .1"
SAME_WEIGHTS = "variance of the gradient, same weights: plain ÷ integrated"
_BATCH = 16


def noise_rows(batches: int, queries: int, judged: bool, repeats: int = 5) -> list[Row]:
    """How many times as much variance plain sampling has.

    **Arguments:**

    - `batches`: of 16 sequences, for each repeat; variances are those between batches.
    - `queries`: for the sampler that draws nothing else.
    """
    task = isotropic(5, 40, 0.1)
    omega, mu = jnp.asarray([0.13, -0.13]), jnp.asarray([3.45, -3.45])
    blocks = omega[:, None, None] * jnp.eye(5)
    reduced = Attention(Merged.of(mu, blocks), activation="softmax", self_attention=False)
    full = reduced.embed()
    found = {name: [] for name in ("loss", "same", "all")}
    for key in jr.split(jr.key(0), repeats):
        keys = jr.split(key, 2)
        plain_loss, plain = _variances(SampledRisk(task, _BATCH), full, keys[0], batches)
        our_loss, ours = _variances(IntegratedRisk(task, _BATCH), reduced, keys[1], batches)
        kept = plain.circuits
        same = jnp.sum(kept.key_query[:, :-1]) + jnp.sum(kept.value[..., -1])
        total, our_total = (sum(map(jnp.sum, jax.tree.leaves(g))) for g in (plain, ours))
        found["loss"].append(float(plain_loss / our_loss))
        found["same"].append(float(same / our_total))
        found["all"].append(float(total / our_total))
    bar = Bar(9, at_least=True) if judged else None
    note = f"{batches} batches of {_BATCH} sequences, {repeats} times"
    row = lambda name, values, **fields: Row(
        GROUP, name, statistics.median(values), "×", (min(values), max(values)), repeats, **fields
    )
    return [
        row("variance of the loss: plain ÷ integrated", found["loss"], bar=bar, note=note),
        row(SAME_WEIGHTS, found["same"], bar=bar, note="key-query and label weights"),
        row(
            "variance of the gradient, all weights: plain ÷ integrated", found["all"],
            note="with those that only plain sampling moves: label rows of keys, inputs of values",
        ),
        _query_row(float(plain_loss) * _BATCH, queries, full=QuerySampledRisk(task), model=reduced),
    ]  # fmt: skip


@eqx.filter_jit
def _between(risk: AbstractSampledRisk, model, keys: Key[Array, " n"]):
    """The variances, over batches, of the loss and of every entry of the gradient."""
    losses, gradients = jax.vmap(lambda key: risk.value_and_gradient(model, key))(keys)
    return jax.tree.map(lambda values: jnp.var(values, 0, ddof=1), (losses, gradients))


def _variances(risk: AbstractSampledRisk, model, key: PRNGKeyArray, batches: int):
    return _between(risk, model, jr.split(key, batches))


def _query_row(plain: float, queries: int, full: QuerySampledRisk, model) -> Row:
    estimate = full.estimate(model, jr.key(1), queries)
    count = -(-queries // full.batch) * full.batch
    variance = float(estimate.standard_error) ** 2 * count
    return Row(
        GROUP,
        "variance of the loss: plain ÷ queries alone",
        plain / variance,
        "×",
        note=f"contexts integrated out too; {count} queries",
    )

"""Small transformers trained on K tasks, how far they are from the two Bayes predictors, and the
exact lines beside them."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...runtime import show_progress
from ...tasks import FiniteTasks, LinearRegression, Sequences, discrete_posterior
from ...theory import diversity
from .. import Lab, once
from .transformer import Transformer, operations

# Points at which a run is measured; sequences that are predicted at a time.
_POINTS, _PART = 24, 512


class Setting(NamedTuple):
    """What is trained on which tasks, and how. The query of tests is the last of the `pairs`.

    **Fields:**

    - `tests`: sequences of each distribution on which a model is measured.
    """

    dim: int
    pairs: int
    noise: float
    tasks: tuple[int, ...]
    seeds: int
    width: int
    heads: int
    depth: int
    batch: int
    steps: int
    rate: float
    tests: int

    @property
    def operations(self) -> float:
        """Floating-point operations of the whole training."""
        runs = len(self.tasks) * self.seeds
        each = operations(self.dim, self.pairs, self.width, self.depth)
        return runs * self.steps * self.batch * each

    @property
    def saved(self) -> tuple[int, ...]:
        """The steps after which models are measured: the first, the last, and those between them
        at even distances of their logarithm."""
        inner = np.geomspace(max(1, self.steps // 500), self.steps, _POINTS).round().astype(int)
        return (0, *(int(step) for step in np.unique(inner)))

    @property
    def rule(self) -> optax.GradientTransformation:
        """Adam; its rate rises in the first tenth, then falls along a cosine."""
        warm = max(1, self.steps // 10)
        rate = optax.warmup_cosine_decay_schedule(0.0, self.rate, warm, max(self.steps, warm + 1))
        return optax.adam(rate)

    def about(self) -> dict[str, Any]:
        """As claims and figures record it."""
        optimiser = f"Adam, rate {self.rate:g}, risen in the first tenth, then along a cosine to 0"
        return self._asdict() | {"optimiser": optimiser, "operations": f"{self.operations:.2g}"}


def setting(lab: Lab) -> Setting:
    """That of arXiv 2306.15063 at a smaller size; shorter tiers show how it goes."""
    if lab.tier == "paper":
        tasks = tuple(2**k for k in range(4, 17, 2))
        return Setting(8, 16, 0.25, tasks, 4, 64, 4, 4, 64, 50_000, 1e-3, 4096)
    if lab.tier == "default":
        return Setting(4, 8, 0.25, (2, 32, 1024), 1, 32, 2, 4, 64, 3000, 2e-3, 1024)
    return Setting(2, 4, 0.25, (1, 64), 2, 8, 2, 2, 8, 20, 1e-3, 64)


class Trained(NamedTuple):
    """Transformers during training: axes K, seeds, times.

    Losses are those of the query, its noise included. `idg` is on fresh sequences of the tasks of
    training, `icl` on unseen tasks. Distances are E(ŷ − ŷ')²/d to dMMSE and to ridge regression on
    the same sequences.

    **Fields:**

    - `times`: steps.
    - `losses`: over all positions of the batch, at each point after the first.
    - `dmmse_idg_loss`, `dmmse_icl_loss`, `ridge_idg_loss`: of the two predictors, one for each K
      and seed. `ridge_icl_loss`: of ridge regression on unseen tasks, where it is Bayes.
    - `tasks`: the largest set of task vectors of each seed; the first K of them are those of K.
    - `weights`: of all models at the end.
    """

    times: Int[np.ndarray, " T"]
    losses: Float[np.ndarray, "K S T-1"]
    idg: Float[np.ndarray, "K S T"]
    icl: Float[np.ndarray, "K S T"]
    dmmse_idg: Float[np.ndarray, "K S T"]
    ridge_idg: Float[np.ndarray, "K S T"]
    dmmse_icl: Float[np.ndarray, "K S T"]
    ridge_icl: Float[np.ndarray, "K S T"]
    dmmse_idg_loss: Float[np.ndarray, "K S"]
    dmmse_icl_loss: Float[np.ndarray, "K S"]
    ridge_idg_loss: Float[np.ndarray, "K S"]
    ridge_icl_loss: Float[np.ndarray, " S"]
    tasks: Float[np.ndarray, "S most D"]
    weights: Transformer


def law(at: Setting) -> LinearRegression:
    """Unseen tasks w ~ N(0, I) on white inputs, with all pairs but the last as context."""
    return LinearRegression(np.ones(at.dim), context=at.pairs - 1, noise=at.noise)


@once
def trained(lab: Lab) -> Trained:
    """All K and seeds of the tier, trained as one program."""
    return train(setting(lab))


def train(at: Setting, key: PRNGKeyArray | None = None) -> Trained:
    """Trains and measures all K and seeds of a setting.

    Seeds have initial weights, tasks and sequences of their own; models of one seed differ in K
    alone.
    """
    keys = jr.split(jr.key(2306) if key is None else key, (at.seeds, 4))
    most = max(at.tasks)
    tasks = jax.vmap(lambda key: jr.normal(key, (most, at.dim), jnp.float32))(keys[:, 0])
    shape = at.dim, at.pairs, at.width, at.heads, at.depth
    first = jax.vmap(lambda key: Transformer.init(key, *shape))(keys[:, 1])
    # Axes: seeds, K.
    copies = lambda leaf: jnp.repeat(leaf[:, None], len(at.tasks), 1)
    models = jax.tree.map(copies, first)
    program = _program(at)
    state = models, jax.vmap(jax.vmap(at.rule.init))(models)
    tests = _Tests(at, np.asarray(tasks, float), keys[:, 3])
    found, losses = [tests.measure(models)], []
    words = f"training {at.seeds * len(at.tasks)} transformers"
    with show_progress(words, None) as report:
        for before, now in zip(at.saved, at.saved[1:]):
            *state, loss = program(*state, tasks, keys[:, 2], before, now)
            losses.append(np.asarray(loss))
            found.append(tests.measure(state[0]))
            report(words, now / at.steps, f"step {now:,}, loss {losses[-1].mean():.4f}")
    moved = lambda values: np.moveaxis(np.asarray(values, float), (0, 1), (2, 1))
    distances = {name: moved([each[name] for each in found]) for name in found[0]}
    dim = at.dim
    return Trained(
        times=np.array(at.saved),
        losses=moved(losses),
        # A posterior mean errs by the posterior variance, and what is off it adds to that.
        idg=tests.dmmse_idg_loss[..., None] + dim * distances["dmmse_idg"],
        icl=tests.ridge_icl_loss[:, None] + dim * distances["ridge_icl"],
        **distances,
        dmmse_idg_loss=tests.dmmse_idg_loss,
        dmmse_icl_loss=tests.dmmse_icl_loss,
        ridge_idg_loss=tests.ridge_idg_loss,
        ridge_icl_loss=tests.ridge_icl_loss,
        tasks=np.asarray(tasks, float),
        weights=jax.tree.map(np.asarray, state[0]),
    )


@functools.cache
def _program(at: Setting) -> Any:
    """Steps from one number to another for all models: one compiled program."""
    counts, rule = jnp.array(at.tasks), at.rule

    def step_seed(models, states, tasks, key):
        """A step of all K of one seed: they share inputs, noise and the ranks of their tasks."""
        for_inputs, for_noise, for_task = jr.split(key, 3)
        x = jr.normal(for_inputs, (at.batch, at.pairs, at.dim), jnp.float32)
        noise = at.noise**0.5 * jr.normal(for_noise, (at.batch, at.pairs), jnp.float32)
        rank = jr.uniform(for_task, (at.batch,), jnp.float32)

        def step(model, state, count):
            w = tasks[jnp.minimum((rank * count).astype(int), count - 1)]
            y = jnp.einsum("bnd,bd->bn", x, w) + noise
            loss = lambda model: jnp.mean((model.predict(x, y) - y) ** 2)
            value, slope = jax.value_and_grad(loss)(model)
            change, state = rule.update(slope, state)
            return optax.apply_updates(model, change), state, value

        return jax.vmap(step)(models, states, counts)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def steps(models, states, tasks, keys, start, end):
        def body(number, carry):
            models, states, total = carry
            own = jax.vmap(lambda key: jr.fold_in(key, number))(keys)
            models, states, loss = jax.vmap(step_seed)(models, states, tasks, own)
            return models, states, total + loss

        zero = jnp.zeros((at.seeds, len(at.tasks)), jnp.float32)
        models, states, total = jax.lax.fori_loop(start, end, body, (models, states, zero))
        return models, states, total / (end - start)

    return steps


class _Tests:
    """Sequences of both distributions for each seed and K, with the Bayes predictions on them."""

    def __init__(self, at: Setting, tasks: Float[np.ndarray, "S most D"], keys: Array):
        self._at, fresh, noise = at, law(at), jnp.asarray(at.noise)
        shape = (at.seeds, len(at.tasks))
        self._seen: dict[tuple[int, int], Sequences] = {}
        self._unseen: list[Sequences] = []
        self._bayes: dict[tuple[int, int], dict[str, Array]] = {}
        self.ridge_icl_loss = np.empty(at.seeds)
        self.dmmse_idg_loss, self.dmmse_icl_loss, self.ridge_idg_loss = (
            np.empty(shape[::-1]) for _ in range(3)
        )
        for seed in range(at.seeds):
            unseen_key, *seen_keys = jr.split(keys[seed], 1 + len(at.tasks))
            unseen = fresh.sample(unseen_key, at.tests)
            self._unseen.append(unseen)
            ridge = fresh.bayes_predict(unseen)
            self.ridge_icl_loss[seed] = float(jnp.mean(fresh.bayes_variance(unseen)))
            for k, count in enumerate(at.tasks):
                own = FiniteTasks(tasks[seed, :count], fresh)
                seen = own.sample(seen_keys[k], at.tests)
                self._seen[seed, k] = seen
                recalled = discrete_posterior(seen, own.vectors, noise)
                elsewhere = discrete_posterior(unseen, own.vectors, noise).mean
                solved = fresh.bayes_predict(seen)
                self._bayes[seed, k] = {
                    "dmmse_idg": recalled.mean, "ridge_idg": solved,
                    "dmmse_icl": elsewhere, "ridge_icl": ridge,
                }  # fmt: skip
                loss = float(jnp.mean(recalled.variance)) + at.noise
                gap = lambda one, other: float(jnp.mean((one - other) ** 2))
                self.dmmse_idg_loss[k, seed] = loss
                self.ridge_idg_loss[k, seed] = loss + gap(solved, recalled.mean)
                self.dmmse_icl_loss[k, seed] = self.ridge_icl_loss[seed] + gap(elsewhere, ridge)

    def measure(self, models: Transformer) -> dict[str, Float[np.ndarray, "S K"]]:
        """The four distances of every model."""
        at = self._at
        found = {name: np.empty((at.seeds, len(at.tasks))) for name in self._bayes[0, 0]}
        for (seed, k), rivals in self._bayes.items():
            model = jax.tree.map(lambda leaf: leaf[seed, k], models)
            own = {
                "idg": _predict_last(model, self._seen[seed, k]),
                "icl": _predict_last(model, self._unseen[seed]),
            }
            for name, rival in rivals.items():
                off = own[name[-3:]] - np.asarray(rival)[:, 0]
                found[name][seed, k] = np.mean(off**2) / at.dim
        return found


def _predict_last(model: Transformer, sequences: Sequences) -> Float[np.ndarray, " P"]:
    """Predictions of the queries, in full single precision."""
    x = np.concatenate([sequences.x, sequences.x_query[:, None]], 1).astype(np.float32)
    # The label of the query is not seen by its own token.
    y = np.concatenate([sequences.y[..., 0], np.zeros((len(x), 1))], 1).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        parts = [_last(model, x[i : i + _PART], y[i : i + _PART]) for i in range(0, len(x), _PART)]
    return np.concatenate([np.asarray(part, float) for part in parts])


@jax.jit
def _last(model: Transformer, x: Array, y: Array) -> Array:
    return model.predict(x, y)[:, -1]


class Threshold(NamedTuple):
    """log₂ K at which models are as near to dMMSE as to ridge regression on unseen tasks: of each
    seed (NaN: it stays on one side), and the 95 % interval of their mean by Student's law."""

    each: Float[np.ndarray, " S"]
    mean: float
    low: float
    high: float


def threshold(at: Setting, found: Trained) -> Threshold:
    """Where the share of `ridge_share` passes one half, between two K by a line in log₂ K."""
    x, shares = np.log2(at.tasks), ridge_share(found)[..., -1]
    each = np.full(at.seeds, np.nan)
    for seed, share in enumerate(shares.T):
        above = share > 0.5
        if above[-1] and not above[0]:
            # The last K that is nearer to dMMSE: beyond it all are nearer to ridge regression.
            last = int(np.flatnonzero(~above)[-1])
            part = (0.5 - share[last]) / (share[last + 1] - share[last])
            each[seed] = x[last] + part * (x[last + 1] - x[last])
    mean = float(each.mean())
    if at.seeds < 2 or not np.all(np.isfinite(each)):
        return Threshold(each, mean, np.nan, np.nan)
    from scipy.stats import t

    half = float(t.ppf(0.975, at.seeds - 1) * each.std(ddof=1) / at.seeds**0.5)
    return Threshold(each, mean, mean - half, mean + half)


def ridge_share(found: Trained) -> Float[np.ndarray, "K S T"]:
    """Δ_dMMSE/(Δ_dMMSE + Δ_ridge) on unseen tasks: 0 at dMMSE, 1 at ridge regression."""
    return found.dmmse_icl / (found.dmmse_icl + found.ridge_icl)


class OneLayer(NamedTuple):
    """Exact losses of the best layer of linear attention on the same tasks: axes K, seeds."""

    idg: Float[np.ndarray, "K S"]
    icl: Float[np.ndarray, "K S"]


def one_layer(at: Setting, found: Trained) -> OneLayer:
    """What one layer of linear attention would end at."""
    fresh, losses = law(at), []
    for count in at.tasks:
        for rows in found.tasks[:, :count]:
            seen = diversity.with_tasks(fresh, rows)
            losses.append([diversity.levels_on_test(seen, test)[-1] for test in (seen, fresh)])
    pairs = np.reshape(losses, (len(at.tasks), at.seeds, 2))
    return OneLayer(pairs[..., 0], pairs[..., 1])


def half_gone(at: Setting, gaps: Float[np.ndarray, "K S"]) -> Float[np.ndarray, " S"]:
    """log₂ K at which the gap between unseen tasks and those of training is half of what it is at
    the fewest tasks, by lines in log₂ K."""
    x, found = np.log2(at.tasks), []
    for gap in gaps.T:
        share = gap / gap[0]
        after = int(np.argmax(share < 0.5))
        if share[after] >= 0.5:
            found.append(np.nan)
            continue
        part = (share[after - 1] - 0.5) / (share[after - 1] - share[after])
        found.append(x[after - 1] + part * (x[after] - x[after - 1]))
    return np.array(found)

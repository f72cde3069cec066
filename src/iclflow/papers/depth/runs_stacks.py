"""The experiments of arXiv 2306.00297 at its public settings, d = 5 and N = 20 without noise:
stacks trained on drawn contexts, and what they predict."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float

from ...flows import descend, gradient_flow_ensemble
from ...models import DiagonalStack, FullStack, MovingScalarStack, ScalarStack
from ...risks import GramRisk, available_kinds, risk
from ...tasks import LinearRegression
from .. import Lab, once
from .runs_levels import CONTEXT, DIM, Landscape, white_task

# η of the released baseline of preconditioned gradient descent, a step on the sum over pairs.
BASELINE_RATE = 0.04


def public_task() -> LinearRegression:
    """x ~ N(0, I) and w ~ N(0, I): the loss of predicting zero is 5."""
    return LinearRegression(np.ones(DIM), CONTEXT)


class Trained(NamedTuple):
    """A stack of matrices after training with value blocks B = 0.

    - `loss`: its expectation, and `error`, its standard error; 0 where it is exact.
    - `steps`: tr Γ_l/d, increasing.
    - `beside`: the largest |Γ_l − (tr Γ_l/d) I| over the largest step.
    """

    loss: float
    error: float
    steps: Float[np.ndarray, " L"]
    beside: float


# Sampled training, by tier: steps of Adam and contexts a step. The rate falls to zero along half a
# cosine: at a constant one weights jitter for ever.
STEPS, CONTEXTS, RATE = (1500, 1500, 8000), (256, 256, 1024), 0.02


@once
def trained_stack(lab: Lab, layers: int, seed: int) -> Trained:
    """Adam on fresh contexts from Gaussian matrices of size 1e-4, as the public code begins."""
    model = FullStack.init(jr.key(seed), DIM, layers, scale=1e-4)
    drawn, count = GramRisk(public_task(), lab.scaled(*CONTEXTS)), lab.scaled(*STEPS)
    rule = optax.adam(optax.cosine_decay_schedule(RATE, count))
    run = descend(model, drawn, rule, count, key=jr.key(100 + seed))
    lab.hash_runs(run)
    matrices = np.asarray(run.final.steps())
    steps = np.trace(matrices, axis1=1, axis2=2) / DIM
    beside = np.max(np.abs(matrices - steps[:, None, None] * np.eye(DIM))) / np.max(steps)
    loss = _expected_loss(run.final, lab.scaled(20_000, 20_000, 200_000))
    return Trained(loss.mean, loss.error, np.sort(steps), float(beside))


def _expected_loss(model: FullStack, count: int) -> "Sampled":
    """The exact loss; of three layers or more, which have none, that of their isotropic parts, and
    the difference on drawn contexts, which is small and so hardly scatters."""
    task, layers = public_task(), model.depth
    if "exact" in available_kinds(task, model):
        return Sampled(float(risk(task, model, "exact")(model)), 0.0)
    steps = jnp.trace(model.steps(), axis1=1, axis2=2) / DIM
    near = ScalarStack(steps, DIM, layers)
    batch = GramRisk(task).draw(jr.key(4), count)
    beside = _mean(np.asarray(batch.losses(model) - batch.losses(near)))
    return beside._replace(mean=beside.mean + float(risk(task, near, "exact")(near)))


@once
def losses_at_lengths(lab: Lab, layers: int, contexts: tuple[int, ...]) -> Float[np.ndarray, " N"]:
    """The least exact loss of untied layers on contexts of these lengths, by descent."""
    starts = np.linspace(0.2, 1.0, layers)
    tasks = [LinearRegression(np.ones(DIM), context, noisy_query=False) for context in contexts]
    return np.array([Landscape(task, layers).lowest(starts)[1] for task in tasks])


@once
def value_block_ends(lab: Lab) -> Float[np.ndarray, " R"]:
    """Where exact flows of two layers with trained value blocks end, from small weights."""
    count = lab.scaled(12, 12, 100)
    draw = lambda key: MovingScalarStack.init(key, DIM, 2, scale=1e-2)
    models, one = jax.vmap(draw)(jr.split(jr.key(0), count)), draw(jr.key(0))
    runs = gradient_flow_ensemble(models, risk(white_task(), one, "exact"), end=1e4)
    lab.hash_runs(runs)
    return np.array([float(runs[i].losses[-1]) for i in range(count)])


def rotated_loss(steps: np.ndarray) -> tuple[float, float]:
    """The exact loss of γ_lΛ⁻¹ at the public spectrum with w ~ N(0, Λ⁻¹), and its largest slope."""
    spread = np.array([1.0, 1.0, 0.25, 0.0625, 1.0])
    task = LinearRegression(spread, CONTEXT, prior_covariance=np.diag(1 / spread))
    model = DiagonalStack(jnp.asarray(steps)[:, None] / spread, len(steps))
    exact = risk(task, model, "exact")
    loss, slopes = jax.value_and_grad(lambda gamma: exact(DiagonalStack(gamma, len(steps))))(
        model.gamma
    )
    return float(loss), float(np.max(np.abs(slopes)))


class Sampled(NamedTuple):
    """A mean over drawn contexts and its standard error."""

    mean: float
    error: float


def sampled_loss(steps: np.ndarray, attended: bool, count: int) -> Sampled:
    """The loss of a stack with these steps on drawn sequences, its query a key too or not."""
    task = public_task()
    model = ScalarStack(jnp.asarray(steps), DIM, len(steps), self_attention=attended)
    sequences = task.sample(jr.key(2), count)
    errors = np.asarray((model.predict(sequences) - sequences.y_query)[:, 0]) ** 2
    return _mean(errors)


def sampled_baseline(layers: int, pairs: int, count: int) -> Sampled:
    """L steps w ← w + η Σ (y − w·x) x on the first of the N pairs, on drawn sequences.

    The error of w, and not that of a label: what queries would add is noise.
    """
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((count, CONTEXT, DIM))[:, :pairs], rng.standard_normal((count, DIM))
    left = w
    for _ in range(layers):
        left = left - BASELINE_RATE * np.einsum("cni,cnj,cj->ci", x, x, left)
    return _mean(np.sum(left**2, axis=1))


def _mean(values: np.ndarray) -> Sampled:
    return Sampled(float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5))

"""The best heads on several tasks, by searches on the risks of the library (arXiv 2402.19442).

Risks are quadratic in the weights on labels, so that the best of these follow from gradients;
attention is searched with quasi-Newton steps, from many starts at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from ...models import Attention, Spectral
from ...risks import ExactSoftmaxRisk, SpectralRisk, exact_softmax_risk, spectral_risk
from ...tasks import MultiTaskRegression, isotropic
from ...theory.multitask import Blocks
from .runs import blocks_of_sizes

# Heads whose loss is the remainder of terms that are larger by more than this factor are skipped:
# rounding would change more than 1e-8 of it.
_CANCELLED = 1e7
# The size of blocks in searches over d/L, on which alone the closed form depends.
SIZE = 100
Shape = Callable[[Array], Array]


class Found(NamedTuple):
    """The results of searches from M starts."""

    omega: Float[np.ndarray, "M H I"]
    mu: Float[np.ndarray, "M H I"]
    losses: Float[np.ndarray, " M"]

    def best(self, groups: int) -> "Found":
        """The best of each group of consecutive starts."""
        losses = self.losses.reshape(groups, -1)
        which = losses.argmin(1) + np.arange(groups) * losses.shape[1]
        return Found(*(each[which] for each in self))


def block_tasks(
    sizes: Sequence[int],
    length: int,
    signal: float | Sequence[float],
    noise: float | Sequence[float],
) -> MultiTaskRegression:
    """Tasks on blocks of these sizes; losses exclude the noise of the query's labels."""
    return MultiTaskRegression(
        blocks_of_sizes(tuple(sizes)), context=length, signal=signal, noise=noise, noisy_query=False
    )


def unit_tasks(sizes: Sequence[int], length: int, noise: float = 0.0) -> MultiTaskRegression:
    """Tasks whose signals have variance 1 each."""
    return block_tasks(sizes, length, [1 / size for size in sizes], noise)


def unit_blocks(size: float, length: float, tasks: int = 1, noise: float = 0.0) -> Blocks:
    """Equal tasks whose signals have variance 1 each, for theory."""
    every = np.ones(tasks)
    return Blocks(size * every, every / size, noise * every, float(length))


def free_heads(
    omega: Float[Array, "H I"] | np.ndarray,
    mu: Any,
    coordinates: tuple[tuple[int, ...], ...],
    **options: Any,
) -> Attention:
    """Heads with factors ω and μ times constants, so that gradients at zero do not vanish."""
    sizes = jnp.asarray([len(block) for block in coordinates], float)
    dim = sum(map(len, coordinates))
    ones = jnp.ones(omega.shape)
    circuits = Spectral(
        K=math.sqrt(dim) * sizes * omega, Q=ones, V=ones, O=jnp.asarray(mu),
        coordinates=coordinates, dim=dim, width=dim,
    )  # fmt: skip
    return Attention(circuits, **options)


def closed_form(task: MultiTaskRegression) -> SpectralRisk:
    """The closed-form risk of any number of heads."""
    nothing = np.zeros((1, task.labels))
    found = spectral_risk(task, free_heads(nothing, nothing, task.coordinates))
    assert found is not None
    return found


def search(
    risks: Sequence[SpectralRisk],
    starts: Float[np.ndarray, "M n"],
    shape: Shape,
    reads: np.ndarray | None = None,
    steps: int = 400,
    gain: float = 1e-15,
) -> Found:
    """The smallest risks over parameters of attention, from every start.

    **Arguments:**

    - `risks`: on tasks with the same blocks; each gets an equal part of the starts.
    - `shape`: ω from the parameters, (n,) to (H, I).
    - `reads`: which head may read which label, (H, I); by default all may read all.
    - `gain`: a search ends with a step that improves the loss by a smaller share.
    """
    each = len(starts) // len(risks)
    stacked = jax.tree.map(lambda *leaf: jnp.repeat(jnp.stack(leaf), each, 0), *risks)
    form = eqx.filter_eval_shape(shape, jnp.asarray(starts[0]))
    allowed = np.ones(form.shape) if reads is None else np.asarray(reads, float)
    evaluate = lambda x: _profile(stacked, jnp.asarray(x), shape, jnp.asarray(allowed))
    x = _minimise(lambda x: tuple(map(np.asarray, evaluate(x)[:2])), starts, steps, gain)
    losses, _, mu = map(np.asarray, evaluate(x))
    return Found(np.asarray(jax.vmap(shape)(jnp.asarray(x))), mu, losses)


def risks_along(tasks: int, ratios: Sequence[float], noise: float = 0.0) -> list[SpectralRisk]:
    """The closed-form risks on equal unit tasks at these d/L."""
    risk = closed_form(unit_tasks((SIZE,) * tasks, 1, noise))
    return [risk.at_length(SIZE / ratio) for ratio in ratios]


def search_groups(risks: Sequence[SpectralRisk], tasks: int, heads: int) -> np.ndarray:
    """The smallest loss for each risk of heads that divide the tasks evenly, each blind to those of
    the others."""
    own = np.arange(heads)[:, None] == np.arange(tasks) % heads
    starts = np.random.default_rng(0).uniform(0.3, 1.2, (len(risks), tasks)) / SIZE**0.5
    return search(risks, starts, lambda x: x * own, own).losses


def search_free(risks: Sequence[SpectralRisk], tasks: int, heads: int, starts: int = 4):
    """The smallest loss for each risk of heads without constraints, the best of some starts."""
    shape, size = (heads, tasks), (starts * len(risks), heads * tasks)
    normal = np.random.default_rng(0).normal(size=size) / SIZE**0.5
    found = search(risks, normal, lambda x: 0.5 * x.reshape(shape), gain=1e-8)
    return found.best(len(risks)).losses


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(0, 0, None, None))
def _profile(risk: SpectralRisk, x: Array, shape: Shape, allowed: Array):
    """The risk at the best weights on labels, its gradient in x, and these weights."""
    omega, free = shape(x), allowed.reshape(-1)
    sets = risk.task.coordinates
    value = lambda flat: risk(free_heads(omega, (free * flat).reshape(omega.shape), sets))
    unit = jnp.eye(omega.size)
    slope = jax.grad(value)(jnp.zeros(omega.size))
    square = jax.vmap(jax.grad(value))(unit) - slope + jnp.diag(1 - free)
    flat = jax.lax.stop_gradient(-jnp.linalg.solve(square, slope))
    mu = (free * flat).reshape(omega.shape)
    # At the best μ the risk does not depend on μ to first order.
    loss, by_x = jax.value_and_grad(lambda x: risk(free_heads(shape(x), mu, sets)))(x)
    # With all signs positive nothing cancels: this is the size of the terms.
    terms = risk(free_heads(jnp.abs(omega), jnp.abs(mu), sets))
    return jnp.where(terms < _CANCELLED * loss, loss, jnp.inf), by_x, mu


def _minimise(evaluate, starts: np.ndarray, steps: int, gain: float) -> np.ndarray:
    """Quasi-Newton descent (BFGS) of many functions at once, each from its own start."""
    x = np.array(starts, float)
    count, size = x.shape
    loss, slope = evaluate(x)
    unit = np.eye(size)
    # The first step has length 0.1; heads that are of use have ω√d near 1.
    inverse = 0.1 * unit / (1e-12 + np.linalg.norm(slope, axis=1))[:, None, None]
    way = -np.einsum("mij,mj->mi", inverse, slope)
    share, going = np.ones(count), np.ones(count, bool)
    for _ in range(steps):
        new = x + share[:, None] * way
        new_loss, new_slope = evaluate(new)
        # Armijo's condition with its usual constant: the loss falls as the gradient promises.
        enough = new_loss <= loss + 1e-4 * share * np.sum(slope * way, 1)
        good = going & enough & np.isfinite(new_loss)
        moved, bent = new - x, np.where(np.isfinite(new_slope), new_slope, 0.0) - slope
        product = np.sum(moved * bent, 1)
        lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(bent, axis=1)
        # BFGS needs a positive curvature along the step.
        usable = good & (product > 1e-12 * lengths)
        inverse = inverse + _update(inverse, moved, bent, np.where(usable, product, np.inf))
        gained = loss - np.where(good, new_loss, 0.0)
        going &= ~(good & (gained < gain * np.abs(new_loss)))
        x, slope = (np.where(good[:, None], *pair) for pair in ((new, x), (new_slope, slope)))
        loss = np.where(good, new_loss, loss)
        # Where no step along this direction is short enough, restart along the gradient.
        lost = going & ~good & (share < 1e-8)
        inverse = np.where(lost[:, None, None], 1e-3 * unit, inverse)
        share = np.where(good | lost, 1.0, share / 3)
        ahead = -np.einsum("mij,mj->mi", inverse, slope)
        way = np.where((good | lost)[:, None], ahead, way)
        if not going.any():
            break
    return x


def _update(inverse, moved, bent, product) -> np.ndarray:
    """The BFGS update of an inverse Hessian after steps `moved` that changed the gradient by
    `bent`; zero where `product`, that of the two, is infinite."""
    image = np.einsum("mij,mj->mi", inverse, bent)
    weight = (1 / product)[:, None, None]
    both = moved[:, :, None] * image[:, None, :]
    curved = 1 + weight * np.sum(bent * image, 1)[:, None, None]
    along = moved[:, :, None] * moved[:, None, :]
    return weight * (curved * along - both - both.swapaxes(1, 2))


class ExactHead(NamedTuple):
    """The best single head on one task with signal of variance 1, by the exact risk."""

    omega: float
    mu: float
    loss: float
    risk: ExactSoftmaxRisk


def exact_risk_of(dim: int, length: int, noise: float) -> ExactSoftmaxRisk:
    """The exact risk of single heads on one task with signal of variance 1."""
    return exact_softmax_risk(isotropic(dim, length, noise), digits=6)


def exact_head(dim: int, length: int, noise: float) -> ExactHead:
    """The head with the smallest exact risk, found by search in ω."""
    risk = exact_risk_of(dim, length, noise)

    def at(log_omega: float) -> tuple[float, float]:
        form = risk.quadratic_form(jnp.exp(jnp.asarray([log_omega])))
        best = float(form.linear[0] / form.square[0, 0])
        return float(form.constant - best * form.linear[0]), best

    middle = -0.5 * math.log(dim)
    # The place of a minimum is known to the root of the accuracy of its value.
    found: Any = scipy.optimize.minimize_scalar(
        lambda log_omega: at(log_omega)[0], bracket=(middle - 0.3, middle + 0.3), tol=1e-7
    )
    loss, mu = at(found.x)
    return ExactHead(math.exp(found.x), mu, loss, risk)


def exact_loss(omega: float, mu: float, risk: ExactSoftmaxRisk) -> float:
    """The exact risk of one head."""
    form = risk.quadratic_form(jnp.asarray([omega]))
    return float(form.constant - 2 * mu * form.linear[0] + mu**2 * form.square[0, 0])

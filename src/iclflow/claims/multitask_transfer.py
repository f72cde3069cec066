"""Claims of arXiv 2402.19442 on what heads do where they were not trained: other lengths, other
labels."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.special

from .. import theory
from ..models import SpectralAttention
from ..tasks import MultiSequences, hermite
from ..theory import multitask
from ._base import Check
from ._lab import Lab
from ._multitask_runs import CONTEXT, SIZES, balanced_flow, paper_task
from ._multitask_settings import block_tasks, closed_form, exact_head, exact_loss, free_heads
from ._registry import claim

_LENGTHS = (10.0, 30.0, 100.0, 300.0, 1000.0, 1e6)
# One head, trained at a short context: d, L, σ², and the lengths at which it is tested.
_SHORT = (10, 20, 0.1)
_TESTED = (10.0, 20.0, 40.0, 100.0, 1000.0, 1e6)
# Blocks, context and degrees of labels that are not linear.
_CURVED, _LONG, _DEGREES = (10, 10), 400, (1, 2, 3, 4)
_FINITE = 0.003


@claim(
    "multitask/other-lengths",
    "Heads that gradient flow trained at one length get better on longer contexts, down to the "
    "floor λd(1 − k)² of the part of the signal that they do not return: the loss at L′ is "
    "λd[(1 − k)² + k(1 − k)L/L′].",
    source="Proposition 1",
    tolerance_reason="At t = 2·10⁴ what is left of the algebraic approach of gradient flow is "
    "below 1e-6 of the loss; weights, which enter at first order at other lengths, are so too.",
)
def other_lengths(lab: Lab) -> list[Check]:
    """The closed-form risk at other lengths of the weights at the end of a balanced flow."""
    model = balanced_flow(lab).final
    closed = closed_form(paper_task())
    measured = np.array([float(closed.at_length(length)(model)) for length in _LENGTHS])
    blocks = multitask.blocks_of(paper_task())
    expected = [multitask.at_length(length, blocks).losses.sum() for length in _LENGTHS]
    lab.note(sizes=SIZES, noise=0.0, trained_at=CONTEXT, tested_at=_LENGTHS, losses=measured)
    return [
        Check("loss", lab.predict(np.array(expected)), measured, 1e-3, "relative"),
        Check("floor", lab.predict(multitask.at_length(np.inf, blocks).floor.sum()), measured[-1],
              2e-3, "relative"),
        Check("largest step from one length to the next", lab.predict(0.0, wrong=-10.0),
              np.diff(measured).max(), 0.0, "at most"),
    ]  # fmt: skip


@claim(
    "multitask/length-law-short-contexts",
    "The law of `multitask/other-lengths` gives the loss at other lengths of a head that was "
    "trained at a short one.",
    source="Proposition 1, at d = 10 and L = 20",
    tier="smoke",
    tolerance_reason="5 % of the loss. Near the length of training the law is right to that.",
    misstated=True,
    corrected_by="multitask/exact-lengths",
)
def length_law(lab: Lab) -> list[Check]:
    """The law against exact losses of the best exact head."""
    law, _ = _short_law()
    measured = _short_lengths(lab)
    _note_short(lab, law_over_exact=law / measured - 1)
    return [Check("loss", lab.predict(law), measured, 0.05, "relative")]


@claim(
    "multitask/exact-lengths",
    "The exact loss of the best head of d = 10, L = 20 falls with L′ as the law of the closed form "
    "says, but further: at L′ = 1000 the law is 23 % too high, at its floor 28 %, since the head "
    "attends more sharply than the law has it and returns more of the signal.",
    source="Proposition 1, corrected",
    tier="smoke",
    tolerance_reason="Two quadratures and two searches that share no code: the head is known to "
    "1e-5, the loss to 1e-6. How far the law is off is told to 1 %.",
)
def exact_lengths(lab: Lab) -> list[Check]:
    """Exact losses at other lengths; the floor; what the head returns."""
    dim, length, noise = _SHORT
    best = theory.one_head_optimum(dim, length, noise)
    expected = [theory.kernel_regression_risk(best.omega, dim, n, noise, best.mu) for n in _TESTED]
    law, floor = _short_law()
    measured, head = _short_lengths(lab), _short_head(lab)
    off = law / measured - 1
    _note_short(lab, law_over_exact=off)
    limit = theory.infinite_length_loss(np.array([best.omega]), np.array([best.mu]), noise)
    returned = 1 - np.sqrt(np.array([limit, floor]) - noise)
    return [
        Check("loss", lab.predict(np.array(expected)), measured, 1e-5, "relative"),
        Check("law over loss at L′ = 1000", lab.predict(1.23, wrong=1.1), 1 + off[4], 0.01),
        Check("floor", lab.predict(limit), measured[-1], 2e-4, "relative"),
        Check("part of the signal that is returned, above that of the law",
              lab.predict(returned[1], wrong=0.7), head.omega * head.mu, 0.0, "at least"),
        Check("largest step from one length to the next", lab.predict(0.0, wrong=-0.1),
              np.diff(measured).max(), 0.0, "at most"),
    ]  # fmt: skip


def _note_short(lab: Lab, **more) -> None:
    dim, length, noise = _SHORT
    lab.note(dim=dim, trained_at=length, noise=noise, tested_at=_TESTED, risk="exact", **more)


def _short_law() -> tuple[np.ndarray, float]:
    """The losses and the floor by the law, with the noise of the query's label."""
    dim, length, noise = _SHORT
    one = lambda value: np.array([float(value)])
    blocks = multitask.Blocks(one(dim), one(1 / dim), one(noise), float(length))
    law = [multitask.at_length(n, blocks) for n in (*_TESTED, np.inf)]
    losses = np.array([float(at.losses[0]) for at in law])
    return losses[:-1] + noise, float(losses[-1]) + noise


def _short_head(lab: Lab):
    return lab.once("multitask short head", lambda: exact_head(*_SHORT))


def _short_lengths(lab: Lab) -> np.ndarray:
    head = _short_head(lab)
    compute = lambda: [exact_loss(head.omega, head.mu, head.risk.at_length(n)) for n in _TESTED]
    return np.array(lab.once("multitask short lengths", compute))


@claim(
    "multitask/hermite-transfer",
    "Heads trained on linear tasks return of a part of degree k of their task's labels Σ μωᵏ: one "
    "head a task ηω^{k−1}, η = μω, of all degrees; a pair of opposite heads a task nothing of "
    "even ones. So transfer ends soon: trained at d = 10, L = 400, one head a task loses of what "
    "predicting zero loses 0.68 on quadratic labels and 1.05 on cubic ones, and on endless "
    "contexts still 0.54 and 0.83; pairs lose more than predicting zero on quadratic ones.",
    source="'limits of transfer to nonlinear tasks'; gains are derived in docs/theory/softmax.md",
    tolerance_reason="Gains are drawn: four standard errors, each up to 0.01; and contexts of 400 "
    "leave up to 0.01 of a gain, which counts as a further standard error of 0.003. The rest are "
    "bounds.",
)
def hermite_transfer(lab: Lab) -> list[Check]:
    """Regression of predictions on parts of degree 1 to 4, and losses; two tasks."""
    count = lab.scaled(1000, 1250, 20_000)
    heads = _transfer_heads()
    gains, losses, errors = lab.once("multitask transfer", lambda: _transferred(heads, count))
    lab.note(
        sizes=_CURVED, context=_LONG, degrees=_DEGREES, sequences=count, noise=0.0,
        gains=np.round(gains, 4), losses=np.round(losses, 4), standard_errors=np.round(errors, 4),
    )  # fmt: skip
    first = [(omega[:, 0], mu[:, 0]) for omega, mu in heads]
    expected = np.array([[theory.hermite_gain(*at, k) for k in _DEGREES] for at in first])
    # What is returned is a monomial, of which E q²ᵏ/k! is the power.
    power = scipy.special.factorial2(2 * np.array(_DEGREES) - 1) / scipy.special.factorial(_DEGREES)
    endless = (1 - 2 * expected + power * expected**2)[0, 1:3]
    return [
        Check.sampled("gains of one head a task, and of pairs", lab.predict(expected), gains,
                      np.hypot(errors, _FINITE)),
        Check("losses of one head a task on quadratic and cubic labels, above endless contexts",
              lab.predict(endless, wrong=endless + 0.3), losses[0, 1:3], 0.0, "at least"),
        Check("the first of them, below that of predicting zero", lab.predict(1.0, wrong=0.5),
              losses[0, 1], 0.0, "at most"),
        Check("loss of pairs on quadratic labels", lab.predict(1.0, wrong=1.5), losses[1, 1], 0.0,
              "at least"),
    ]  # fmt: skip


def _transfer_task():
    return block_tasks(_CURVED, _LONG, 1 / _CURVED[0], 0.0)


def _transfer_heads() -> list[tuple[np.ndarray, np.ndarray]]:
    """One head a task where gradient flow ends, and pairs that return as much of the signal."""
    omega, mu = multitask.limit_heads(multitask.blocks_of(_transfer_task()))
    both = lambda part: np.vstack([part, -part])
    return [(omega, mu), (both(omega / 2), both(mu))]


def _transferred(heads, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gain, E[ŷf]/E[f²], the loss, E(f − ŷ)²/E[f²], and the standard error of the gain, of each
    model and degree."""
    models = [free_heads(omega, mu, _transfer_task().coordinates) for omega, mu in heads]
    batch = 125
    keys = jr.split(jr.key(6), count // batch)
    parts = np.array([_batch(models, key, batch) for key in keys])
    product, square, error = parts.sum(0)
    gain = product / square
    rest = (parts[:, 0] - gain * parts[:, 1]) * len(keys) / square
    return gain, error / square, rest.std(0, ddof=1) / len(keys) ** 0.5


@eqx.filter_jit
def _batch(models: list[SpectralAttention], key, count: int):
    """Sums over sequences and both tasks of ŷf, f² and (f − ŷ)², for each model and degree."""
    key_inputs, key_weights = jr.split(key)
    drawn: MultiSequences = _transfer_task().sample(key_inputs, count)
    tasks, size = len(_CURVED), _CURVED[0]
    weights = jr.normal(key_weights, (count, tasks, size)) / size**0.5
    tokens = drawn.x.reshape(count, _LONG, tasks, size)
    query = drawn.x_query.reshape(count, tasks, size)

    def one(degree: int):
        labels = jnp.einsum("pnid,pid->pni", hermite(tokens, degree), weights)
        target = jnp.sum(hermite(query, degree) * weights, -1)
        labelled = eqx.tree_at(lambda s: (s.y, s.y_query), drawn, (labels, target))
        predicted = jnp.stack([model.predict(labelled) for model in models])
        parts = predicted * target, 0 * predicted + target**2, (target - predicted) ** 2
        return jnp.stack([jnp.sum(part, (1, 2)) for part in parts])

    return jnp.stack([one(degree) for degree in _DEGREES], -1)

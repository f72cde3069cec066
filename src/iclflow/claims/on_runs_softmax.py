"""Claims of arXiv 2503.12734 on a run of softmax attention that somebody made."""

import functools

import numpy as np

from .. import theory
from ..analysis import Patterns, learning_phases, patterns, which_algorithm
from ..estimators import DebiasedGradientStep, GradientStep, LeastSquares
from ._base import Check, Inconclusive
from ._lab import Lab
from ._on_runs import Given, on_run
from ._refusals import is_refusal
from ._softmax_run_needs import any_population, heads, softmax_attention
from .softmax_seeds import is_one_sign, is_zero_sum

# A model whose loss is above the best by less than this share is trained.
_TRAINED = 0.02
_COUNT = 4000
_NOISE = (
    "The model must be within 2 % of the loss of the best opposite pair: that far from it the "
    "weights may be off by the square root of what is left. "
)


_FREE = softmax_attention("factored", "merged")
_ANY = softmax_attention("structured", "factored", "merged")


@on_run(
    "softmax/diagonal-kq",
    _FREE,
    heads(2),
    any_population,
    tolerance_reason=_NOISE + "A mean share of 0.95 of the norm on the diagonal, each head counted "
    "by |μω|, is asked.",
)
def diagonal_kq(given: Given, lab: Lab) -> list[Check]:
    """The share of the norm of key-query circuits on the diagonal, at the end."""
    return [_by_weight(_trained(given), "diagonal_share", lab)]


@on_run(
    "softmax/last-entry-ov",
    _FREE,
    heads(2),
    any_population,
    tolerance_reason=_NOISE
    + "A mean share of 0.95 of the norm, each head counted by |μω|, is asked.",
)
def last_entry_ov(given: Given, lab: Lab) -> list[Check]:
    """The share of the norm of output-value circuits in the label's entry, at the end."""
    return [_by_weight(_trained(given), "last_entry_share", lab)]


@on_run(
    "softmax/zero-sum-ov",
    _ANY,
    heads(2),
    any_population,
    tolerance_reason="A sum Σμ that is not zero adds the mean of all labels to the prediction, and "
    "(Σμ)²(1 + σ²)/L to the loss. With x of the loss above that of the best pair, Σμ is at most "
    "√(xL/(1 + σ²)); x is taken as 0.5 % of the loss where it is less, for what heads beyond two "
    "may gain by it.",
)
def zero_sum_ov(given: Given, lab: Lab) -> list[Check]:
    """|Σμ| / Σ|μ| at the end."""
    found = _trained(given)
    dim, length, noise = theory.isotropic_numbers(given.task)
    best = theory.pair_optimum(dim, length, noise).loss
    above = max(_loss(given) - best, 0.005 * best)
    size = sum(abs(head.mu) for head in found.heads)
    allowed = float(np.sqrt(above * length / (1 + noise))) / size
    if allowed > 0.2:
        raise Inconclusive("the loss allows for any sum of the output-value entries")
    return [Check("|Σμ| / Σ|μ|", lab.predict(0.0, wrong=1.0), found.zero_sum, allowed)]


@on_run(
    "softmax/roles",
    _ANY,
    heads(3),
    any_population,
    tolerance_reason="A count: no head works against the others by more than a tenth of what the "
    "strongest adds. " + _NOISE,
)
def roles(given: Given, lab: Lab) -> list[Check]:
    """The roles of all heads at the end."""
    found = _trained(given)
    count = sum(role in ("positive", "negative", "dummy") for role in found.roles)
    total = len(found.roles)
    return [
        Check("heads with a role", lab.predict(total, wrong=total - 1), count, comparison="equal"),
        Check("signs among them", lab.predict(2, wrong=1), len(set(found.roles) - {"dummy"}),
              comparison="equal"),
    ]  # fmt: skip


@on_run(
    "softmax/equal-magnitude",
    _ANY,
    heads(2, 2),
    any_population,
    tolerance_reason="The loss is flat around the pair: a pair with |ω| apart by 10 % loses what "
    "theory computes, and one that is x above the best may be apart by the square root of the "
    "ratio, times 10 %. x is taken as 1e-4 of the loss where it is less.",
)
def equal_magnitude(given: Given, lab: Lab) -> list[Check]:
    """The ratio of the two heads' ω at the end."""
    found = _trained(given)
    numbers = theory.isotropic_numbers(given.task)
    best = theory.pair_optimum(*numbers)
    omega = np.array([1.1 * best.w, -best.w])
    # With the values as they are, and with values that make up for it.
    values = (np.array([mu, -best.mu]) for mu in (best.mu, best.mu / 1.1))
    losses = [float(theory.softmax_exact_loss(omega, mu, *numbers)) for mu in values]
    above = max(_loss(given) - best.loss, 1e-4 * best.loss)
    allowed = 0.1 * float(np.sqrt(above / (min(losses) - best.loss)))
    if allowed > 0.3:
        raise Inconclusive(f"the loss allows for |ω| that are {100 * allowed:.0f} % apart")
    first, second = (head.omega for head in found.heads)
    return [Check("ω₂/ω₁", lab.predict(-1.0, wrong=-1 - 3 * allowed), second / first, allowed)]


@on_run(
    "softmax/trained-loss",
    _ANY,
    heads(2, 2),
    any_population,
    tolerance_reason="1 %: what is left of the drift along the slow manifold and the noise of the "
    "last steps. Four standard errors more where the loss is measured on sequences.",
)
def trained_loss(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end, beside that of the best pair."""
    return [_end_loss(given, lab)]


@on_run(
    "softmax/heads-alike",
    _ANY,
    heads(3),
    any_population,
    tolerance_reason="More than two heads gain 0.5 % at most by the optima that are known; 1 % "
    "leaves room for training. Four standard errors more where the loss is measured on sequences.",
)
def heads_alike(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end, beside that of the best pair."""
    return [_end_loss(given, lab)]


@on_run(
    "softmax/debiased-gradient-descent",
    _ANY,
    heads(2),
    any_population,
    tolerance_reason="The prediction is nearer to debiased gradient descent than to gradient "
    "descent and to least squares, and the best step agrees with η* to 5 %: at the finite ω of the "
    "best pair it does to 1 %, and 2 % of the loss are a few per cent of the step.",
)
def debiased(given: Given, lab: Lab) -> list[Check]:
    """Which of these steps the predictions on fresh sequences are nearest to."""
    _trained(given)
    estimators = (GradientStep(1.0), DebiasedGradientStep(1.0), LeastSquares())
    found = which_algorithm(given.run.final, given.task, count=_COUNT, estimators=estimators)
    name, step = "one debiased gradient step", _step(*theory.isotropic_numbers(given.task))
    return [
        Check("nearest of the steps", lab.predict(name, wrong="one gradient step"), found.best.name,
              comparison="equal"),
        Check("step size", lab.predict(step, wrong=1.1 * step), found[name].step_size, 0.05,
              "relative"),
    ]  # fmt: skip


@on_run(
    "softmax/pair-or-trap",
    softmax_attention("structured", "merged"),
    heads(2),
    any_population,
    tolerance_reason="One of two ends; the sum of the output-value entries is below 5 % of their "
    "sizes in one of them and above half in the other, once the loss has come to rest.",
)
def pair_or_trap(given: Given, lab: Lab) -> list[Check]:
    """Which of the two ends the run has."""
    if not _at_rest(given):
        raise Inconclusive("the loss has not come to rest")
    found = patterns(given.run.final)
    count = int(is_zero_sum(found) or is_one_sign(found))
    return [Check("ends that the run is in", lab.predict(1, wrong=2), count, comparison="equal")]


def _end_loss(given: Given, lab: Lab) -> Check:
    _trained(given, or_at_rest=True)
    best = _best(*theory.isotropic_numbers(given.task))
    allowed = 0.01 + 4 * _error(given) / best
    return Check("loss at the end", lab.predict(best), _loss(given), allowed, "relative")


def _trained(given: Given, or_at_rest: bool = False) -> Patterns:
    """The patterns at the end of a run that is trained, or whose loss at least moves no more."""
    found = patterns(given.run.final)
    above = _loss(given) / _best(*theory.isotropic_numbers(given.task)) - 1
    if above <= _TRAINED:
        return found
    if is_one_sign(found):
        raise Inconclusive("its heads are caught at one sign, as `softmax/pair-or-trap` says")
    if or_at_rest and _at_rest(given):
        return found
    raise Inconclusive(f"its loss is {100 * above:.2g} % above that of the best pair")


@functools.lru_cache(maxsize=128)
def _best(dim: int, length: int, noise: float) -> float:
    return theory.pair_optimum(dim, length, noise).loss


def _step(dim: int, length: int, noise: float) -> float:
    return float(theory.debiased_optimum(dim, length, noise).step)


def _loss(given: Given) -> float:
    _error(given)
    return float(given.run.losses[-1])


def _error(given: Given) -> float:
    """The standard error of the last loss; 0 where it is exact."""
    if given.config.exact or given.config.exact_exists:
        return 0.0
    error = given.run.statistics.get("standard_errors", [None])[-1]
    if error is None:
        raise Inconclusive("the loss is measured on sequences, and its standard error is not known")
    return float(error)


def _at_rest(given: Given) -> bool:
    try:
        return learning_phases(given.run, tolerance=1e-3).settled
    except ValueError as error:
        if not is_refusal(error):
            raise
        return False


def _by_weight(found: Patterns, share: str, lab: Lab) -> Check:
    """The mean of a share over heads, each weighted by what it adds."""
    weights = [abs(head.mu * head.omega) for head in found.heads]
    mean = float(np.average([getattr(head, share) for head in found.heads], weights=weights))
    name = f"{share.replace('_', ' ')} weighted by |μω|"
    return Check(name, lab.predict(0.95, wrong=1.01), mean, 0.0, "at least")

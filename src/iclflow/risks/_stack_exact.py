"""The exact risk of stacks of few layers, on inputs with any covariance."""

import math
from functools import lru_cache, reduce
from operator import mul
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractLinearStack, AbstractModel, Normaliser, StepShape
from ..runtime.precision import as_float, require_float64
from ..tasks import LinearRegression
from ._base import AbstractRisk
from ._stack_task import Lengths, require_stack, stack_facts
from ._stack_words import MOMENT, Letters, Terms, stack_terms


class StackRisk(AbstractRisk):
    """L = σ_q² + E tr ΛΠMΠᵀ + (σ²/N) E tr ΛVSVᵀ, as a polynomial in traces of the weights.

    In coordinates where inputs are white, Γ_l is Λ^½ Γ_l Λ^½ and M is Λ^½ M Λ^½. If all these are
    diagonal, the traces are sums of D products, and the polynomial has one term for each partition
    of the letters of a word (`by_partitions`); otherwise it has one for each way to pair the inputs
    in a word (docs/theory/depth.md). No approximation: the error is rounding, about 1e-14 of the
    largest term. For large steps terms cancel: compare with the risk at half the steps.

    **Fields:**

    - `root`: Λ^½, as a vector if diagonal.
    - `moment`: Λ^½ M Λ^½, as a vector if diagonal.
    - `counts`: how often each term counts, noise and context lengths included.
    - `depth`, `moving`, `weights`: of the stacks that this risk is about.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3, 0.2, 0.1], 31)
    >>> model = icl.DiagonalStack(jnp.array([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0]]), depth=2)
    >>> isinstance(icl.risk(task, model), icl.risks.StackRisk)
    True
    >>> icl.risk(task, model)(model).round(6)
    Array(0.102257, dtype=float64)
    ```
    """

    kind: ClassVar[str] = "exact"

    root: Float[Array, "D *D"]
    moment: Float[Array, "D *D"]
    counts: tuple[Float[Array, " _"], ...]
    query_noise: Float[Array, ""]
    depth: int = eqx.field(static=True)
    moving: bool = eqx.field(static=True)
    weights: StepShape = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @property
    def by_partitions(self) -> bool:
        """Whether all matrices are diagonal."""
        return self.root.ndim == 1

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        stack = require_stack(model, self.normaliser, self.root.shape[0])
        same = stack.depth == self.depth and stack.moving == self.moving
        if not same or stack.shape != self.weights:
            raise ValueError(
                f"This risk is of stacks of {self.depth} layers with {self.weights} weights: make "
                "a risk for each kind of stack."
            )
        plan = _plan(self.depth, self.moving, not self.by_partitions)
        traces = self._diagonal_traces(stack, plan) if self.by_partitions else None
        if traces is None:
            traces = self._matrix_traces(stack, plan)
        # The last trace is that of no letters: shorter terms are filled up with it.
        traces = jnp.append(traces, jnp.ones((), traces.dtype))
        groups = zip(self.counts, plan.groups)
        terms = (counts @ _columns_product(traces[places]) for counts, places in groups)
        return self.query_noise + sum(terms, jnp.zeros((), traces.dtype))

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        zero = jnp.sum(self.moment) if self.by_partitions else jnp.trace(self.moment)
        return self.query_noise + zero

    def _diagonal_traces(self, stack: AbstractLinearStack, plan: "_Plan") -> Float[Array, " T"]:
        """Σ_k Π_i D_ik over the letters D_i of each trace."""
        shape = (self.depth, self.root.shape[0])
        wide = lambda x: jnp.broadcast_to(x[:, None] if x.ndim == 1 else x, shape)
        letters = [self.moment[None], wide(stack.step_weights()) * self.root**2]
        moves = stack.move_weights()
        if moves is not None:
            letters.append(wide(moves))
        used = plan.powers.shape[1]  # nothing reads what the last layer moves
        values = jnp.concatenate(letters)[:used]
        powers = [jnp.ones_like(values)]
        for _ in range(plan.powers.max()):
            powers.append(powers[-1] * values)
        # By trace, letter and component.
        chosen = jnp.stack(powers)[plan.powers, np.arange(used)]
        return jnp.sum(reduce(mul, (chosen[:, i] for i in range(used))), axis=1)

    def _matrix_traces(self, stack: AbstractLinearStack, plan: "_Plan") -> Float[Array, " T"]:
        """tr D_1 D_2 … over the letters of each trace."""
        steps = self.root @ stack.steps() @ self.root
        known: dict[Letters, Array] = {(MOMENT,): self.moment}
        for layer in range(self.depth):
            known[(layer + 1,)], known[(-layer - 1,)] = steps[layer], steps[layer].T

        def product(letters: Letters) -> Array:
            if letters not in known:
                known[letters] = product(letters[:-1]) @ known[letters[-1:]]
            return known[letters]

        def trace(letters: Letters) -> Array:
            half = (len(letters) + 1) // 2
            if half == len(letters):
                return jnp.trace(product(letters))
            return jnp.sum(product(letters[:half]) * product(letters[half:]).T)

        return jnp.stack([trace(letters) for letters in plan.traces])


class _Plan(NamedTuple):
    """The terms of a risk, as arrays.

    **Fields:**

    - `traces`: the letters of each trace.
    - `powers`: how often a trace holds each letter.
    - `groups`: the places of the traces of each term, of 1, 2, 4 or 8 traces.
    - `occurrences`: for each of these terms how often it occurs, by power of 1/N.
    - `noisy`: whether terms are of the noise.
    - `steps`: how many Γ's a term holds.
    """

    traces: tuple[Letters, ...]
    powers: np.ndarray
    groups: tuple[np.ndarray, ...]
    occurrences: tuple[np.ndarray, ...]
    noisy: tuple[np.ndarray, ...]
    steps: tuple[np.ndarray, ...]


@lru_cache(maxsize=16)
def _plan(depth: int, moving: bool, ordered: bool) -> _Plan:
    found = stack_terms(depth, moving, ordered)
    both = [(term, powers, part) for part in (0, 1) for term, powers in _counted(found[part])]
    traces = tuple(sorted({trace for term, _, _ in both for trace in term}))
    place = {trace: i for i, trace in enumerate(traces)}
    letters = 1 + max(abs(letter) for trace in traces for letter in trace)
    powers = np.zeros((len(traces), letters), int)
    for i, trace in enumerate(traces):
        np.add.at(powers[i], np.abs(np.asarray(trace, int)), 1)
    most = 1 + max(max(counts) for _, counts, _ in both)
    groups, occurrences, noisy, steps = [], [], [], []
    # Few groups make few steps of a program, which compiles faster.
    widths = {len(term): 2 ** math.ceil(math.log2(len(term))) for term, _, _ in both}
    for width in sorted(set(widths.values())):
        chosen = [each for each in both if widths[len(each[0])] == width]
        places = np.full((len(chosen), width), len(traces))
        for row, (term, _, _) in zip(places, chosen):
            row[: len(term)] = [place[trace] for trace in term]
        groups.append(places)
        occurrences.append(np.array([[n.get(k, 0) for k in range(most)] for _, n, _ in chosen]))
        noisy.append(np.array([bool(part) for _, _, part in chosen]))
        letters_of = np.vstack([powers, np.zeros_like(powers[:1])])[places]
        steps.append(letters_of[:, :, 1 : depth + 1].sum((1, 2)))
    return _Plan(traces, powers, *map(tuple, (groups, occurrences, noisy, steps)))


def _columns_product(values: Float[Array, "terms width"]) -> Float[Array, " terms"]:
    """The product of each row, whose length is a power of two."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] * values[:, half:]
    return values[:, 0]


def _counted(terms: Terms) -> list[tuple[tuple[Letters, ...], dict[int, int]]]:
    """The terms that do not cancel."""
    return [(term, counts) for term, counts in terms.items() if any(counts.values())]


def stack_risk(task: LinearRegression, model: AbstractLinearStack) -> StackRisk:
    """The exact risk of stacks of the same shape as `model`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3], 31)
    >>> icl.risks.stack_risk(task, icl.FullStack.init(jr.key(0), 2, 2)).by_partitions
    False
    ```
    """
    require_float64("The exact risk", task=task, model=model)
    facts = stack_facts(task, model)
    if facts is None or facts.method not in ("partitions", "words"):
        raise ValueError(f"No exact risk exists for {facts and facts.words}.")
    covariance, second = np.asarray(task.covariance), np.asarray(task.weight_second_moment)
    ordered = facts.method == "words"
    values, basis = np.linalg.eigh(covariance)
    if facts.weights == "diagonal":  # its axes are those of the weights
        values, basis = np.diag(covariance), np.eye(task.dim)
    root = (basis * np.sqrt(values)) @ basis.T if ordered else np.sqrt(values)
    if ordered:
        moment = root @ second @ root
    else:
        # Inputs may change the sign of each component: only the diagonal of M remains.
        moment = values * np.diag(basis.T @ second @ basis)
    return StackRisk(
        jnp.asarray(root),
        jnp.asarray(moment),
        _term_counts(_plan(model.depth, model.moving, ordered), task, model.normaliser),
        as_float(task.query_noise),
        model.depth,
        model.moving,
        model.shape,
        model.normaliser,
    )


def _term_counts(
    plan: _Plan, task: LinearRegression, normaliser: Normaliser
) -> tuple[Float[Array, " _"], ...]:
    """How often each term counts: averaged over context lengths, and times σ²/N for noise."""
    found = [np.zeros(len(group)) for group in plan.groups]
    for length, share, gain in zip(*Lengths.of(task, normaliser)):
        for i, (times, noisy, steps) in enumerate(zip(plan.occurrences, plan.noisy, plan.steps)):
            mean = times @ (1.0 / length) ** np.arange(times.shape[1]) * gain**steps
            found[i] += share * mean * np.where(noisy, float(task.noise) / length, 1.0)
    return tuple(map(jnp.asarray, found))

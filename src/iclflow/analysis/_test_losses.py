"""The losses of linear attention on test distributions, over a run, in closed form.

Reduced linear attention ŷ = βᵀAx_q has on the sequences of one task vector w the risk
wᵀR(A)w + r(A). So one matrix and one number for each A give the loss on every distribution of
tasks: those of the training (IDG), unseen ones (ICL), or others.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..models import Normaliser
from ..risks import context_moments, risk
from ..tasks import AbstractTask, FiniteTasks, LinearRegression, same_moments
from ..trajectory import Trajectory


class TaskOperator(NamedTuple):
    """The risk of reduced linear attention as a function of the task: wᵀRw + r.

    **Fields:**

    - `matrix`: R, for every A.
    - `constant`: r, for every A.
    """

    matrix: Float[np.ndarray, "*points D D"]
    constant: Float[np.ndarray, "*points"]

    def risk(self, second_moment: ArrayLike) -> Float[np.ndarray, "*points"]:
        """tr(M R) + r, on tasks with E wwᵀ = M."""
        signal = np.sum(self.matrix * np.asarray(second_moment), axis=(-2, -1))
        return np.asarray(signal + self.constant)

    def each(self, vectors: ArrayLike) -> Float[np.ndarray, "*points K"]:
        """The risk on each of several task vectors."""
        w = np.asarray(vectors)
        # A matrix for every moment, and tasks in rows.
        return np.einsum("...kd,kd->...k", w @ self.matrix, w) + self.constant[..., None]


def task_operator(
    coefficients: ArrayLike,
    law: LinearRegression,
    normaliser: Normaliser = "context",
) -> TaskOperator:
    """The risk of ŷ = βᵀAx_q on every single task, without samples.

    Of a context of ℓ pairs that is divided by c, with ḡ = E[ℓ/c], c̄₂ = E[ℓ(ℓ + 1)/c²] and
    c̄₁ = E[ℓ/c²],
    R = Λ − ḡ(ΛAΛ + ΛAᵀΛ) + c̄₂ ΛAΛAᵀΛ + c̄₁ tr(ΛAᵀΛA) Λ and r = σ² + c̄₁σ² tr(ΛAᵀΛA);
    derived in docs/theory/linear.md, Eq. (1), where it is averaged over tasks.

    **Example:**

    ```pycon
    >>> law = icl.isotropic(2, context=10, noise=0.1)
    >>> operator = icl.analysis.task_operator(0.5 * np.eye(2), law)
    >>> operator.each(np.eye(2))
    array([0.43, 0.43])
    ```

    **Arguments:**

    - `coefficients`: A, or one for every moment.
    - `law`: has the law of inputs, noise and lengths; its prior is not used.
    """
    A = np.asarray(coefficients, np.float64)
    inputs, noise = np.asarray(law.covariance), float(law.noise)
    gain, coherent, incoherent = (float(each) for each in context_moments(law, normaliser))
    left = inputs @ A
    step = left @ inputs
    power = incoherent * np.sum(step * A, axis=(-2, -1))
    matrix = inputs - gain * (step + _transpose(step)) + coherent * step @ _transpose(left)
    matrix = matrix + power[..., None, None] * inputs
    return TaskOperator(matrix, np.asarray(float(law.query_noise) + noise * power))


class BestMoment(NamedTuple):
    """When a loss is smallest, and how small.

    **Example:**

    ```pycon
    >>> icl.analysis.BestMoment(time=3.0, loss=0.25).loss
    0.25
    ```
    """

    time: float
    loss: float


@dataclasses.dataclass(frozen=True)
class TestLosses:
    """The losses of a run on its training and on test distributions, at every saved point.

    **Fields:**

    - `times`: as those of the run.
    - `train`: what the run reports: on its data, or on its population.
    - `idg`: on fresh sequences of the training tasks (in-distribution).
    - `icl`: on fresh sequences of unseen tasks (out of distribution).
    - `other`: on another distribution; None if none was asked for.
    """

    # The name tells pytest to collect it.
    __test__ = False

    times: Float[np.ndarray, " T"]
    train: Float[np.ndarray, " T"]
    idg: Float[np.ndarray, " T"]
    icl: Float[np.ndarray, " T"]
    other: Float[np.ndarray, " T"] | None = None

    @property
    def g_task(self) -> Float[np.ndarray, " T"]:
        """What unseen tasks cost more than those of the training: ICL − IDG."""
        return self.icl - self.idg

    @property
    def best(self) -> BestMoment:
        """The best moment to stop for unseen tasks: the vertex of a parabola through the three
        saved points around the smallest loss."""
        return _smallest(self.times, self.icl)

    @property
    def overshoot(self) -> float:
        """How far the loss on unseen tasks ends above its smallest value; 0 if it ends there."""
        return max(float(self.icl[-1]) - self.best.loss, 0.0)


def test_losses(
    run: Trajectory,
    task: AbstractTask,
    other: AbstractTask | None = None,
    ridge: float = 0.0,
) -> TestLosses:
    """The exact losses of a run of linear attention on its training tasks and on unseen ones.

    It samples nothing, and works for runs on a population, on a data set and on fresh sequences
    alike. For reduced linear attention all distributions that share the law of inputs take one pass
    over the run.

    **Example:**

    ```pycon
    >>> task = icl.FiniteTasks([[1, 0, 0], [0, 1, 0]], icl.isotropic(3, context=20))
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=3)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> losses = icl.analysis.test_losses(run, task)
    >>> print(f"{losses.idg[-1]:.3f} on the two tasks, {losses.icl[-1]:.3f} on unseen ones")
    0.238 on the two tasks, 0.553 on unseen ones
    ```

    **Arguments:**

    - `task`: that of the training. For finitely many tasks the unseen ones are those of
      `task.fresh`; for any other task those of the training are unseen already.
    - `other`: a further test distribution, such as one with another covariance of inputs or tasks.
    - `ridge`: the η of the penalty η‖A‖² in what the run reports: `train` is without it.
    """
    if run.models.form == "general":
        raise Refusal(
            "The models of this run are not linear in known features: their losses on test "
            "distributions have no closed form. Use `icl.risk(test, model)` on fresh sequences."
        )
    measure = _Measure(run)
    unseen = task.fresh if isinstance(task, FiniteTasks) else task
    idg = measure(task)
    icl = idg if unseen is task else measure(unseen)
    return TestLosses(
        np.asarray(run.times),
        np.asarray(run.losses) - (ridge * measure.squared_norms() if ridge else 0.0),
        idg,
        icl,
        None if other is None else measure(other),
    )


# The name tells pytest to collect it, wherever it is imported.
test_losses.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]


class _Measure:
    """The exact losses of one run on several distributions."""

    def __init__(self, run: Trajectory):
        self.run = run
        self.normaliser: Normaliser = run.models.divides_by
        self.coefficients = run.coefficients() if run.models.form == "bilinear" else None
        self.law: LinearRegression | None = None
        self.operator: TaskOperator | None = None

    def squared_norms(self) -> Float[np.ndarray, " T"]:
        """‖A‖² of reduced linear attention, the only one with such a penalty."""
        if self.coefficients is None:
            raise Refusal("`ridge` is of reduced linear attention: the run has another form.")
        return np.sum(self.coefficients**2, axis=(-2, -1))

    def __call__(self, task: AbstractTask) -> Float[np.ndarray, " T"]:
        matched = same_moments(task)
        if self.coefficients is None or not isinstance(matched, LinearRegression):
            return np.asarray(self.run.map(risk(task, self.run.at(-1), "exact")))
        law = task.fresh if isinstance(task, FiniteTasks) else matched
        if self.operator is None or law is not self.law:
            self.operator = task_operator(self.coefficients, law, self.normaliser)
            self.law = law
        return self.operator.risk(np.asarray(matched.weight_second_moment))


def _smallest(times: np.ndarray, losses: np.ndarray) -> BestMoment:
    least = int(np.argmin(losses))
    ends = BestMoment(float(times[least]), float(losses[least]))
    if least in (0, len(losses) - 1):
        return ends
    t, y = times[least - 1 : least + 2] - times[least], losses[least - 1 : least + 2]
    curve, slope, _ = np.polyfit(t, y, 2)
    if curve <= 0:
        return ends
    vertex = -slope / (2 * curve)
    return BestMoment(ends.time + float(vertex), ends.loss - float(slope**2 / (4 * curve)))


def _transpose(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)

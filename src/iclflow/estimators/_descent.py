"""Several steps of gradient descent from zero on the squares of the context, in its variants.

They are stacks of linear attention with given weights: predictions and exact risks are theirs
(arXiv 2306.00297; docs/theory/depth.md).
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from ..errors import InputError
from ..models import AbstractLinearStack, FullStack, MovingScalarStack, Normaliser, ScalarStack
from ..risks import available_kinds, risk
from ..runtime.precision import as_float
from ..tasks import AbstractTask, Sequences, check_count
from ._base import AbstractEstimator, masked_context


class AbstractDescent(AbstractEstimator):
    """L steps of gradient descent, as a stack of linear attention that makes them.

    **Example:**

    ```pycon
    >>> steps = icl.estimators.GradientSteps([0.5, 1.2])
    >>> isinstance(steps, icl.estimators.AbstractDescent), steps.stack(dim=5).depth
    (True, 2)
    ```
    """

    steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def stack(self, dim: int) -> AbstractLinearStack:
        """The stack with the same predictions on inputs of dimension `dim`."""

    @property
    @abc.abstractmethod
    def numbers(self) -> dict[str, tuple[float, ...]]:
        """What can be fitted, under the name of each: step sizes `"η"` and the like."""

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return _predict(self.stack(sequences.dim), sequences)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        """That of the stack: white inputs at any L; others while L is small."""
        stack = self.stack(task.dim)
        if "exact" not in available_kinds(task, stack):
            return None
        return risk(task, stack, "exact")(stack)


class GradientSteps(AbstractDescent):
    """w ← w + η_l (1/N) Σ (yₙ − w·xₙ) xₙ, L times from w = 0.

    **Fields:**

    - `step_sizes`: the η_l, or one that all steps share.
    - `steps`: L.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> same, own = icl.estimators.GradientSteps(0.74, 2), icl.estimators.GradientSteps([0.5, 1.2])
    >>> print(same.name, same.exact_risk(task).round(4), sep=": ")
    2 steps of gradient descent: 0.0998
    >>> print(own.name, own.exact_risk(task).round(4), sep=": ")
    2 steps of gradient descent, own step sizes: 0.073
    ```
    """

    step_sizes: Float[Array, " S"]
    steps: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True)

    def __init__(
        self,
        step_sizes: ScalarLike | list[float] | Float[Array, " S"] | Float[np.ndarray, " S"],
        steps: int | None = None,
        normaliser: Normaliser = "context",
    ):
        """**Arguments:**

        - `steps`: L, where one step size is used again and again.
        """
        self.step_sizes, self.steps = _check_steps(step_sizes, steps)
        self.normaliser = normaliser

    @property
    def name(self) -> str:
        return f"{_count(self.steps)} of gradient descent{_own(self.step_sizes)}"

    @property
    def numbers(self) -> dict[str, tuple[float, ...]]:
        return {"η": tuple(np.asarray(self.step_sizes).tolist())}

    def stack(self, dim: int) -> ScalarStack:
        return ScalarStack(self.step_sizes, dim, self.steps, self.normaliser)


class MomentumSteps(AbstractDescent):
    """w_{l+1} = w_l + η (1/N) Σ (yₙ − w_l·xₙ) xₙ + m (w_l − w_{l−1}): the heavy ball.

    After L steps it has left p_L(S) of the task, p_{l+1} = (1 + m − ηs) p_l − m p_{l−1}. For m ≥ 0
    the zeros of p_L are real: they are the eigenvalues of BBᵀ/η, B with ones on the diagonal and √m
    below. So L steps with momentum are L plain steps whose sizes are one over these; and two plain
    steps of any positive sizes are two steps with momentum.

    **Example:**

    ```pycon
    >>> heavy = icl.estimators.MomentumSteps(step_size=0.6, momentum=0.2, steps=2)
    >>> heavy.stack(dim=5).gamma.round(3).tolist()  # 1 − s γ₁ and 1 − s γ₂ are its factors
    [0.935, 0.385]
    ```
    """

    step_size: Float[Array, ""]
    momentum: Float[Array, ""]
    steps: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True)

    def __init__(
        self,
        step_size: ScalarLike,
        momentum: ScalarLike,
        steps: int,
        normaliser: Normaliser = "context",
    ):
        self.step_size, self.momentum = as_float(step_size), as_float(momentum)
        if not (self.momentum >= 0 and jnp.isfinite(self.momentum)):
            raise InputError("momentum", momentum, "must be a number that is not negative")
        self.steps, self.normaliser = check_count("steps", steps), normaliser

    @property
    def name(self) -> str:
        return f"{_count(self.steps)} of gradient descent with momentum"

    @property
    def numbers(self) -> dict[str, tuple[float, ...]]:
        return {"η": (float(self.step_size),), "m": (float(self.momentum),)}

    def stack(self, dim: int) -> ScalarStack:
        below = jnp.sqrt(self.momentum) * jnp.eye(self.steps, k=-1)
        factor = jnp.eye(self.steps) + below
        gamma = self.step_size / jnp.linalg.eigvalsh(factor @ factor.T)
        return ScalarStack(gamma, dim, self.steps, self.normaliser)


class PreconditionedSteps(AbstractDescent):
    """w ← w + η_l A (1/N) Σ (yₙ − w·xₙ) xₙ, L times from w = 0.

    **Fields:**

    - `matrix`: A, such as the inverse of the input covariance.
    - `step_sizes`: the η_l, or one that all steps share.
    - `steps`: L.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3, 0.2, 0.1], 31)
    >>> inverse = jnp.diag(1 / jnp.array([0.4, 0.3, 0.2, 0.1]))
    >>> newton = icl.estimators.PreconditionedSteps(inverse, [0.6, 1.4])
    >>> bool(newton.exact_risk(task) < icl.estimators.GradientSteps([2.0, 5.0]).exact_risk(task))
    True
    ```
    """

    matrix: Float[Array, "D D"]
    step_sizes: Float[Array, " S"]
    steps: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True)

    def __init__(
        self,
        matrix: Float[Array, "D D"],
        step_sizes: ScalarLike | list[float] | Float[Array, " S"] | Float[np.ndarray, " S"] = 1.0,
        steps: int | None = None,
        normaliser: Normaliser = "context",
    ):
        """**Arguments:**

        - `steps`: L, where one step size is used again and again.
        """
        self.matrix = as_float(matrix)
        self.step_sizes, self.steps = _check_steps(step_sizes, steps)
        self.normaliser = normaliser

    @property
    def name(self) -> str:
        return f"{_count(self.steps)} of preconditioned gradient descent{_own(self.step_sizes)}"

    @property
    def numbers(self) -> dict[str, tuple[float, ...]]:
        return {"η": tuple(np.asarray(self.step_sizes).tolist())}

    def stack(self, dim: int) -> FullStack:
        if len(self.matrix) != dim:
            raise InputError("matrix", self.matrix.shape, f"must have {dim} rows, one per input")
        return FullStack(self.step_sizes[:, None, None] * self.matrix, self.steps, self.normaliser)


class MovingSteps(AbstractDescent):
    """GD++: steps of gradient descent that move the inputs too, x ← x − b_l η_l S x.

    **Fields:**

    - `step_sizes`, `moves`: the η_l and b_l, or one of each for all steps. The last b_l of several
      moves nothing that is read.
    - `steps`: L.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> steps = icl.estimators.MovingSteps([0.517, 3.475], [0.868, 0.0])
    >>> print(steps.name, steps.exact_risk(task).round(4), sep=": ")
    2 steps of GD++: 0.0575
    ```
    """

    step_sizes: Float[Array, " S"]
    moves: Float[Array, " S"]
    steps: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True)

    def __init__(
        self,
        step_sizes: ScalarLike | list[float] | Float[Array, " S"] | Float[np.ndarray, " S"],
        moves: ScalarLike | list[float] | Float[Array, " S"] | Float[np.ndarray, " S"],
        steps: int | None = None,
        normaliser: Normaliser = "context",
    ):
        """**Arguments:**

        - `steps`: L, where one step is used again and again.
        """
        self.step_sizes, self.steps = _check_steps(step_sizes, steps)
        self.moves = jnp.atleast_1d(as_float(moves))
        if self.moves.shape != self.step_sizes.shape:
            raise InputError("moves", moves, "must be as many numbers as there are step sizes")
        self.normaliser = normaliser

    @property
    def name(self) -> str:
        return f"{_count(self.steps)} of GD++"

    @property
    def numbers(self) -> dict[str, tuple[float, ...]]:
        moves = np.asarray(self.moves)
        read = moves if len(moves) < self.steps else moves[:-1]
        return {"η": tuple(np.asarray(self.step_sizes).tolist()), "b": tuple(read.tolist())}

    def stack(self, dim: int) -> MovingScalarStack:
        return MovingScalarStack(self.step_sizes, self.moves, dim, self.steps, self.normaliser)


@eqx.filter_jit
def _predict(stack: AbstractLinearStack, sequences: Sequences) -> Array:
    """The predictions of each label: a stack has one."""
    x, y = masked_context(sequences)
    seen = Sequences(x, y, sequences.x_query, sequences.y_query, sequences.length)
    each = [stack.predict(seen.label(i)) for i in range(y.shape[-1])]
    return jnp.concatenate(each, -1)


def _check_steps(step_sizes, steps: int | None) -> tuple[Float[Array, " S"], int]:
    sizes = jnp.atleast_1d(as_float(step_sizes))
    if sizes.ndim != 1 or not sizes.size:
        raise InputError("step_sizes", step_sizes, "must be a number, or one for each step")
    count = sizes.size if steps is None else check_count("steps", steps)
    if sizes.size not in (1, count):
        raise InputError("steps", steps, f"must be {sizes.size}, one for each of the step sizes")
    return sizes, count


def _count(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}"


def _own(step_sizes: Float[Array, " S"]) -> str:
    return ", own step sizes" if step_sizes.size > 1 else ""

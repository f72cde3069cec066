"""The risk of stacks of linear attention on fresh contexts, with all labels averaged over."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractLinearStack, AbstractModel, FullStack, attention_length
from ..tasks import AbstractTask, LinearRegression
from ._batch import AbstractBatchRisk, AbstractSampledRisk, as_dtype
from ._draws import Inputs, Precision, check_draws, draw_dtype
from ._stack_task import require_stack


def grams_are_enough(task: AbstractTask, model: AbstractModel) -> bool:
    """Whether `GramRisk` exists for this task and this model."""
    stack = isinstance(model, AbstractLinearStack) and not model.self_attention
    return stack and isinstance(task, LinearRegression)


class GramBatchRisk(AbstractBatchRisk):
    """σ_q² + tr ΛΠMΠᵀ + (σ²/N) tr ΛVSVᵀ for each of some S (docs/theory/depth.md), of stacks and of
    reduced linear attention, which is one step.

    **Fields:**

    - `grams`: S = (1/N) Σ xₙxₙᵀ.
    - `length`: N.
    """

    covariance: Float[Array, "D D"]
    moment: Float[Array, "D D"]
    noise: Float[Array, ""]
    query_noise: Float[Array, ""]
    grams: Float[Array, "P D D"]
    length: Float[Array, " P"]

    def part(self, start: Array, count: int) -> "GramBatchRisk":
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, count)
        where = lambda risk: (risk.grams, risk.length)
        return eqx.tree_at(where, self, tuple(map(cut, where(self))))

    def evaluate(self, model: AbstractModel) -> Float[Array, " P"]:
        if model.form == "bilinear":  # ŷ = βᵀ A x_q is one step
            step = jnp.swapaxes(model.coefficients(), 0, 1)[None]
            model = FullStack(step, depth=1, normaliser=model.divides_by)
        stack = require_stack(model, model.divides_by, self.grams.shape[-1])
        stack = as_dtype(stack, self.grams.dtype)
        # What the model divides its sums by, instead of N, multiplies S and b.
        gain = self.length / attention_length(self.length, stack.normaliser)
        grams = gain[:, None, None] * self.grams
        solution = _solutions(stack, grams)
        left = jnp.eye(stack.dim, dtype=grams.dtype) - solution @ grams
        noise = self.noise * gain / self.length * _spread(self.covariance, solution, grams)
        return _spread(self.covariance, left, self.moment) + noise + self.query_noise


class GramRisk(AbstractSampledRisk):
    """The mean over `batch` fresh contexts of the loss averaged over task vectors, label noise and
    queries: only S is drawn.

    It has the same expectation and the same expected gradient as `SampledRisk`, and less noise:
    hardly any near zero weights. It exists for stacks of linear attention whose query is no key.
    `precision`: as in `SampledRisk`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3], 31)
    >>> model = icl.FullStack.init(jr.key(0), dim=2, depth=3)
    >>> risk = icl.risk(task, model)
    >>> isinstance(risk, icl.risks.GramRisk), risk.batch
    (True, 256)
    ```
    """

    task: LinearRegression
    inputs: Inputs
    batch: int = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)

    def __init__(self, task: LinearRegression, batch: int = 256, precision: Precision = "float64"):
        self.batch = check_draws(task, batch, precision)
        self.task = task
        self.inputs = Inputs.of(task)
        self.precision = precision

    def draw(self, key: PRNGKeyArray, count: int) -> GramBatchRisk:
        dtype = draw_dtype(self.precision)
        lanes, _ = self.inputs.draw(key, count, dtype)
        sums = jnp.einsum("ndp,nep->pde", lanes.tokens, lanes.tokens, precision="highest")
        task = self.task
        parts = task.covariance, task.weight_second_moment, task.noise, task.query_noise
        fixed = [jnp.asarray(part, dtype) for part in parts]
        grams = sums / lanes.length[:, None, None]
        return GramBatchRisk(*fixed, grams=grams, length=lanes.length)


def _solutions(stack: AbstractLinearStack, grams: Float[Array, "P D D"]) -> Float[Array, "P D D"]:
    """V of w_L = V b."""
    unit = jnp.eye(stack.dim, dtype=grams.dtype)
    solution, turn = jnp.zeros_like(grams), jnp.broadcast_to(unit, grams.shape)
    moves = stack.moves() if stack.moving else None
    for layer, step in enumerate(stack.steps()):
        turned = step if moves is None else jnp.swapaxes(turn, -1, -2) @ step @ turn
        solution = solution + turned @ (unit - grams @ solution)
        if moves is not None:
            inner = turn @ grams @ jnp.swapaxes(turn, -1, -2)
            turn = turn - moves[layer] @ inner @ step.T @ turn
    return solution


def _spread(outer: Array, factor: Array, inner: Array) -> Float[Array, " P"]:
    """tr outer·factor·inner·factorᵀ for each factor."""
    return jnp.einsum("ab,...bc,...cd,...ad->...", outer, factor, inner, factor)

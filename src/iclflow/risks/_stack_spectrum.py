"""The exact risk of stacks that take one number per layer, on white inputs, at any depth."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractLinearStack, AbstractModel, Normaliser
from ..runtime.precision import as_float, require_float64
from ..tasks import LinearRegression
from ._base import AbstractRisk
from ._stack_floor import smallest_of_loop, smallest_of_one, smallest_of_steps
from ._stack_task import Lengths, require_stack, stack_facts
from ._wishart_rule import wishart_rule


class WhiteStackRisk(AbstractRisk):
    """L = σ_q² + λ tr(M) E[p(s)² + c (1 − p(s))²/s] over the eigenvalues s of S, for x ~ N(0, λI).

    p(s) = Π_l (1 − γ_l s) is the polynomial that a stack applies, V its quotient (1 − p)/s, and
    c = Dσ²/(N tr M) (docs/theory/depth.md; arXiv 2510.01098, Result 1, is its limit of large D and
    N). Only finitely many moments of S matter, which are rational numbers: a Gauss rule has them
    exactly, so that the error is rounding, about 1e-14 of the loss of predicting zero. For GD++
    p = Π (1 − γ_l s t_l²) with t_{l+1} = t_l (1 − γ_l b_l s t_l²).

    The risk of M and of any M with the same trace is the same. A flow of γ_l has
    dγ_l/dt = −½ ∂L/∂γ_l; one of matrices Γ_l = γ_l I is slower by a factor D.

    **Fields:**

    - `nodes`: λ s g of every context length, g being what its normaliser makes of 1.
    - `signal`, `noise`: the weights of p² and of V² at the nodes.
    - `degree`: of the polynomials p that the rule is exact for.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> model = icl.ScalarStack(jnp.array([0.5, 1.2]), dim=5, depth=2)
    >>> isinstance(icl.risk(task, model), icl.risks.WhiteStackRisk)
    True
    >>> icl.risk(task, model)(model).round(12), icl.risk(task, model).floor(model).round(6)
    (Array(0.073, dtype=float64), Array(0.072248, dtype=float64))
    ```
    """

    kind: ClassVar[str] = "exact"

    nodes: Float[Array, " K"]
    signal: Float[Array, " K"]
    noise: Float[Array, " K"]
    query_noise: Float[Array, ""]
    dim: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        left, quotient = self._polynomials(self._checked(model))
        return self.query_noise + self.signal @ left**2 + self.noise @ quotient**2

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        return self.query_noise + jnp.sum(self.signal)

    def floor(self, model: AbstractModel) -> Float[Array, ""] | None:
        """Known of one layer, and without noise, except for GD++; otherwise NaN: real steps may not
        reach the best polynomial, and a loop may rest above its smallest risk."""
        stack = self._checked(model)
        if stack.moving:
            return None
        if stack.depth == 1:
            return self.query_noise + smallest_of_one(self.nodes, self.signal, self.noise)
        smallest = smallest_of_loop if stack.tied else smallest_of_steps
        found = smallest(self.nodes, self.signal, stack.depth)
        return self.query_noise + jnp.where(jnp.any(self.noise > 0), jnp.nan, found)

    def _checked(self, model: AbstractModel) -> AbstractLinearStack:
        stack = require_stack(model, self.normaliser, self.dim)
        if stack.shape != "scalar":
            raise TypeError("This risk is of stacks with one number per layer.")
        degree = (3**stack.depth - 1) // 2 if stack.moving else stack.depth
        if degree > self.degree:
            raise ValueError(
                f"This risk is exact for polynomials of degree {self.degree}, and this stack has "
                f"{degree}: make a risk for it."
            )
        return stack

    def _polynomials(
        self, stack: AbstractLinearStack
    ) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """p and V at the nodes."""
        left, turn = jnp.ones_like(self.nodes), jnp.ones_like(self.nodes)
        quotient, moves = jnp.zeros_like(self.nodes), stack.move_weights()
        for layer, gamma in enumerate(stack.step_weights()):
            step = gamma * turn**2
            # Together, and not as (1 − p)/s, which loses digits at small s.
            quotient = quotient + step * left
            left = left * (1 - self.nodes * step)
            if moves is not None:
                turn = turn * (1 - moves[layer] * self.nodes * step)
        return left, quotient


def white_stack_risk(task: LinearRegression, model: AbstractLinearStack) -> WhiteStackRisk:
    """The exact risk of stacks like `model`, up to its depth, on white inputs.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> model = icl.ScalarStack(jnp.array([0.5, 1.2]), dim=5, depth=2)
    >>> icl.risks.white_stack_risk(task, model).degree
    2
    ```
    """
    require_float64("The exact risk", task=task, model=model)
    facts = stack_facts(task, model)
    if facts is None or facts.method != "spectrum":
        raise ValueError("This risk needs white inputs, and a stack with one number per layer.")
    dim, lengths = task.dim, Lengths.of(task, model.normaliser)
    scale = float(np.mean(np.diag(np.asarray(task.covariance))))
    trace, noise = float(np.trace(np.asarray(task.weight_second_moment))), float(task.noise)
    parts = []
    for count, share, gain in zip(*lengths):
        nodes, weights = wishart_rule(dim, count, facts.degree + 1)
        nodes = gain * scale * nodes
        # Var b = σ² S/N: the noise of the steps, which grows with s.
        parts.append(
            (nodes, share * weights * scale * trace,
             share * weights * dim * scale * noise * gain / count * nodes)
        )  # fmt: skip
    stored = [jnp.asarray(np.concatenate(part)) for part in zip(*parts)]
    return WhiteStackRisk(
        *stored,
        query_noise=as_float(task.query_noise),
        dim=dim,
        degree=facts.degree,
        normaliser=model.normaliser,
    )

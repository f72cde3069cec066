"""One chunk of an adaptive ODE solve: a fixed number of tries, every one of them recorded.

The loop around a solver that `diffrax.diffeqsolve` hides is spelled out here, because a run must
be able to stop, report, save and go on between chunks without the end time being known, and to
carry its exact state from one chunk to the next.
"""

from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..models import AbstractModel
from ..risks import AbstractRisk
from ._layout import Layout

# Solvers give up when a step no longer changes the clock.
_SMALLEST_STEP = 1e-14
# Few weights are fastest as one vector; many (measured at 520 000) as the arrays they came in,
# since joining and splitting a vector then costs more than the arithmetic.
_LARGEST_VECTOR = 2**16


class State(NamedTuple):
    """Everything that the next step depends on. The weights are one vector, or the arrays of the
    model where there are many."""

    time: Float[Array, ""]
    step: Float[Array, ""]
    weights: PyTree[Array]
    solver: Any
    controller: Any
    resting: Bool[Array, ""]


class Record(NamedTuple):
    """What one try left behind."""

    time: Float[Array, ""]
    loss: Float[Array, ""]
    weights: Float[Array, " n"]
    accepted: Bool[Array, ""]


class Stepper(eqx.Module):
    """An adaptive solver on the flow τ dW/dt = −½ ∂L/∂W of the flattened weights. With `rest`,
    weights at which ‖∂L/∂W‖ is no larger stay where they are."""

    solver: diffrax.AbstractSolver
    controller: diffrax.PIDController
    layout: Layout
    rest: Float[Array, ""] | None = None

    def _terms(self, risk: AbstractRisk) -> diffrax.ODETerm:
        def velocity(time, weights, args):
            gradient = risk.gradient(self._model(weights))
            return jax.tree.map(lambda slope: -0.5 * slope, self._weights(gradient))

        return diffrax.ODETerm(velocity)

    def _weights(self, model: AbstractModel) -> PyTree[Array]:
        """The weights of `model` as the solver sees them."""
        if self.layout.size <= _LARGEST_VECTOR:
            return self.layout.vector(model)
        return eqx.filter(model, eqx.is_inexact_array)

    def _model(self, weights: PyTree[Array]) -> AbstractModel:
        if self.layout.size <= _LARGEST_VECTOR:
            return self.layout.model(weights)
        return eqx.combine(weights, self.layout.rest)

    def start(
        self,
        risk: AbstractRisk,
        time: Array,
        vector: Float[Array, " n"],
        step: Array | None = None,
    ) -> State:
        """The state before the first step, whose size is by the usual heuristic unless given."""
        terms = self._terms(risk)
        weights = self._weights(self.layout.model(vector))
        order = self.solver.error_order(terms)
        end, controller = self.controller.init(
            terms, time, time + 1e12, weights, step, None, self.solver.func, order
        )
        solver = self.solver.init(terms, time, end, weights, None)
        state = State(
            time, jnp.asarray(end - time), weights, solver, controller, jnp.zeros((), bool)
        )
        # Weakly typed scalars would make the second chunk compile again.
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), state)

    def chunk(
        self, risk: AbstractRisk, state: State, stops: Array, tries: int
    ) -> tuple[State, Record]:
        """`tries` attempted steps; one that would pass a stop ends on it. The last is the end."""
        terms = self._terms(risk)
        order = cast(int, self.solver.error_order(terms))

        def next_stop(state: State) -> Float[Array, ""]:
            after = jnp.searchsorted(stops, state.time, side="right")
            return stops[jnp.minimum(after, len(stops) - 1)]

        def attempt(state: State):
            stop = next_stop(state)
            active = (state.time < stop) & ~state.resting
            clipped = state.time + state.step >= stop
            # The stop itself, not time + step: the clock must read the stop to the last bit.
            end = jnp.where(clipped & active, stop, state.time + state.step)
            weights, error, _, solver, _ = self.solver.step(
                terms, state.time, end, state.weights, None, state.solver, False
            )
            error = jax.tree.map(lambda e: jnp.where(jnp.isnan(e), jnp.inf, e), error)
            accepted, _, after, _, controller, _ = self.controller.adapt_step_size(
                state.time, end, state.weights, weights, None, error,
                order, state.controller,
            )  # fmt: skip
            accepted = jnp.asarray(accepted) & active
            reached = jnp.where(accepted, end, state.time)
            # A step cut short by a stop says nothing against the step size that was planned.
            step = after - reached
            step = jnp.where(accepted & clipped, jnp.maximum(step, state.step), step)
            choose = lambda new, old: jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
            moved = State(
                reached,
                jnp.where(active, step, state.step),
                choose(weights, state.weights),
                choose(solver, state.solver),
                jax.tree.map(lambda a, b: jnp.where(active, a, b), controller, state.controller),
                state.resting,
            )
            model = self._model(moved.weights)
            if self.rest is None:
                loss = risk(model)
            else:
                loss, gradient = risk.value_and_gradient(model)
                slope = jnp.linalg.norm(self.layout.vector(gradient))
                moved = moved._replace(resting=slope <= self.rest)
            return moved, Record(moved.time, loss, self.layout.vector(model), accepted)

        def idle(state: State):
            weights = self.layout.vector(self._model(state.weights))
            return state, Record(state.time, jnp.zeros(()), weights, jnp.zeros((), bool))

        # What is over need not be computed; it matters where a single try takes a while.
        over = lambda state: (state.time >= next_stop(state)) | state.resting
        step = lambda state, _: jax.lax.cond(over(state), idle, attempt, state)
        return jax.lax.scan(step, state, length=tries)


def stuck(state: State) -> Bool[Array, "*members"]:
    """Whether the step has become too small to move the clock."""
    return state.step < _SMALLEST_STEP * jnp.maximum(state.time, 1e-300)

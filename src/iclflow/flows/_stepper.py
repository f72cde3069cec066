"""One chunk of an adaptive ODE solve: a fixed number of tries, every one of them recorded.

`diffrax.diffeqsolve` hides the loop around a solver, and needs to know its end. Here the loop is
explicit: between chunks a run can report, be saved, stop and resume with its exact state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, ScalarLike

from ..models import AbstractModel
from ..risks import TABLE_FULL, AbstractRisk
from ._layout import Layout
from ._save import Thinned, Thinning

# A run is stuck when a step, as a share of the time, comes near the rounding of the clock.
_SMALLEST_STEP = 1e-14
# The interval in which the controller chooses the first step: it would cut a step that passes the
# end, so this lies far beyond any first step.
_NO_END = 1e12
# At time 0 any step moves the clock: the share is taken of this instead.
_EARLIEST = 1e-300
# Few weights are fastest as one vector. Many weights (measured at 520 000) are fastest as the
# arrays of the model: joining and splitting a vector costs more than the arithmetic.
_LARGEST_VECTOR = 2**16


class State(NamedTuple):
    """Everything that the next step depends on.

    **Fields:**

    - `weights`: one vector, or the arrays of the model if there are many.
    - `resting`: whether the gradient is below the tolerance.
    - `stop`: the index of the next stop.
    - `tried`: the number of attempted steps.
    """

    time: Float[Array, ""]
    step: Float[Array, ""]
    weights: PyTree[Array]
    solver: Any
    controller: Any
    resting: Bool[Array, ""]
    stop: Int[Array, ""]
    loss: Float[Array, ""]
    thinned: Thinned | None
    tried: Int[Array, ""]


class Record(NamedTuple):
    """The point after one try.

    **Fields:**

    - `tried`: False for a run that has ended.
    - `accepted`: whether the step was accepted.
    - `kept`: whether the point is saved.
    """

    time: Float[Array, ""]
    loss: Float[Array, ""]
    weights: Float[Array, " n"]
    tried: Bool[Array, ""]
    accepted: Bool[Array, ""]
    kept: Bool[Array, ""]


class Stepper(eqx.Module):
    """An adaptive solver on the flow τ dW/dt = −½ ∂L/∂W of the flattened weights.

    **Fields:**

    - `most`: the largest number of tries; a run stops there.
    - `thinning`: which points are kept; by default those on stops.
    - `rest`: a run also stops where ‖∂L/∂W‖ is no larger.
    - `fence`: True keeps the compiler from fusing gradients with the code around them: it would
      compute a stage of the solver again for every entry of the gradient that depends on it. A
      branch on an array is a fence that it cannot remove.
    - `widens`: whether runs wait for a wider table when they reach the end of theirs.
    """

    solver: diffrax.AbstractSolver
    controller: diffrax.PIDController
    layout: Layout
    most: Int[Array, ""] | int
    thinning: Thinning | None = None
    rest: Float[Array, ""] | None = None
    fence: Bool[Array, ""] | None = None
    widens: bool = eqx.field(static=True, default=False)

    def _terms(self, risk: AbstractRisk) -> diffrax.ODETerm:
        def slope(weights: PyTree[Array]) -> PyTree[Array]:
            gradient = risk.gradient(self._model(weights))
            return jax.tree.map(lambda slope: -0.5 * slope, self._weights(gradient))

        def velocity(time: ScalarLike, weights: PyTree[Array], args: Any) -> PyTree[Array]:
            return self._fence_off(slope, lambda weights: weights, weights)

        return diffrax.ODETerm(velocity)

    def _loss(self, risk: AbstractRisk, weights: PyTree[Array]) -> Float[Array, ""]:
        loss = lambda weights: risk(self._model(weights))
        return self._fence_off(loss, lambda weights: jnp.zeros(()), weights)

    def _fence_off(self, function: Callable, other: Callable, weights: PyTree[Array]) -> Any:
        """`function(weights)`; `other` is a branch of the same shape that is never taken."""
        if self.fence is None:
            return function(weights)
        return jax.lax.cond(self.fence, function, other, weights)

    def _weights(self, model: AbstractModel) -> PyTree[Array]:
        """The weights of `model` as the solver sees them."""
        if self.layout.size <= _LARGEST_VECTOR:
            return self.layout.vector(model)
        return eqx.filter(model, eqx.is_inexact_array)

    def _model(self, weights: PyTree[Array]) -> AbstractModel:
        if self.layout.size <= _LARGEST_VECTOR:
            return self.layout.model(weights)
        return eqx.combine(weights, self.layout.rest)

    def _controller(self, atol: Float[Array, ""]) -> diffrax.PIDController:
        return eqx.tree_at(lambda controller: controller.atol, self.controller, atol)

    def start(
        self,
        risk: AbstractRisk,
        atol: Float[Array, ""],
        stops: Float[Array, " stops"],
        time: Float[Array, ""],
        vector: Float[Array, " n"],
        step: Float[Array, ""] | None = None,
    ) -> State:
        """The state before the first step; the heuristic of diffrax chooses `step` unless given."""
        terms = self._terms(risk)
        weights = self._weights(self.layout.model(vector))
        order = self.solver.error_order(terms)
        end, controller = self._controller(atol).init(
            terms, time, time + _NO_END, weights, step, None, self.solver.func, order
        )
        solver = self.solver.init(terms, time, end, weights, None)
        loss = risk(self._model(weights))
        state = State(
            time=time,
            step=jnp.asarray(end - time),
            weights=weights,
            solver=solver,
            controller=controller,
            resting=jnp.zeros((), bool),
            stop=jnp.sum(stops[:-1] <= time),
            loss=loss,
            thinned=None if self.thinning is None else Thinned(time, loss, loss, loss),
            tried=jnp.zeros((), int),
        )
        # Weakly typed scalars would make the second chunk compile again.
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), state)

    def chunk(
        self,
        risk: AbstractRisk,
        atol: Float[Array, ""],
        stops: Float[Array, " stops"],
        state: State,
        tries: int,
    ) -> tuple[State, Record]:
        """`tries` attempted steps of one run."""

        def idle(state: State):
            no = jnp.zeros((), bool)
            weights = self.layout.vector(self._model(state.weights))
            return state, Record(state.time, state.loss, weights, no, no, no)

        # A run that has ended is not computed, which matters if a single try takes long.
        over = lambda state: ~self._goes_on(risk, stops, state)
        attempt = lambda state: self.attempt(risk, atol, stops, state)
        step = lambda state, _: jax.lax.cond(over(state), idle, attempt, state)
        return jax.lax.scan(step, state, length=tries)

    def _goes_on(
        self, risk: AbstractRisk, stops: Float[Array, " stops"], state: State
    ) -> Bool[Array, ""]:
        going = (state.time < _next(stops, state)) & ~state.resting & (state.tried < self.most)
        if not self.widens:
            return going
        return going & (risk.table_used(self._model(state.weights)) <= TABLE_FULL)

    def attempt(
        self,
        risk: AbstractRisk,
        atol: Float[Array, ""],
        stops: Float[Array, " stops"],
        state: State,
    ) -> tuple[State, Record]:
        """One attempted step, cut short at the next stop. The last stop is the end."""
        terms = self._terms(risk)
        order = cast(int, self.solver.error_order(terms))
        stop = _next(stops, state)
        active = self._goes_on(risk, stops, state)
        clipped = state.time + state.step >= stop
        # The stop itself, not time + step: the clock must read the stop to the last bit.
        end = jnp.where(clipped & active, stop, state.time + state.step)
        weights, error, _, solver, _ = self.solver.step(
            terms, state.time, end, state.weights, None, state.solver, False
        )
        # Beyond the end of a table its values are wrong: such a step is rejected as too long.
        beyond = risk.table_used(self._model(weights)) > 1
        error = jax.tree.map(lambda e: jnp.where(beyond | jnp.isnan(e), jnp.inf, e), error)
        accepted, _, after, _, controller, _ = self._controller(atol).adapt_step_size(
            state.time, end, state.weights, weights, None, error, order, state.controller
        )
        accepted = jnp.asarray(accepted) & active
        reached = jnp.where(accepted, end, state.time)
        # A step that was cut short by a stop does not limit the next one.
        step = after - reached
        step = jnp.where(accepted & clipped, jnp.maximum(step, state.step), step)
        choose = lambda new, old: jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
        moved = State(
            time=reached,
            step=jnp.where(active, step, state.step),
            weights=choose(weights, state.weights),
            solver=choose(solver, state.solver),
            controller=jax.tree.map(
                lambda a, b: jnp.where(active, a, b), controller, state.controller
            ),
            resting=state.resting,
            stop=jnp.minimum(state.stop + (accepted & clipped), len(stops) - 1),
            loss=state.loss,
            thinned=state.thinned,
            tried=state.tried + active,
        )
        if self.rest is None:
            loss = choose(self._loss(risk, weights), state.loss)
        else:
            loss, gradient = risk.value_and_gradient(self._model(moved.weights))
            slope = jnp.linalg.norm(self.layout.vector(gradient))
            moved = moved._replace(resting=slope <= self.rest)
        kept = accepted & clipped
        if self.thinning is not None:
            assert state.thinned is not None
            thinned, worth = self.thinning.look(state.thinned, reached, loss)
            moved = moved._replace(thinned=choose(thinned, state.thinned))
            kept = accepted & worth
        vector = self.layout.vector(self._model(moved.weights))
        record = Record(reached, loss, vector, active, accepted, kept)
        return moved._replace(loss=loss), record


def _next(stops: Float[Array, " stops"], state: State) -> Float[Array, ""]:
    """The next stop."""
    return stops.at[state.stop].get(mode="promise_in_bounds")


def is_stuck(state: State) -> np.ndarray:
    """Whether the step of each run has become too small to move the clock."""
    return np.asarray(state.step) < _SMALLEST_STEP * np.maximum(np.asarray(state.time), _EARLIEST)

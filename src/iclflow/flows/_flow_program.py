"""The compiled program of gradient flow, for several runs side by side."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..risks import AbstractRisk
from ..runtime import quick_options
from ._lanes import over_lanes
from ._layout import Layout
from ._members import over_members
from ._options import FlowOptions
from ._save import Thinned, Thinning, save_times
from ._solvers import Rodas5P, Tsit5
from ._stepper import Record, State, Stepper

# The end of runs without one: no clock reads it before a run has converged or come to rest.
FOREVER = 1e300
# In lanes all sums are written out. A step on 68 weights then takes 0.7 times as long, and a step
# on 136 weights twice as long.
_LARGEST_IN_LANES = 96
# The first step of the implicit solver: a velocity of half the slope then moves weights by one
# percent of their length (Hairer, Nørsett, Wanner, II.4), within limits for weights that rest or
# are zero.
_FIRST_STEP, _STEPS, _TINY = 0.02, (1e-6, 1e6), 1e-300

# Its stub does not know the arguments that it hands on to `jax.jit`.
_compiled: Any = functools.partial(cast(Any, eqx.filter_jit), compiler_options=quick_options())


class Beginning(NamedTuple):
    """Where runs begin. Only a run that another solver has begun has a step size, a number of
    attempted steps, and the state of its thinning."""

    time: Any
    vector: Any
    step: Any = None
    tried: Any = None
    thinned: Thinned | None = None


class First(NamedTuple):
    """The first point of runs.

    **Fields:**

    - `floor`: the smallest loss that these weights can reach; NaN if it is not known or not needed.
    - `start`: the loss from which the way down is counted.
    - `slope`: ‖∂L/∂W‖.
    """

    loss: Array
    floor: Array
    start: Array
    slope: Array


class FlowProgram(eqx.Module):
    """Begins and continues runs, as many as there are lanes.

    **Fields:**

    - `stops`: steps end on these times; the last one ends the run.
    - `swept`: as in `over_members`.
    - `in_lanes`: whether the members are the last axis of all arrays, and not the first.
    - `converges`: whether runs end when their loss has converged.
    """

    stepper: Stepper
    stops: Any  # an array: of NumPy outside the program
    swept: bool | None = eqx.field(static=True)
    in_lanes: bool = eqx.field(static=True)
    converges: bool = eqx.field(static=True)

    @staticmethod
    def build(
        layout: Layout,
        options: FlowOptions,
        kind: str,
        lanes: int,
        swept: bool | None,
        costly: bool,
        widens: bool,
    ) -> "FlowProgram":
        """**Arguments:**

        - `kind`: of the solver, `"explicit"` or `"implicit"`.
        - `lanes`: the number of runs side by side.
        - `costly`: whether a gradient takes longer than everything else.
        - `widens`: whether runs wait for a wider table when they reach the end of theirs.
        """
        small = layout.size <= _LARGEST_IN_LANES and not costly
        # Lanes pay for ensembles of small explicit steps alone: an implicit step factorises a
        # matrix, for which `vmap` is as good.
        in_lanes = swept is not None and kind == "explicit" and small
        fixed = save_times(options.save, options.end)
        end = FOREVER if options.end is None else options.end
        stops = np.append(() if fixed is None else fixed[fixed < end], end)
        # On a CPU alone: a GPU would wait for the flag of the fence.
        fenced = in_lanes and jax.default_backend() == "cpu"
        rest = options.gradient_tolerance
        # Numbers are arrays: other numbers do not compile another program.
        stepper = Stepper(
            *_make_solver(kind, lanes, options.rtol),
            layout,
            jnp.asarray(options.max_steps),
            Thinning.of(options.save),
            None if rest is None else jnp.asarray(rest),
            jnp.asarray(True) if fenced else None,
            widens,
        )
        return FlowProgram(stepper, stops, swept, in_lanes, options.ends_by_loss)

    @property
    def _axis(self) -> int:
        return -1 if self.in_lanes else 0

    def arrange(self, members: Any) -> Any:
        """Moves the axis of the members from the front to where this program has it."""
        return jax.tree.map(lambda x: np.moveaxis(x, 0, self._axis), members)

    def by_member(self, arrays: Any) -> Any:
        """Moves the axis of the members to the front."""
        return jax.tree.map(lambda x: np.moveaxis(np.asarray(x), self._axis, 0), arrays)

    @_compiled
    def begin(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], beginning: Beginning
    ) -> tuple[First, State]:
        """The state of every lane before its first step."""
        return self.first(risk, atol, beginning)

    def first(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], beginning: Beginning
    ) -> tuple[First, State]:
        """The same, not compiled."""

        def begin(risk: AbstractRisk, atol: Float[Array, ""], beginning: Beginning):
            model = self.stepper.layout.model(beginning.vector)
            loss, gradient = risk.value_and_gradient(model)
            # Some risks decompose a matrix for these: computed only where they are used.
            floor = risk.floor(model) if self.converges else None
            zero = risk.of_zero(model) if self.converges else None
            slope = jnp.linalg.norm(self.stepper.layout.vector(gradient))
            # Huge weights start far above the loss of predicting zero: their way down begins there.
            start = loss if zero is None else jnp.minimum(loss, zero)
            first = First(loss, jnp.asarray(jnp.nan if floor is None else floor), start, slope)
            step = beginning.step
            if step is None and isinstance(self.stepper.solver, Rodas5P):
                # The first half of the usual heuristic: all of it would take two gradients.
                length = jnp.linalg.norm(beginning.vector)
                step = jnp.clip(_FIRST_STEP * length / jnp.maximum(slope, _TINY), *_STEPS)
            state = self.stepper.start(
                risk, atol, self.stops, beginning.time, beginning.vector, step
            )
            if beginning.tried is not None:
                state = state._replace(tried=beginning.tried, thinned=beginning.thinned)
            return first, state

        if not self.in_lanes:
            return over_members(begin, self.swept, risk, atol, beginning)
        # Once per run: not worth the larger program of lanes.
        axes = (-1 if self.swept else None, -1, -1)
        return eqx.filter_vmap(begin, in_axes=axes, out_axes=-1)(risk, atol, beginning)

    @eqx.filter_jit
    def replace(self, state: State, lanes: Array | np.ndarray, fresh: State) -> State:
        """`state` with `fresh` in some lanes."""

        def choose(old: Array, new: Array) -> Array:
            mask = lanes if self.in_lanes else jnp.expand_dims(lanes, tuple(range(1, old.ndim)))
            return jnp.where(mask, new, old)

        return jax.tree.map(choose, state, fresh)

    def advance(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], state: State, tries: int
    ) -> tuple[State, Record]:
        """The state after `tries` attempted steps of every lane, and their records."""
        # Compiled quickly, implicit steps take 1.8 times as long. A single explicit run takes
        # seconds: a tenth more of them is less than what compiling saves.
        brief = self.swept is None and not isinstance(self.stepper.solver, Rodas5P)
        return (_advance_briefly if brief else _advance)(self, risk, atol, state, tries)

    def chunk(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], state: State, tries: int
    ) -> tuple[State, Record]:
        """The same, not compiled."""
        stepper, stops = self.stepper, self.stops
        if not self.in_lanes:
            chunk = lambda risk, atol, state: stepper.chunk(risk, atol, stops, state, tries)
            return over_members(chunk, self.swept, risk, atol, state)
        # Lanes whose run has ended are computed too: all lanes take the same branch.
        attempt = lambda risk, atol, state: stepper.attempt(risk, atol, stops, state)
        step = lambda state, _: _in_lanes(attempt, bool(self.swept), risk, atol, state)
        return jax.lax.scan(step, state, length=tries)


@eqx.filter_jit
def _advance(program: FlowProgram, *arguments: Any) -> tuple[State, Record]:
    return program.chunk(*arguments)


@_compiled
def _advance_briefly(program: FlowProgram, *arguments: Any) -> tuple[State, Record]:
    return program.chunk(*arguments)


def _make_solver(
    kind: str, lanes: int, rtol: float
) -> tuple[diffrax.AbstractSolver, diffrax.PIDController]:
    # The absolute tolerance is set for each run.
    tolerances = jnp.asarray(rtol), jnp.asarray(0.0)
    if kind == "implicit":
        return Rodas5P(lanes), diffrax.PIDController(*tolerances)
    # The default is an I controller: where stability limits the step, it rejects a fifth of them.
    return Tsit5(), diffrax.PIDController(*tolerances, pcoeff=0.4, icoeff=0.3)


def _in_lanes(function: Callable, swept: bool, risk: AbstractRisk, *rest: Any) -> Any:
    """`function(risk, …)` of every lane; `swept` says whether each has its own risk."""
    arrays, static = eqx.partition((risk, *rest), eqx.is_array)
    shared, own = (None, arrays) if swept else (arrays[0], (None, *arrays[1:]))

    def one(shared: Any, own: Any) -> Any:
        return function(*eqx.combine(own if swept else (shared, *own[1:]), static))

    return over_lanes(one, jax.tree.leaves(rest)[0].shape[-1], shared, own)

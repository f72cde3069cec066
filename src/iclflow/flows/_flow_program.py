"""The compiled program of gradient flow: how some runs begin and go on, side by side."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..risks import AbstractRisk
from ._ensemble import over_members
from ._lanes import over_lanes
from ._layout import Layout
from ._rodas5p import Rodas5P
from ._save import SavePoints
from ._stepper import Record, State, Stepper
from ._thinning import Thinned, Thinning
from ._tsit5 import Tsit5

# In lanes all sums are written out. A step on 68 weights then takes 0.7 of its time, one on 136
# twice as long.
_LARGEST_IN_LANES = 96
# The first step of the implicit solver: a velocity of half the slope then moves weights by one
# percent of their length (Hairer, Nørsett, Wanner, II.4), within limits for weights that rest or
# are zero.
_FIRST_STEP, _STEPS, _TINY = 0.02, (1e-6, 1e6), 1e-300


class Beginning(NamedTuple):
    """Where runs begin. A run that another solver continues brings the step with which it goes on,
    how many it has tried, and what was kept of it."""

    time: Any
    vector: Any
    step: Any = None
    tried: Any = None
    thinned: Thinned | None = None


class First(NamedTuple):
    """What is known of runs before their first step: their loss, the smallest that their weights
    can reach (NaN if it is not known, or not asked for), that from which the way down is counted,
    and ‖∂L/∂W‖."""

    loss: Array
    floor: Array
    start: Array
    slope: Array


class FlowProgram:
    """Begins and continues runs, as many as there are lanes.

    **Arguments:**

    - `kind`: of the solver, `"explicit"` or `"implicit"`.
    - `lanes`: how many runs there are side by side.
    - `swept`: as in `over_members`.
    - `stops`: moments at which steps end; the last is the end.
    - `most`: the most tries per run.
    - `costly`: whether a gradient takes longer than everything else.
    - `lasting`: whether runs end when they have converged.
    - `widens`: whether runs wait for a wider table when theirs is full.
    """

    def __init__(
        self,
        layout: Layout,
        kind: str,
        lanes: int,
        swept: bool | None,
        stops: np.ndarray,
        save: SavePoints,
        rtol: float,
        rest: float | None,
        most: int,
        costly: bool,
        lasting: bool,
        widens: bool,
    ):
        self.kind = kind
        small = layout.size <= _LARGEST_IN_LANES and not costly
        # Lanes pay for ensembles of small explicit steps alone: an implicit step factorises a
        # matrix, for which `vmap` is as good.
        self._in_lanes = swept is not None and kind == "explicit" and small
        self._swept = swept
        self._stops = stops
        self._lasting = lasting
        # On a processor, that is: a graphics card would wait for the flag.
        fenced = self._in_lanes and jax.default_backend() == "cpu"
        self._stepper = Stepper(
            *_solver(kind, lanes, rtol),
            layout,
            jnp.asarray(most),
            Thinning.of(save),
            None if rest is None else jnp.asarray(rest),
            jnp.asarray(True) if fenced else None,
            widens,
        )

    @property
    def _how(self) -> bool | str | None:
        return ("swept" if self._swept else "shared") if self._in_lanes else self._swept

    def arrange(self, members: Any) -> Any:
        """Arrays with the members first as this program wants them."""
        axis = -1 if self._in_lanes else 0
        return jax.tree.map(lambda x: np.moveaxis(x, 0, axis), members)

    def by_member(self, arrays: Any) -> Any:
        """Arrays of this program with the members first."""
        axis = -1 if self._in_lanes else 0
        return jax.tree.map(lambda x: np.moveaxis(np.asarray(x), axis, 0), arrays)

    def begin(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], beginning: Beginning
    ) -> tuple[First, State]:
        """The state of every lane before its first step."""
        settings = self._how, self._stops, self._lasting
        return _begin(self._stepper, settings, risk, atol, beginning)

    def replace(self, state: State, lanes: np.ndarray, fresh: State) -> State:
        """`state` with `fresh` in some lanes."""
        return _replace(state, lanes, fresh, -1 if self._in_lanes else 0)

    def advance(
        self, risk: AbstractRisk, atol: Float[Array, " lanes"], state: State, tries: int
    ) -> tuple[State, Record]:
        """So many tries of every lane, and what they left behind."""
        return _advance(self._stepper, self._how, self._stops, risk, atol, state, tries)


def _solver(kind: str, lanes: int, rtol: float):
    # As arrays: other tolerances do not mean another compilation. That for small weights is given
    # with each run.
    tolerances = jnp.asarray(rtol), jnp.asarray(0.0)
    if kind == "implicit":
        return Rodas5P(lanes), diffrax.PIDController(*tolerances)
    # With the default controller a fifth of the steps at the limit of stability are rejected.
    return Tsit5(), diffrax.PIDController(*tolerances, pcoeff=0.4, icoeff=0.3)


def _in_lanes(function: Callable, swept: bool, risk: AbstractRisk, *rest: Any) -> Any:
    """`function(risk, …)` of every lane; `swept` says whether each has a risk of its own."""
    arrays, static = eqx.partition((risk, *rest), eqx.is_array)
    shared, own = (None, arrays) if swept else (arrays[0], (None, *arrays[1:]))

    def one(shared: Any, own: Any) -> Any:
        return function(*eqx.combine(own if swept else (shared, *own[1:]), static))

    return over_lanes(one, jax.tree.leaves(rest)[0].shape[-1], shared, own)


@eqx.filter_jit
def _begin(
    stepper: Stepper,
    settings: tuple[bool | str | None, Any, bool],
    risk: AbstractRisk,
    atol: Float[Array, " lanes"],
    beginning: Beginning,
) -> tuple[First, State]:
    layout, (how, stops, lasting) = stepper.layout, settings

    def begin(risk: AbstractRisk, atol: Float[Array, ""], beginning: Beginning):
        model = layout.model(beginning.vector)
        loss, gradient = risk.value_and_gradient(model)
        # Some take a decomposition: they are computed only where they are used.
        floor = risk.floor(model) if lasting else None
        zero = risk.of_zero(model) if lasting else None
        slope = jnp.linalg.norm(layout.vector(gradient))
        # The way down is that of a predictor: huge weights start far above predicting zero.
        start = loss if zero is None else jnp.minimum(loss, zero)
        first = First(loss, jnp.asarray(jnp.nan if floor is None else floor), start, slope)
        step = beginning.step
        if step is None and isinstance(stepper.solver, Rodas5P):
            # What the usual heuristic starts from; all of it takes two gradients.
            length = jnp.linalg.norm(beginning.vector)
            step = jnp.clip(_FIRST_STEP * length / jnp.maximum(slope, _TINY), *_STEPS)
        state = stepper.start(risk, atol, stops, beginning.time, beginning.vector, step)
        if beginning.tried is not None:
            state = state._replace(tried=beginning.tried, thinned=beginning.thinned)
        return first, state

    if not isinstance(how, str):
        return over_members(begin, how, risk, atol, beginning)
    # Done once per run: not worth the larger program of lanes.
    axes = (-1 if how == "swept" else None, -1, -1)
    return eqx.filter_vmap(begin, in_axes=axes, out_axes=-1)(risk, atol, beginning)


@partial(jax.jit, static_argnums=3)
def _replace(state: State, lanes: Array, fresh: State, axis: int) -> State:
    def replace(old: Array, new: Array) -> Array:
        mask = jnp.expand_dims(lanes, tuple(range(1, old.ndim))) if axis == 0 else lanes
        return jnp.where(mask, new, old)

    return jax.tree.map(replace, state, fresh)


@eqx.filter_jit
def _advance(
    stepper: Stepper,
    how: bool | str | None,
    stops: Any,
    risk: AbstractRisk,
    atol: Float[Array, " lanes"],
    state: State,
    tries: int,
) -> tuple[State, Record]:
    if not isinstance(how, str):
        chunk = lambda risk, atol, state: stepper.chunk(risk, atol, stops, state, tries)
        return over_members(chunk, how, risk, atol, state)
    # Lanes that are over are computed too: a single lane cannot take a branch of its own.
    attempt = lambda risk, atol, state: stepper.attempt(risk, atol, stops, state)
    step = lambda state, _: _in_lanes(attempt, how == "swept", risk, atol, state)
    return jax.lax.scan(step, state, length=tries)

"""Gradient descent, SGD and Adam on any risk: training in steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key, PRNGKeyArray

from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory
from ._ensemble import Ensemble, Members, over_members
from ._layout import Layout
from ._progress import Monitor, Status
from ._recorder import Recorder
from ._rules import Rule, adam_rule, sgd_rule
from ._save import Drops, Explicit, SavePoints, save_times

_CHUNK_BYTES = 2**25
# Descent with `Drops` looks at the loss this often, evenly, and keeps what moved.
_LOOKS = 20_000
_LONGEST_STRETCH = 50_000


class State(NamedTuple):
    """Everything that the next step depends on, the random stream included: the key of step n
    is derived from n, so that a run can be taken up anywhere. `gradient` is that at `weights` where
    the record of the loss has computed it, else None."""

    step: Array
    weights: Array
    optimiser: Any
    key: PRNGKeyArray
    gradient: Array | None


def gradient_descent(
    model: AbstractModel, risk: AbstractRisk, learning_rate: float, steps: int, **options
) -> Trajectory:
    """W ← W − η ∂L/∂W. `steps` steps of this are the Euler scheme of gradient flow with time
    step 2η. Options: as in `descend`."""
    return descend(model, risk, sgd_rule(learning_rate), steps, **options)


def sgd(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    momentum: float = 0.0,
    **options,
) -> Trajectory:
    """Stochastic gradient descent on a sampled risk. Options: as in `descend`."""
    return descend(model, risk, sgd_rule(learning_rate, momentum), steps, **options)


def adam(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    b1: float = 0.9,
    b2: float = 0.999,
    **options,
) -> Trajectory:
    """Adam on any risk. Options: as in `descend`."""
    return descend(model, risk, adam_rule(learning_rate, b1, b2), steps, **options)


def descend(
    model: AbstractModel,
    risk: AbstractRisk,
    optimiser: Rule | optax.GradientTransformation,
    steps: int,
    *,
    key: PRNGKeyArray | None = None,
    monitor: AbstractRisk | None = None,
    save: SavePoints = Drops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
) -> Trajectory:
    """`steps` updates of any optimiser.

    **Arguments:**

    - `optimiser`: `sgd_rule(…)`, `adam_rule(…)`, or any optax optimiser.
    - `key`: of the random stream; needed for a stochastic risk.
    - `monitor`: the risk whose values are recorded, if not `risk` itself: a run on sampled
      sequences can report its exact loss.
    - `save`: which steps to keep: `Drops`, `Linear`, `LogSpaced` or `Explicit`.
    - `progress`, `callback`: as in `gradient_flow`.
    """
    key = _checked_key(risk, key)
    driver = _Driver(Layout.of(model), risk, monitor, None, optimiser, steps, save)
    run = Monitor("training", progress, callback)
    return driver.run(driver.layout.vector(model)[None], key[None], run)[0]


def descend_ensemble(
    models,
    risks,
    optimiser: Rule | optax.GradientTransformation,
    steps: int,
    *,
    keys: Key[Array, " members"] | None = None,
    save: SavePoints = Drops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
) -> Ensemble:
    """Many models of one shape trained as one program.

    **Arguments:**

    - `models`, `risks`: as in `gradient_flow_ensemble`.
    - `keys`: one random key a member, for stochastic risks.
    """
    members = Members.of(models, risks)
    if keys is None:
        keys = jr.split(_checked_key(members.risk, None), members.count)
    risk, layout = members.risk, Layout.of(members.first)
    driver = _Driver(layout, risk, None, members.swept_risk, optimiser, steps, save)
    vectors = eqx.filter_vmap(driver.layout.vector)(members.models)
    run = Monitor(f"training {members.count} models", progress, callback)
    return Ensemble(tuple(driver.run(vectors, keys, run)))


class _Driver:
    """Loops over chunks of save points, on one run (`swept` None) or on an ensemble."""

    def __init__(self, layout, risk, monitor, swept, optimiser, steps, save):
        if steps < 1 or steps != int(steps):
            raise ValueError(f"`steps` = {steps}: must be a whole number from 1 up.")
        self.layout = layout
        self._risk = risk
        self._monitored = monitor
        self._swept = swept
        if not isinstance(optimiser, Rule):
            optimiser = Rule(optimiser, jnp.ones(()))
        self._rule = optimiser
        self._steps = int(steps)
        self._save = save

    def run(self, vectors, keys, monitor: Monitor) -> list[Trajectory]:
        kept = self._marks()
        # Between two looks a run can be neither stopped nor shown, so none is far from the next.
        pauses = np.arange(_LONGEST_STRETCH, self._steps, _LONGEST_STRETCH)
        marks = np.union1d(kept, pauses) if len(pauses) else kept
        states, losses = _start(self._parts(), self._risk, self._monitored, vectors, keys)
        recorders = [
            Recorder(self.layout, self._kept(kept), loss, vector, self._steps, None)
            for loss, vector in zip(np.asarray(losses).tolist(), np.asarray(vectors))
        ]
        counts = np.diff(marks, prepend=0)
        size = min(500, _CHUNK_BYTES // (8 * vectors.size), _LONGEST_STRETCH // int(counts.max()))
        size = min(len(marks), max(1, size))
        # Every chunk of one shape means one compilation: chunks are made equal, and the few steps
        # that the last one takes beyond the end are dropped.
        size = -(-len(marks) // -(-len(marks) // size))
        counts = np.pad(counts, (0, -len(counts) % size), constant_values=1).reshape(-1, size)
        try:
            for i, chunk in enumerate(counts):
                states, (clock, losses, weights) = _advance(
                    self._parts(), self._risk, self._monitored, states, chunk
                )
                valid = min(size, len(marks) - i * size)
                clock, losses, weights = (np.asarray(x) for x in (clock, losses, weights))
                for j, recorder in enumerate(recorders):
                    recorder.add(
                        clock[j, :valid].astype(float), losses[j, :valid], weights[j, :valid]
                    )
                done = float(clock[0, valid - 1])
                status = Status(done, recorders[0].last_loss, int(done), done / self._steps)
                if not monitor.update(status):
                    _finish(recorders)
                if all(recorder.result is not None for recorder in recorders):
                    break
        except KeyboardInterrupt:
            _finish(recorders)
        finally:
            monitor.close()
        statistics = {"seconds": monitor.seconds, "members": len(recorders)}
        return [recorder.trajectory("step", statistics) for recorder in recorders]

    def _marks(self) -> np.ndarray:
        """The step numbers at which the loss is looked at."""
        fixed = save_times(self._save, float(self._steps))
        if fixed is None:
            looks = min(self._steps, _LOOKS)
            fixed = np.linspace(0, self._steps, looks + 1)[1:]
        elif isinstance(self._save, Explicit) and np.any(fixed != np.round(fixed)):
            raise ValueError("`save`: explicit moments of a descent must be whole step numbers.")
        # The end is always looked at, whether it is kept or not: a run goes on until there.
        marks = np.unique(np.append(np.round(fixed).astype(np.int64), self._steps))
        return marks[marks > 0]

    def _kept(self, marks: np.ndarray) -> SavePoints:
        return self._save if isinstance(self._save, Drops | Explicit) else Explicit(marks)

    def _parts(self):
        return self.layout, self._rule, self._swept


@eqx.filter_jit
def _start(parts, risk, monitored, vectors, keys):
    layout, rule, swept = parts

    def start(risks, vector, key):
        state = State(jnp.zeros((), int), vector, rule.transform.init(vector), key, None)
        risk, monitored = risks
        return _reported(layout, risk, monitored, state)

    return over_members(start, swept, (risk, monitored), vectors, keys)


@eqx.filter_jit
def _advance(parts, risk, monitored, states, counts):
    layout, rule, swept = parts

    def moved(state: State, gradient: Array) -> State:
        updates, memory = rule.transform.update(gradient, state.optimiser, state.weights)
        weights = state.weights + rule.factor * updates
        return state._replace(step=state.step + 1, weights=weights, optimiser=memory)

    def chunk(risks, state):
        risk, monitored = risks

        def one_step(_, state: State) -> State:
            key = jr.fold_in(state.key, state.step) if risk.stochastic else None
            return moved(state, layout.vector(risk.gradient(layout.model(state.weights), key)))

        def to_next_mark(state: State, count):
            if state.gradient is None:
                state = jax.lax.fori_loop(0, count, one_step, state)
            else:
                state = jax.lax.fori_loop(1, count, one_step, moved(state, state.gradient))
            state, loss = _reported(layout, risk, monitored, state)
            return state, (state.step, loss, state.weights)

        return jax.lax.scan(to_next_mark, state, counts)

    return over_members(chunk, swept, (risk, monitored), states)


def _reported(layout: Layout, risk: AbstractRisk, monitored: AbstractRisk | None, state: State):
    """The loss to record at `state`, and `state` with what this has found out for the next step:
    the loss and the gradient of one risk have most of their work in common."""
    model = layout.model(state.weights)
    if monitored is None and not risk.stochastic:
        loss, gradient = risk.value_and_gradient(model)
        return state._replace(gradient=layout.vector(gradient)), loss
    reported = risk if monitored is None else monitored
    return state, reported(model, _report_key(reported, state))


def _report_key(risk: AbstractRisk, state: State) -> PRNGKeyArray | None:
    """A key of its own: what is reported must not be what is trained on."""
    return jr.fold_in(jr.fold_in(state.key, state.step), 1) if risk.stochastic else None


def _finish(recorders) -> None:
    for recorder in recorders:
        recorder.finish(Result.cancelled)


def _checked_key(risk: AbstractRisk, key: PRNGKeyArray | None) -> PRNGKeyArray:
    if key is None and risk.stochastic:
        raise ValueError("This risk draws sequences: pass a random `key`.")
    return jr.key(0) if key is None else key

"""Gradient descent, SGD and Adam on any risk: training in steps."""

import collections
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
from ..risks import AbstractRisk, AbstractSampledRisk
from ..tasks import check_key, is_whole
from ..trajectory import Result, Trajectory
from ._ahead import Blocks, drawn_ahead, steps_at_once
from ._checkpoint import Checkpoint, Snapshot, leaves_of, owner_of, with_leaves
from ._ensemble import Ensemble, Members, over_members
from ._jit import jit_ahead
from ._layout import Layout
from ._options import check_model_and_risk, check_parts
from ._progress import Monitor, Status
from ._records import Points, Records
from ._rules import Rule, adam_rule, rule_of, sgd_rule
from ._save import Drops, Explicit, SavePoints, save_times
from ._thinning import Thinned, Thinning

# Looks in one call, at most: enough that calling costs nothing, few enough to see the run move.
_CHUNK = 1000
_CHUNK_BYTES = 2**25
# Between two looks a run can be neither stopped nor shown.
LONGEST_STRETCH = 50_000


class State(NamedTuple):
    """Everything that the next step depends on, the random stream included: the key of step n
    is derived from n, so that a run can be taken up anywhere. `key` is None where none is used."""

    step: Array | np.ndarray
    weights: Array | np.ndarray
    optimiser: Any
    key: PRNGKeyArray | None
    thinned: Thinned | None

    def fresh_key(self, ahead: Array | int = 0) -> PRNGKeyArray:
        """The key of this step, or of one `ahead`."""
        assert self.key is not None
        return jr.fold_in(self.key, self.step + ahead)


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
    checkpoint: Checkpoint | None = None,
    stretch: int = LONGEST_STRETCH,
) -> Trajectory:
    """`steps` updates of any optimiser.

    **Arguments:**

    - `optimiser`: `sgd_rule(…)`, `adam_rule(…)`, or any optax optimiser.
    - `key`: of the random stream; needed for a stochastic risk.
    - `monitor`: the risk whose values are recorded, if not `risk` itself: a run on sampled
      sequences can report its exact loss.
    - `save`: which steps to keep: `Drops`, `Linear`, `LogSpaced` or `Explicit`.
    - `progress`, `callback`, `checkpoint`: as in `gradient_flow`. (An optimiser of one's own is
      taken to be the same when a run is taken up.)
    - `stretch`: the most steps from one call of `callback` to the next; fewer make a run that can
      be watched and stopped sooner, and is a little slower.
    """
    check_model_and_risk(model, risk)
    if stretch < 1:
        raise ValueError(f"`stretch` = {stretch}: must be at least 1.")
    if key is not None:
        check_key(key)
        key = key[None]
    parts = Layout.of(model), risk, monitor, None, optimiser, steps, save, checkpoint
    driver = _Driver(*parts, int(stretch))
    run = Monitor("training", progress, callback)
    return driver.run(driver.layout.vectors(model), key, run)[0]


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
    checkpoint: Checkpoint | None = None,
) -> Ensemble:
    """Many models of one shape trained as one program.

    **Arguments:**

    - `models`, `risks`: as in `gradient_flow_ensemble`.
    - `keys`: one random key a member, for stochastic risks.
    """
    members = Members.of(models, risks)
    risk, layout = members.risk, Layout.of(members.first)
    swept = members.swept_risk
    parts = layout, risk, None, swept, optimiser, steps, save, checkpoint
    driver = _Driver(*parts, LONGEST_STRETCH)
    run = Monitor(f"training {members.count} models", progress, callback)
    return driver.run(layout.vectors(members.models), keys, run)


class _Driver:
    """Loops over chunks of save points, on one run (`swept` None) or on an ensemble."""

    def __init__(self, layout, risk, monitor, swept, optimiser, steps, save, checkpoint, stretch):
        if not is_whole(steps) or steps < 1:
            raise ValueError(f"`steps` = {steps!r}: must be a whole number from 1 up.")
        check_parts(monitor, checkpoint)
        self.layout = layout
        self._risk = risk
        self._monitored = monitor
        self._swept = swept
        self._rule = rule_of(optimiser)
        self._steps = int(steps)
        self._save = save
        self._thinning = Thinning.of(save)
        self._checkpoint: Checkpoint | None = checkpoint
        self._stretch = stretch

    @property
    def _reported(self) -> AbstractRisk:
        """The risk whose values are recorded."""
        return self._risk if self._monitored is None else self._monitored

    def run(self, vectors, keys, monitor: Monitor) -> Ensemble:
        marks = self._marks()
        # Where looks decide what is kept, more of them would make another run of it.
        longest = self._stretch if self._thinning is None else LONGEST_STRETCH
        pauses = np.arange(longest, self._steps, longest)
        looks = np.concatenate([[0], np.union1d(marks, pauses) if len(pauses) else marks])
        wanted = np.isin(looks, marks) | (self._thinning is not None)
        strides = np.diff(looks)
        # Nothing is left to do after the last look.
        chunks = self._chunks(np.append(strides, 0), vectors.size)
        states = self._start(vectors, keys)
        blocks = self._blocks(states, strides)
        records = Records(self.layout, len(vectors), self._steps)
        everyone, seen, size = np.arange(len(vectors)), 0, len(chunks[0])
        snapshot = self._found(states)
        if snapshot is not None and self._checkpoint is not None:
            with self._checkpoint.restoring():
                records.restore(snapshot.arrays)
                moved = with_leaves(states._replace(key=None), snapshot.arrays)
                states = moved._replace(key=states.key)
                seen = snapshot.about["seen"]
                monitor.add(snapshot.about["seconds"])
        # What a run could go on from; None while a chunk is being taken in.
        reached = None
        try:
            for after, record in self._advanced(states, chunks[-(-seen // size) :], blocks):
                # What the last chunk computes beyond the end is dropped.
                valid = min(size, len(looks) - seen)
                reached = None
                clock, losses, weights, kept = (np.asarray(part)[:, :valid] for part in record)
                kept = kept & wanted[seen : seen + valid]
                if seen == 0:
                    records.begin(everyone, losses[:, 0], weights[:, 0])
                    clock, losses, weights, kept = (
                        part[:, 1:] for part in (clock, losses, weights, kept)
                    )
                seen += valid
                every = np.ones(clock.shape, bool)
                points = Points(clock.astype(float), losses, weights, every, every, kept)
                if clock.shape[1]:  # the first chunk may be the first point alone
                    records.add(everyone, points, everyone)
                reached = after
                done = float(looks[seen - 1])
                loss = float(records.last_losses[0])
                so_far = lambda: records.so_far("step")
                status = Status(done, loss, int(done), done / self._steps, so_far)
                going = monitor.update(status)
                if not going or (self._checkpoint is not None and self._checkpoint.due):
                    self._keep(reached, records, seen, monitor)
                # Cancelled only now: a run that is taken up again has not been.
                if not going or not records.running.any():
                    break
        except KeyboardInterrupt:
            if not seen:
                raise
            if reached is not None:
                self._keep(reached, records, seen, monitor)
        finally:
            monitor.close()
        records.finish(np.flatnonzero(records.running), Result.cancelled)
        statistics = {"seconds": monitor.seconds, "members": len(vectors)}
        return Ensemble(records.series("step", [statistics] * len(vectors)))

    def _found(self, start: State) -> Snapshot | None:
        """Where this run stood when it was stopped, if it was."""
        if self._checkpoint is None:
            return None
        settings = self._steps, repr(self._save), self._rule
        if self._stretch != LONGEST_STRETCH:  # the runs of one stretch stand where others do not
            settings = *settings, self._stretch
        parts = self.layout, self._risk, self._monitored, self._swept, start, settings
        return self._checkpoint.load(owner_of(parts))

    def _keep(self, states: State, records: Records, seen: int, monitor: Monitor) -> None:
        """Writes where the run stands. Keys need not be kept: they do not change."""
        if self._checkpoint is not None:
            arrays = leaves_of(states._replace(key=None)) | records.arrays()
            about = {"seen": seen, "seconds": monitor.seconds}
            self._checkpoint.save(Snapshot(arrays, about))

    def _start(self, vectors: np.ndarray, keys) -> State:
        optimiser = eqx.filter_vmap(self._rule.transform.init)(jnp.asarray(vectors))
        steps = np.zeros(len(vectors), int)
        nothing = np.full(len(vectors), np.nan)  # until the first look
        thinned = None if self._thinning is None else Thinned(*[jnp.asarray(nothing)] * 4)
        return State(steps, vectors, optimiser, self._checked_keys(keys, len(vectors)), thinned)

    def _checked_keys(self, keys, count: int):
        if self._risk.stochastic and keys is None:
            raise ValueError("This risk draws sequences: pass a random `key`.")
        if self._risk.stochastic or (self._monitored is not None and self._monitored.stochastic):
            return jr.split(jr.key(0), count) if keys is None else keys
        return None

    def _chunks(self, counts: np.ndarray, numbers: int) -> np.ndarray:
        """Steps from each look to the next, as rows for one call each."""
        most = self._reported.tries_at_once or _CHUNK
        size = min(most, _CHUNK_BYTES // (8 * numbers), self._stretch // int(counts.max()))
        size = min(len(counts), max(1, size))
        # Every chunk of one shape means one compilation: chunks are made as equal as can be.
        size = -(-len(counts) // -(-len(counts) // size))
        return np.pad(counts, (0, -len(counts) % size)).reshape(-1, size)

    def _blocks(self, states: State, strides: np.ndarray) -> Blocks:
        """How steps are drawn together; one by one where nothing can be drawn ahead."""
        risk, most = self._risk, 1
        if isinstance(risk, AbstractSampledRisk):
            if self._swept:
                risk = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, risk)
            assert states.key is not None
            model = self.layout.model(jnp.asarray(states.weights[0]))
            most = steps_at_once(risk, model, states.key[0], len(states.weights))
        return Blocks.cut(strides, most)

    def _advanced(self, states: State, chunks: np.ndarray, blocks: Blocks):
        """The state after each chunk, and its record. The next is under way while one is looked
        at."""
        parts = self.layout, self._rule, self._swept, self._thinning
        records = collections.deque()
        for counts in chunks:
            states, record = _advance(parts, self._risk, self._monitored, states, counts, blocks)
            records.append((states, record))
            if len(records) > 1:
                yield records.popleft()
        if records:  # a run that is taken up at its end has none
            yield records.popleft()

    def _marks(self) -> np.ndarray:
        """The step numbers at which the loss is looked at."""
        fixed = save_times(self._save, float(self._steps))
        if fixed is None:
            # Evenly; what moved is kept.
            looks = min(self._steps, self._reported.looks)
            fixed = np.linspace(0, self._steps, looks + 1)[1:]
        elif isinstance(self._save, Explicit) and np.any(fixed != np.round(fixed)):
            raise ValueError("`save`: explicit moments of a descent must be whole step numbers.")
        # The end is always looked at, whether it is kept or not: a run goes on until there.
        marks = np.unique(np.append(np.round(fixed).astype(np.int64), self._steps))
        return marks[marks > 0]


@jit_ahead
def _advance(parts, risk, monitored, states, counts, blocks: Blocks):
    """Looks at the loss, then takes the next of `counts` steps; and so on."""
    layout, rule, swept, thinning = parts

    def moved(state: State, gradient: AbstractModel) -> State:
        updates, memory = rule.transform.update(
            layout.vector(gradient), state.optimiser, state.weights
        )
        weights = state.weights + rule.factor * updates
        return state._replace(step=state.step + 1, weights=weights, optimiser=memory)

    def chunk(risks, state):
        risk, monitored = risks

        def on_drawn(state: State, drawn: AbstractRisk) -> State:
            return moved(state, drawn.gradient(layout.model(state.weights)))

        def one_step(_, state: State) -> State:
            key = state.fresh_key() if risk.stochastic else None
            return moved(state, risk.gradient(layout.model(state.weights), key))

        def to_next_look(state: State, count):
            model = layout.model(state.weights)
            if monitored is None and not risk.stochastic:
                # The loss and the gradient of one risk have most of their work in common.
                loss, gradient = risk.value_and_gradient(model)
                after = moved(state, gradient)
            else:
                reported = risk if monitored is None else monitored
                loss = reported(model, _report_key(reported, state))
                if isinstance(risk, AbstractSampledRisk):
                    parts = risk, model, State.fresh_key, on_drawn
                    after = drawn_ahead(*parts, state, count, blocks)
                    return after, (state.step, loss, state.weights)
                after = one_step(0, state)
            if not blocks.once:  # then there is no loop between looks to compile
                after = jax.lax.fori_loop(1, count, one_step, after)
            return after, (state.step, loss, state.weights)

        def look(state: State, count):
            after, (step, loss, weights) = to_next_look(state, count)
            if thinning is None:
                return after, (step, loss, weights, jnp.ones((), bool))
            time, before = jnp.asarray(step, float), state.thinned
            assert before is not None
            first = Thinned(time, loss, loss, loss)
            before = jax.tree.map(lambda new, old: jnp.where(step == 0, new, old), first, before)
            thinned, kept = thinning.look(before, time, loss.astype(float))
            return after._replace(thinned=thinned), (step, loss, weights, kept)

        return jax.lax.scan(look, state, counts)

    return over_members(chunk, swept, (risk, monitored), states)


def _report_key(risk: AbstractRisk, state: State) -> PRNGKeyArray | None:
    """A key of its own: what is reported must not be what is trained on."""
    return jr.fold_in(state.fresh_key(), 1) if risk.stochastic else None

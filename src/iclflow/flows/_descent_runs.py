"""Training in steps: when the loss is looked at, and what is computed in one call."""

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from ..errors import InputError
from ..models import AbstractModel
from ..risks import AbstractRisk, AbstractSampledRisk
from ..tasks import is_whole
from ._ahead import Blocks, draw_ahead, steps_at_once
from ._checkpoint import Checkpoint, Snapshot, leaves_of, with_leaves
from ._driver import AbstractRuns
from ._ensemble import over_members
from ._jit import jit_ahead
from ._layout import Layout
from ._options import check_parts
from ._progress import Monitor, Status
from ._records import Points, Records
from ._rules import Rule, rule_of
from ._save import SaveAtDrops, SaveAtTimes, SavePoints, save_times
from ._thinning import Thinned, Thinning

# Looks in one call, at most: enough that calling costs nothing, few enough to see the run move.
_CHUNK = 1000
# Every look is recorded with all weights: records of a call stay below 32 MiB.
_CHUNK_BYTES = 2**25
# The most steps in one call: a run can be neither stopped nor shown before it returns.
LONGEST_STRETCH = 50_000


class State(NamedTuple):
    """Everything that the next step depends on, the random stream included: the key of step n
    is derived from n, so that a run can be resumed anywhere. `key` is None where none is used."""

    step: Array | np.ndarray
    weights: Any  # vectors: of JAX in the program, of NumPy before it
    optimiser: Any
    key: PRNGKeyArray | None
    thinned: Thinned | None

    def fresh_key(self, ahead: Array | int = 0) -> PRNGKeyArray:
        """The key of this step, or of one `ahead`."""
        assert self.key is not None
        return jr.fold_in(self.key, self.step + ahead)


class DescentRuns(AbstractRuns):
    """One training (`swept` None), or those of an ensemble, from one look at the loss to the next.

    **Arguments:**

    - `vectors`: the initial weights, one row per run.
    - `keys`: of the random streams, one per run.
    - `monitor`: the risk whose values are recorded, if not `risk` itself.
    - `swept`: as in `over_members`.
    - `stretch`: the most steps in one call of the compiled program.
    """

    clock = "step"

    def __init__(
        self,
        layout: Layout,
        risk: AbstractRisk,
        vectors: Float[np.ndarray, "runs n"],
        optimiser: Rule | optax.GradientTransformation,
        steps: int,
        *,
        keys: Key[Array, " runs"] | None = None,
        monitor: AbstractRisk | None = None,
        swept: bool | None = None,
        save: SavePoints = SaveAtDrops(),
        checkpoint: Checkpoint | None = None,
        stretch: int = LONGEST_STRETCH,
    ):
        if not is_whole(steps) or steps < 1:
            raise InputError("steps", steps, "must be a whole number from 1 up")
        check_parts(monitor, checkpoint)
        self._layout = layout
        self._risk = risk
        self._monitored = monitor
        self._swept = swept
        self._rule = rule_of(optimiser)
        self._steps = int(steps)
        self._save = save
        self._thinning = Thinning.of(save)
        self._checkpoint = checkpoint
        self._stretch = stretch
        self.records = Records(layout, len(vectors), self._steps)
        self._plan_looks(vectors.size)
        self._state = self._initial_state(vectors, keys)
        self._blocks = self._cut_blocks(np.diff(self._looks))

    def _plan_looks(self, numbers: int) -> None:
        """Decides at which steps the loss is looked at, and which looks are taken in one call."""
        marks = self._marks()
        # Where looks decide what is kept, more of them would make another run of it.
        longest = self._stretch if self._thinning is None else LONGEST_STRETCH
        pauses = np.arange(longest, self._steps, longest)
        self._looks = np.concatenate([[0], np.union1d(marks, pauses) if len(pauses) else marks])
        self._wanted = np.isin(self._looks, marks) | (self._thinning is not None)
        self._seen = 0  # of the looks
        # Nothing is left to do after the last look.
        self._chunks = self._cut_chunks(np.append(np.diff(self._looks), 0), numbers)

    @property
    def _reported(self) -> AbstractRisk:
        """The risk whose values are recorded."""
        return self._risk if self._monitored is None else self._monitored

    def identity(self) -> Any:
        settings = self._steps, repr(self._save), self._rule
        if self._stretch != LONGEST_STRETCH:  # runs pause elsewhere, and so do their checkpoints
            settings = *settings, self._stretch
        return self._layout, self._risk, self._monitored, self._swept, self._state, settings

    def start(self, snapshot: Snapshot | None, monitor: Monitor) -> None:
        if snapshot is not None and self._checkpoint is not None:
            with self._checkpoint.restoring():
                self.records.restore(snapshot.arrays)
                moved = with_leaves(self._state._replace(key=None), snapshot.arrays)
                self._state = moved._replace(key=self._state.key)
                self._seen = snapshot.about["seen"]
        done = -(-self._seen // self._chunks.shape[1])
        self._computed = self._compute(self._state, self._chunks[done:])

    def _compute(self, state: State, chunks: np.ndarray) -> Iterator[tuple[State, tuple]]:
        """The state after each chunk, and its record. The next chunk is already being computed
        while one is looked at."""
        parts = self._layout, self._rule, self._swept, self._thinning
        # Two chunks at most: a record is copied to this side while the next chunk is computed.
        ahead = collections.deque()
        for counts in chunks:
            risks = self._risk, self._monitored
            state, record = _advance(parts, *risks, state, counts, self._blocks)
            ahead.append((state, record))
            if len(ahead) > 1:
                yield ahead.popleft()
        if ahead:  # a run that is resumed at its end has none
            yield ahead.popleft()

    def prepare(self) -> bool:
        return self._seen < len(self._looks) and bool(self.records.running.any())

    def advance(self) -> tuple[State, tuple]:
        return next(self._computed)

    def take(self, chunk: tuple[State, tuple], monitor: Monitor) -> None:
        after, record = chunk
        records, seen, everyone = self.records, self._seen, np.arange(len(self._state.weights))
        # What the last chunk computes beyond the end is dropped.
        valid = min(self._chunks.shape[1], len(self._looks) - seen)
        clock, losses, weights, kept = (np.asarray(part)[:, :valid] for part in record)
        kept = kept & self._wanted[seen : seen + valid]
        if seen == 0:
            records.begin(everyone, losses[:, 0], weights[:, 0])
            clock, losses, weights, kept = (x[:, 1:] for x in (clock, losses, weights, kept))
        self._seen += valid
        every = np.ones(clock.shape, bool)
        points = Points(clock.astype(float), losses, weights, every, every, kept)
        if clock.shape[1]:  # the first chunk may be the first point alone
            records.add(everyone, points, everyone)
        self._state = after

    def status(self) -> Status:
        done, loss = float(self._looks[self._seen - 1]), float(self.records.last_losses[0])
        so_far = lambda: self.records.so_far(self.clock)
        return Status(done, loss, int(done), done / self._steps, so_far)

    def snapshot(self, seconds: float) -> Snapshot:
        # Keys need not be written: they do not change.
        arrays = leaves_of(self._state._replace(key=None)) | self.records.arrays()
        return Snapshot(arrays, {"seen": self._seen, "seconds": seconds})

    def statistics(self, seconds: float) -> list[dict[str, Any]]:
        count = len(self._state.weights)
        return [{"seconds": seconds, "members": count}] * count

    def _initial_state(
        self, vectors: Float[np.ndarray, "runs n"], keys: Key[Array, " runs"] | None
    ) -> State:
        count = len(vectors)
        # On vectors: an optimiser sees the weights as one array, as solvers of gradient flow do.
        optimiser = eqx.filter_vmap(self._rule.transform.init)(jnp.asarray(vectors))
        nothing = np.full(count, np.nan)  # until the first look
        thinned = None if self._thinning is None else Thinned(*[jnp.asarray(nothing)] * 4)
        keys = self._choose_keys(keys, count)
        return State(np.zeros(count, int), vectors, optimiser, keys, thinned)

    def _choose_keys(
        self, keys: Key[Array, " runs"] | None, count: int
    ) -> Key[Array, " runs"] | None:
        if self._risk.stochastic and keys is None:
            raise ValueError("This risk draws sequences: pass a random `key`.")
        if self._risk.stochastic or (self._monitored is not None and self._monitored.stochastic):
            return jr.split(jr.key(0), count) if keys is None else keys
        return None

    def _cut_chunks(self, counts: np.ndarray, numbers: int) -> np.ndarray:
        """Steps from each look to the next, as rows for one call each."""
        most = self._reported.tries_at_once or _CHUNK
        size = min(most, _CHUNK_BYTES // (8 * numbers), self._stretch // int(counts.max()))
        size = min(len(counts), max(1, size))
        # Every chunk of one shape means one compilation: chunks are made as equal as can be.
        size = -(-len(counts) // -(-len(counts) // size))
        return np.pad(counts, (0, -len(counts) % size)).reshape(-1, size)

    def _cut_blocks(self, strides: np.ndarray) -> Blocks:
        """How steps are drawn together; one by one where nothing can be drawn ahead."""
        risk, most = self._risk, 1
        if isinstance(risk, AbstractSampledRisk):
            if self._swept:
                risk = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, risk)
            state = self._state
            assert state.key is not None
            model = self._layout.model(jnp.asarray(state.weights[0]))
            most = steps_at_once(risk, model, state.key[0], len(state.weights))
        return Blocks.cut(strides, most)

    def _marks(self) -> np.ndarray:
        """The step numbers at which the loss is looked at."""
        fixed = save_times(self._save, float(self._steps))
        if fixed is None:
            # Evenly; what moved is kept.
            looks = min(self._steps, self._reported.looks)
            fixed = np.linspace(0, self._steps, looks + 1)[1:]
        elif isinstance(self._save, SaveAtTimes) and np.any(fixed != np.round(fixed)):
            raise ValueError("`save`: explicit moments of a descent must be whole step numbers.")
        # The end is always looked at, whether it is kept or not: a run goes on until there.
        marks = np.unique(np.append(np.round(fixed).astype(np.int64), self._steps))
        return marks[marks > 0]


@jit_ahead
def _advance(
    parts: tuple[Layout, Rule, bool | None, Thinning | None],
    risk: AbstractRisk,
    monitored: AbstractRisk | None,
    states: State,
    counts: Int[Array, " looks"],
    blocks: Blocks,
) -> tuple[State, tuple]:
    """Looks at the loss, then takes the next of `counts` steps; and so on."""
    layout, rule, swept, thinning = parts

    def move(state: State, gradient: AbstractModel) -> State:
        updates, memory = rule.transform.update(
            layout.vector(gradient), state.optimiser, state.weights
        )
        weights = state.weights + rule.factor * cast(Array, updates)
        return state._replace(step=state.step + 1, weights=weights, optimiser=memory)

    def chunk(risks: tuple[AbstractRisk, AbstractRisk | None], state: State):
        risk, monitored = risks

        def step_on(state: State, drawn: AbstractRisk) -> State:
            return move(state, drawn.gradient(layout.model(state.weights)))

        def one_step(_, state: State) -> State:
            key = state.fresh_key() if risk.stochastic else None
            return move(state, risk.gradient(layout.model(state.weights), key))

        def to_next_look(state: State, count: Array):
            model = layout.model(state.weights)
            if monitored is None and not risk.stochastic:
                # The loss and the gradient of one risk have most of their work in common.
                loss, gradient = risk.value_and_gradient(model)
                after = move(state, gradient)
            else:
                reported = risk if monitored is None else monitored
                loss = reported(model, _report_key(reported, state))
                if isinstance(risk, AbstractSampledRisk):
                    parts = risk, model, State.fresh_key, step_on
                    after = draw_ahead(*parts, state, count, blocks)
                    return after, (state.step, loss, state.weights)
                after = one_step(0, state)
            if not blocks.once:  # then there is no loop between looks to compile
                after = jax.lax.fori_loop(1, count, one_step, after)
            return after, (state.step, loss, state.weights)

        def look(state: State, count: Array):
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

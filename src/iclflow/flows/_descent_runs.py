"""Training in steps: at which steps the loss is evaluated, and what is computed in one call."""

import collections
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from ..errors import InputError
from ..risks import AbstractRisk, AbstractSampledRisk
from ..tasks import is_whole
from ._checkpoint import Checkpoint, Snapshot, leaves_of, with_leaves
from ._descent_program import Blocks, State, advance, steps_at_once
from ._driver import AbstractRuns
from ._members import Members
from ._options import check_parts
from ._progress import Monitor, Status
from ._records import Points, Records
from ._rules import Rule, rule_of
from ._save import SaveAtDrops, SaveAtTimes, SavePoints, Thinned, Thinning, save_times

# The most looks (evaluations of the loss) in one call: so many that the call itself costs nothing,
# so few that the progress bar moves.
_CHUNK = 1000
# Every look is recorded with all weights: the records of a call stay below 32 MiB.
_CHUNK_BYTES = 2**25
# The most steps in one call: a run can be neither stopped nor shown before the call returns.
LONGEST_STRETCH = 50_000


class DescentRuns(AbstractRuns):
    """Training of one model or of an ensemble, from one look at the loss to the next.

    **Arguments:**

    - `keys`: the random keys, one per run.
    - `monitor`: the risk whose values are recorded, if not the training risk.
    - `stretch`: the most steps in one call of the compiled program.
    """

    clock = "step"

    def __init__(
        self,
        members: Members,
        optimiser: Rule | optax.GradientTransformation,
        steps: int,
        *,
        keys: Key[Array, " runs"] | None = None,
        monitor: AbstractRisk | None = None,
        save: SavePoints = SaveAtDrops(),
        checkpoint: Checkpoint | None = None,
        stretch: int = LONGEST_STRETCH,
    ):
        if not is_whole(steps) or steps < 1:
            raise InputError("steps", steps, "must be a whole number from 1 up")
        check_parts(monitor, checkpoint)
        self._layout, self._risk, self._swept = members.layout, members.risk, members.swept
        self._monitored = monitor
        self._rule = rule_of(optimiser)
        self._steps = int(steps)
        self._save = save
        self._thinning = Thinning.of(save)
        self._checkpoint = checkpoint
        self._stretch = stretch
        vectors = self._layout.vectors(members.models)
        self.records = Records(self._layout, len(vectors), self._steps)
        self._plan_looks(vectors.size)
        self._state = self._initial_state(vectors, keys)
        self._blocks = self._cut_blocks(np.diff(self._looks))

    def _plan_looks(self, numbers: int) -> None:
        """Decides at which steps the loss is evaluated, and which looks are taken in one call."""
        marks = self._marks()
        # `SaveAtDrops` decides at every look: extra looks would change which points are kept.
        longest = self._stretch if self._thinning is None else LONGEST_STRETCH
        pauses = np.arange(longest, self._steps, longest)
        self._looks = np.concatenate([[0], np.union1d(marks, pauses) if len(pauses) else marks])
        self._wanted = np.isin(self._looks, marks) | (self._thinning is not None)
        self._seen = 0  # the number of looks so far
        # No step follows the last look.
        self._chunks = self._cut_chunks(np.append(np.diff(self._looks), 0), numbers)

    @property
    def _reported(self) -> AbstractRisk:
        """The risk whose values are recorded."""
        return self._risk if self._monitored is None else self._monitored

    def identity(self) -> Any:
        settings = self._steps, repr(self._save), self._rule
        # Another stretch pauses at other steps, and so do its checkpoints.
        if self._stretch != LONGEST_STRETCH:
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
        """The state after each chunk, and its record."""
        parts = self._layout, self._rule, self._swept, self._thinning
        # JAX returns before a chunk is computed: one is recorded while the next is computed.
        ahead = collections.deque()
        for counts in chunks:
            state, record = advance(parts, self._risk, self._monitored, state, counts, self._blocks)
            ahead.append((state, record))
            if len(ahead) > 1:
                yield ahead.popleft()
        if ahead:  # there is none if a run is resumed at its end
            yield ahead.popleft()

    def prepare(self) -> bool:
        return self._seen < len(self._looks) and bool(self.records.running.any())

    def advance(self) -> tuple[State, tuple]:
        return next(self._computed)

    def take(self, chunk: tuple[State, tuple], monitor: Monitor) -> None:
        after, record = chunk
        records, seen, everyone = self.records, self._seen, np.arange(len(self._state.weights))
        # The last chunk is padded: its looks beyond the end are dropped.
        valid = min(self._chunks.shape[1], len(self._looks) - seen)
        clock, losses, weights, kept = (np.asarray(part)[:, :valid] for part in record)
        kept = kept & self._wanted[seen : seen + valid]
        if seen == 0:
            records.begin(everyone, losses[:, 0], weights[:, 0])
            clock, losses, weights, kept = (x[:, 1:] for x in (clock, losses, weights, kept))
        self._seen += valid
        every = np.ones(clock.shape, bool)
        points = Points(clock.astype(float), losses, weights, every, every, kept)
        if clock.shape[1]:  # the first chunk may hold the first point alone
            records.add(everyone, points, everyone)
        self._state = after

    def status(self) -> Status:
        done, loss = float(self._looks[self._seen - 1]), float(self.records.last_losses[0])
        so_far = lambda: self.records.so_far(self.clock)
        words = f"step {int(done):,} of {self._steps:,}, loss {loss:.5g}"
        return Status(done, loss, int(done), done / self._steps, so_far, words)

    def snapshot(self, seconds: float) -> Snapshot:
        # Keys are part of the identity, and do not change: they are not written.
        arrays = leaves_of(self._state._replace(key=None)) | self.records.arrays()
        return Snapshot(arrays, {"seen": self._seen, "seconds": seconds})

    def statistics(self, seconds: float) -> list[dict[str, Any]]:
        count = len(self._state.weights)
        return [{"seconds": seconds, "members": count}] * count

    def _initial_state(
        self, vectors: Float[np.ndarray, "runs n"], keys: Key[Array, " runs"] | None
    ) -> State:
        count = len(vectors)
        # The optimiser sees the weights as one array, as the solvers of gradient flow do.
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
        """The steps from each look to the next, one row per call."""
        most = self._reported.tries_at_once or _CHUNK
        size = min(most, _CHUNK_BYTES // (8 * numbers), self._stretch // int(counts.max()))
        size = min(len(counts), max(1, size))
        # As equal as possible, to pad little: chunks of one shape are compiled once.
        size = -(-len(counts) // -(-len(counts) // size))
        return np.pad(counts, (0, -len(counts) % size)).reshape(-1, size)

    def _cut_blocks(self, strides: np.ndarray) -> Blocks:
        """How many steps draw their random numbers together; 1 if nothing can be drawn ahead."""
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
        """The steps at which the loss is evaluated."""
        fixed = save_times(self._save, float(self._steps))
        if fixed is None:
            # `SaveAtDrops` looks at even intervals, and keeps the points that moved.
            looks = min(self._steps, self._reported.looks)
            fixed = np.linspace(0, self._steps, looks + 1)[1:]
        elif isinstance(self._save, SaveAtTimes) and np.any(fixed != np.round(fixed)):
            raise ValueError("`save`: explicit moments of a descent must be whole step numbers.")
        # There is always a look at the end, kept or not: the run goes on until there.
        marks = np.unique(np.append(np.round(fixed).astype(np.int64), self._steps))
        return marks[marks > 0]

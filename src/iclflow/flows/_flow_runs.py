"""Gradient flows side by side: which run is in which lane, and with which solver."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ..limits import FLOW_TRIES, MAX_IMPLICIT
from ..risks import AbstractRisk
from ..runtime.precision import require_float64
from ..trajectory import Result
from ._checkpoint import Snapshot, leaves_of, with_leaves
from ._driver import AbstractRuns
from ._flow_program import Beginning, FlowProgram
from ._layout import Layout
from ._options import FlowOptions, default_atol, default_lanes
from ._progress import Monitor, Status
from ._records import Points, Records
from ._save import save_times
from ._stepper import State, is_stuck

# An explicit step costs microseconds, an implicit one factorises a matrix. On a plateau the
# explicit solver is limited by stability and needs a number of steps that grows as 1/s; the
# implicit one does not. Up to this many tries explicit is the cheaper of the two (measured at 36
# and at 153 weights).
_EXPLICIT_TRIES = 100_000
# Every try of a chunk is recorded with all weights: records of a chunk stay below 32 MiB.
_CHUNK_BYTES = 2**25
# Fewer tries per call would make the call itself the larger part of the time.
_LEAST_TRIES = 8
# The end of runs without one: no clock reads it before a run has converged or come to rest.
_FOREVER = 1e300
# Tries between two looks at an ensemble: fewer than at one run, since a free lane waits for it.
_TRIES_OF_MANY = 128
# Lanes that wait before the next runs are begun, as a share of all: beginning some costs what
# beginning all does.
_FREE_SHARE = 8
# A start at the minimum has no way down of which to take a share: this allows for rounding.
_LEAST_WAY = 1e-14


class FlowRuns(AbstractRuns):
    """One gradient flow (`swept` None), or those of an ensemble.

    An ensemble runs in lanes: where a run is over, the next one that waits takes its lane. Runs
    for which the explicit solver takes too long wait again, for the implicit one, until only such
    are left.

    **Arguments:**

    - `swept`: as in `over_members`.
    - `vectors`: the initial weights, one row per run.
    """

    clock = "time"

    def __init__(
        self,
        layout: Layout,
        risk: AbstractRisk,
        swept: bool | None,
        vectors: Float[np.ndarray, "runs n"],
        options: FlowOptions,
    ):
        require_float64("Gradient flow")
        if risk.stochastic:
            raise ValueError(
                "Gradient flow needs a risk without randomness: choose `exact` or `dataset`, or "
                "train with `sgd` or `adam`."
            )
        self._options = options
        if swept:  # on this side, since lanes are filled from it again and again
            risk = jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, risk)
        self._layout, self._risk, self._swept = layout, risk, swept
        # What was asked for; `_risk` may be a table of it, which reaches so far.
        self._given, self._reach = risk, None
        self._vectors = vectors
        self._atol = default_atol(vectors)
        if options.atol is not None:
            self._atol[:] = options.atol
        self.records = Records(layout, len(vectors), options.end)
        self._count = min(len(vectors), options.at_once or default_lanes())
        # Which runs wait, how many of them have begun, which run is in each lane (-1: none any
        # more), and which one was there last.
        self._waiting, self._begun = np.arange(len(vectors)), 0
        self._lanes = np.full(self._count, -1)
        self._held = np.zeros(self._count, int)
        self._parked: dict[int, Beginning] = {}
        self._kinds = [self._first_kind()]
        self._state: Any = None

    def identity(self) -> Any:
        plain = dataclasses.replace(self._options, checkpoint=None, callback=None, progress=None)
        settings = self._atol, self._count, repr(plain)
        return self._layout, self._given, self._swept, self._vectors, settings

    def start(self, snapshot: Snapshot | None, monitor: Monitor) -> None:
        checkpoint = self._options.checkpoint
        if snapshot is None or checkpoint is None:
            self._tabulate(self._required_reach(self._vectors), monitor)
            self._program = self._make_program()
            return
        # Checkpoints of older versions, which had no table, do not hold its reach.
        self._tabulate(snapshot.about.get("reach"), monitor)
        with checkpoint.restoring():
            self._restore(snapshot)

    def advance(self) -> tuple[State, Any]:
        state, record = self._program.advance(*self._settings(), self._state, self._tries)
        return state, self._program.by_member(record)

    def prepare(self) -> bool:
        """Gives free lanes to runs that wait; False when no run is left."""
        while True:
            left, free = len(self._waiting) - self._begun, self._lanes < 0
            if left and free.sum() >= min(left, max(1, self._count // _FREE_SHARE)):
                self._begin(np.flatnonzero(free)[:left])
            elif not free.all():
                return True
            elif self._parked and len(self._kinds) == 1:
                # Those that are left take long: with a solver whose steps stability does not limit.
                self._kinds.append("implicit")
                self._waiting, self._begun = np.asarray(sorted(self._parked)), 0
                self._state = None
                self._program = self._make_program()
            else:
                return False

    def _begin(self, lanes: np.ndarray) -> None:
        """Begins the next runs that wait, in these lanes."""
        members = self._waiting[self._begun : self._begun + len(lanes)]
        self._begun += len(members)
        self._lanes[lanes] = self._held[lanes] = members
        self._arranged = None
        parked = [self._parked.get(member) for member in self._held.tolist()]
        taken = len(self._kinds) > 1
        if taken:
            beginning = _stack([run or parked[lanes[0]] for run in parked])
        else:
            # Lanes that go on are begun again, and dropped: with one shape there is one program.
            beginning = Beginning(np.zeros(self._count), self._vectors[self._held])
        first, fresh = self._program.begin(*self._settings(), self._program.arrange(beginning))
        if self._state is None:
            self._state = fresh
        else:
            chosen = np.zeros(self._count, bool)
            chosen[lanes] = True
            self._state = self._program.replace(self._state, chosen, fresh)
        # Runs that another solver continues have begun long ago.
        if not taken:
            loss, floor, start, slope = (part[lanes] for part in self._program.by_member(first))
            targets = self._targets(floor, start)
            self.records.begin(members, loss, self._vectors[members], targets)
            rests = slope <= (self._options.gradient_tolerance or 0)
            self.records.finish(members[rests], Result.stationary)
            self._free()

    def _targets(self, floors: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        """The losses at which runs count as converged, if they end there."""
        if not self._lasting:
            return None
        if np.any(np.isnan(floors)):
            raise InputError(
                "end",
                problem="is needed, or `gradient_tolerance`",
                allowed="the smallest loss that these weights can reach is not known, so the run "
                "cannot tell when it has converged",
            )
        return floors + np.maximum(self._options.tolerance * (starts - floors), _LEAST_WAY)

    def _required_reach(self, vectors: np.ndarray) -> float | None:
        """How far a table must reach for these weights; None if the risk is to be used as it is."""
        # Swept risks would need a table each.
        return None if self._swept else self._given.table_reach(self._layout.models(vectors))

    def _tabulate(self, reach: float | None, monitor: Monitor) -> None:
        """Replaces the risk by a table of it, or by itself where `reach` is None."""
        self._reach, self._risk, self._arranged = reach, self._given, None
        if reach is None:
            return
        words = "table of integrals"
        show = lambda share: monitor.show(Status(0.0, np.nan, 0, share, words=words))
        self._risk = self._given.tabulate(reach, show)

    def _widen(self, vectors: np.ndarray, monitor: Monitor) -> bool:
        """Replaces a table whose end weights have come to by a wider one, or by the risk itself;
        returns whether it did."""
        if self._reach is None or not len(vectors):
            return False
        reach = self._required_reach(vectors)
        if reach is not None and reach <= self._reach:
            return False
        now = self._program.by_member(self._state)
        self._tabulate(reach, monitor)
        self._program = self._make_program()
        # Steps may have become too short to grow again: each run begins with one of the usual size.
        vectors = self.records.last_weights[self._held]
        there = Beginning(now.time, vectors, None, now.tried, now.thinned)
        _, self._state = self._program.begin(*self._settings(), self._program.arrange(there))
        return True

    def take(self, chunk: tuple[State, Any], monitor: Monitor) -> None:
        """Takes in a chunk, and frees the lanes of runs that are over."""
        self._state, record = chunk
        busy = np.flatnonzero(self._lanes >= 0)
        members = self._lanes[busy]
        self.records.add(members, Points(*record), busy)
        state: State = self._state
        time, lost, resting = (
            np.asarray(x)[busy] for x in (state.time, is_stuck(state), state.resting)
        )
        self.records.finish(members[(time >= _FOREVER) | resting], Result.stationary)
        running = members[self.records.running[members]]
        # At the end of a table steps become short, too.
        if not self._widen(self.records.last_weights[running], monitor):
            self.records.finish(members[lost], Result.step_underflow)
        spent = self.records.tried[members] >= self._options.max_steps
        self.records.finish(members[spent], Result.step_limit)
        self._free()
        self._park()

    def _free(self) -> None:
        held = self._lanes >= 0
        self._lanes[held & ~self.records.running[self._lanes]] = -1

    def _park(self) -> None:
        """Takes runs out of their lanes that the explicit solver would take too long for."""
        slow = (self._lanes >= 0) & (self.records.tried[self._lanes] >= _EXPLICIT_TRIES)
        if not (self._may_switch and slow.any()):
            return
        state = self._program.by_member(self._state)
        for lane in np.flatnonzero(slow):
            own = jax.tree.map(lambda x: x[lane], state)
            parked = Beginning(own.time, own.weights, own.step, own.tried, own.thinned)
            self._parked[int(self._lanes[lane])] = parked
            self._lanes[lane] = -1

    @property
    def _lasting(self) -> bool:
        """Whether runs end when they have converged."""
        return self._options.end is None and self._options.gradient_tolerance is None

    @property
    def _may_switch(self) -> bool:
        wanted = self._options.solver == "auto" and self._kinds[-1] == "explicit"
        return wanted and self._layout.size <= MAX_IMPLICIT

    def _first_kind(self) -> str:
        # Where gradients are all that counts, an implicit step costs no more than two explicit.
        if self._options.solver == "auto":
            small = self._layout.size <= MAX_IMPLICIT
            implicit = self._risk.costly or self._risk.stiff
            return "implicit" if implicit and small else "explicit"
        return self._options.solver

    def _make_program(self) -> FlowProgram:
        options = self._options
        fixed = save_times(options.save, options.end)
        end = _FOREVER if options.end is None else options.end
        stops = np.append(() if fixed is None else fixed[fixed < end], end)
        self._arranged = None
        most = FLOW_TRIES if self._swept is None else _TRIES_OF_MANY
        numbers = self._count * self._layout.size
        self._tries = max(_LEAST_TRIES, min(most, _CHUNK_BYTES // (8 * numbers)))
        # Risks that take seconds say how soon they want to be shown.
        self._tries = min(self._tries, self._risk.tries_at_once or self._tries)
        return FlowProgram(
            self._layout, self._kinds[-1], self._count, self._swept, stops, options.save,
            options.rtol, options.gradient_tolerance, options.max_steps, self._risk.costly,
            self._lasting, self._reach is not None,
        )  # fmt: skip

    def _settings(self) -> tuple[Any, Any]:
        """The risk and the absolute tolerance of every lane."""
        if self._arranged is None:
            risk, atol = self._risk, self._atol[self._held]
            if self._swept:
                arrays, rest = eqx.partition(risk, eqx.is_array)
                held = jax.tree.map(lambda x: x[self._held], arrays)
                risk = eqx.combine(self._program.arrange(held), rest)
            self._arranged = jax.tree.map(
                lambda x: jax.numpy.asarray(x) if eqx.is_array(x) else x, (risk, atol)
            )
        return self._arranged

    def snapshot(self, seconds: float) -> Snapshot:
        arrays = leaves_of(self._state) | self.records.arrays()
        arrays |= {f"lanes.{name}": values for name, values in self._places().items()}
        if self._parked:
            stacked = _stack(list(self._parked.values()))
            arrays |= leaves_of(stacked, "parked")
            arrays["parked.members"] = np.asarray(list(self._parked))
        arrays["waiting"] = self._waiting
        about = {"kinds": self._kinds, "begun": self._begun, "seconds": seconds}
        about["reach"] = self._reach
        return Snapshot(arrays, about)

    def _restore(self, snapshot: Snapshot) -> None:
        arrays = snapshot.arrays
        self._kinds, self._begun = snapshot.about["kinds"], snapshot.about["begun"]
        self._waiting = arrays["waiting"]
        self.records.restore(arrays)
        for name, values in self._places().items():
            values[...] = arrays[f"lanes.{name}"]
        self._program = self._make_program()
        self._state = with_leaves(self._blank(), arrays)
        if "parked.members" in arrays:
            members = arrays["parked.members"]
            state = self._program.by_member(self._state)
            like = Beginning(state.time, state.weights, state.step, state.tried, state.thinned)
            found = with_leaves(like, arrays, "parked")
            for i, member in enumerate(members.tolist()):
                self._parked[member] = jax.tree.map(lambda x: np.asarray(x)[i], found)

    def _places(self) -> dict[str, np.ndarray]:
        return {"members": self._lanes, "held": self._held}

    def _blank(self) -> State:
        """A state of the right structure."""
        nothing = Beginning(np.zeros(self._count), self._vectors[self._held])
        begin = self._program.begin
        return eqx.filter_eval_shape(begin, *self._settings(), self._program.arrange(nothing))[1]

    def statistics(self, seconds: float) -> list[dict[str, Any]]:
        count, kinds = len(self._vectors), self._kinds
        common = {"rtol": self._options.rtol, "seconds": seconds, "members": count}
        return [
            {"solver": " then ".join(kinds if i in self._parked else kinds[:1]), "atol": atol}
            | common
            | {"steps": steps, "rejected": rejected}
            for i, (atol, steps, rejected) in enumerate(
                zip(
                    self._atol.tolist(),
                    self.records.steps.tolist(),
                    self.records.rejected.tolist(),
                )
            )
        ]

    def status(self) -> Status:
        busy = np.flatnonzero(self._lanes >= 0)
        running, end = self.records.running, self._options.end
        shown = busy if len(busy) else np.arange(self._count)
        times = np.asarray(self._state.time)
        clock = float(times[shown].min())
        fraction = 1 - running.sum() / len(running)
        # Of many runs the share that is over says more than any clock.
        if end is not None and len(running) == 1:
            fraction = max(fraction, clock / end)
        known = end is not None or len(running) > 1
        loss = float(self.records.last_losses[self._held[shown[0]]])
        tried = int(self.records.tried.sum())
        so_far = lambda: self.records.so_far("time")
        return Status(clock, loss, tried, float(fraction) if known else None, so_far)


def _stack(runs: list[Beginning]) -> Beginning:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

"""Gradient flows side by side: which run is in which lane, and with which solver."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import InputError
from ..limits import FLOW_TRIES, MAX_IMPLICIT
from ..runtime.precision import require_float64
from ..trajectory import Result
from ._checkpoint import Snapshot, leaves_of, with_leaves
from ._driver import AbstractRuns
from ._flow_program import FOREVER, Beginning, FlowProgram
from ._members import Members
from ._options import FlowOptions, default_atol, default_lanes
from ._progress import Monitor, Status
from ._records import Points, Records
from ._stepper import State, is_stuck

# An explicit step costs microseconds, an implicit one factorises a matrix. On a plateau the
# explicit solver is limited by stability and needs a number of steps that grows as 1/s; the
# implicit one does not. Up to this many tries explicit is the cheaper of the two (measured at 36
# and at 153 weights).
_EXPLICIT_TRIES = 100_000
# Every try of a chunk is recorded with all weights: the records of a chunk stay below 32 MiB.
_CHUNK_BYTES = 2**25
# With fewer tries per call, the call itself would take most of the time.
_LEAST_TRIES = 8
# Tries per call of an ensemble: fewer than of a single run, because lanes are refilled in between.
_TRIES_OF_MANY = 128
# Lanes are refilled when this fraction of them (1/8) is free: beginning a few runs costs as much as
# beginning all.
_FREE_SHARE = 8
# Changes with every version whose program gives other bits: checkpoints of before are refused.
_BITS = 2
# A run that starts at its minimum has no way down to take a share of: this allows for rounding.
_LEAST_WAY = 1e-14


class FlowRuns(AbstractRuns):
    """One gradient flow, or those of an ensemble.

    An ensemble runs in lanes: when a run ends, the next waiting run takes its lane. Runs that take
    the explicit solver too long are parked. When only parked runs are left, the implicit solver
    continues them.
    """

    clock = "time"

    def __init__(self, members: Members, options: FlowOptions):
        require_float64("Gradient flow")
        risk, swept = members.risk, members.swept
        if risk.stochastic:
            raise ValueError(
                "Gradient flow needs a risk without randomness: choose `exact` or `dataset`, or "
                "train with `sgd` or `adam`."
            )
        self._options = options
        if swept:  # in NumPy, because lanes are filled from it again and again
            risk = jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, risk)
        self._layout, self._risk, self._swept = members.layout, risk, swept
        # `_risk` may be a table of the given risk, and `_reach` is how far that table reaches.
        self._given, self._reach = risk, None
        self._vectors = vectors = self._layout.vectors(members.models)
        self._atol = default_atol(vectors)
        if options.atol is not None:
            self._atol[:] = options.atol
        self.records = Records(self._layout, len(vectors), options.end)
        self._count = min(len(vectors), options.at_once or default_lanes())
        # The queue of runs, and how many of them have begun.
        self._waiting, self._begun = np.arange(len(vectors)), 0
        # The run in each lane (-1: the lane is free), and the run that was there last.
        self._lanes = np.full(self._count, -1)
        self._held = np.zeros(self._count, int)
        self._parked: dict[int, Beginning] = {}
        self._kinds = [self._first_kind()]
        self._state: Any = None

    def identity(self) -> Any:
        plain = dataclasses.replace(self._options, checkpoint=None, callback=None, progress=None)
        settings = self._atol, self._count, repr(plain), _BITS
        return self._layout, self._given, self._swept, self._vectors, settings

    def start(self, snapshot: Snapshot | None, monitor: Monitor) -> None:
        checkpoint = self._options.checkpoint
        if snapshot is None or checkpoint is None:
            self._tabulate(self._required_reach(self._vectors), monitor)
            self._make_program()
            return
        # Older versions had no table: their checkpoints do not hold its reach.
        self._tabulate(snapshot.about.get("reach"), monitor)
        with checkpoint.restoring():
            self._restore(snapshot)

    def advance(self) -> tuple[State, Any]:
        state, record = self._program.advance(*self._settings(), self._state, self._tries)
        return state, self._program.by_member(record)

    def prepare(self) -> bool:
        """Gives free lanes to waiting runs; False when no run is left."""
        while True:
            left, free = len(self._waiting) - self._begun, self._lanes < 0
            if left and free.sum() >= min(left, max(1, self._count // _FREE_SHARE)):
                self._begin(np.flatnonzero(free)[:left])
            elif not free.all():
                return True
            elif self._parked and len(self._kinds) == 1:
                # Only slow runs are left: stability does not limit the implicit solver.
                self._kinds.append("implicit")
                self._waiting, self._begun = np.asarray(sorted(self._parked)), 0
                self._state = None
                self._make_program()
            else:
                return False

    def _begin(self, lanes: np.ndarray) -> None:
        """Begins the next waiting runs in these lanes."""
        members = self._waiting[self._begun : self._begun + len(lanes)]
        self._begun += len(members)
        self._lanes[lanes] = self._held[lanes] = members
        self._arranged = None
        parked = [self._parked.get(member) for member in self._held.tolist()]
        taken = len(self._kinds) > 1
        if taken:
            beginning = _stack([run or parked[lanes[0]] for run in parked])
        else:
            # All lanes begin, and busy ones are dropped below: one shape compiles one program.
            beginning = Beginning(np.zeros(self._count), self._vectors[self._held])
        first, fresh = self._program.begin(*self._settings(), self._program.arrange(beginning))
        if self._state is None:
            self._state = fresh
        else:
            chosen = np.zeros(self._count, bool)
            chosen[lanes] = True
            self._state = self._program.replace(self._state, chosen, fresh)
        if not taken:  # parked runs have their first point already
            loss, floor, start, slope = (part[lanes] for part in self._program.by_member(first))
            targets = self._targets(floor, start)
            self.records.begin(members, loss, self._vectors[members], targets)
            rests = slope <= (self._options.gradient_tolerance or 0)
            self.records.finish(members[rests], Result.stationary)
            self._free()

    def _targets(self, floors: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        """The losses at which runs have converged; None if they end otherwise."""
        if not self._options.ends_by_loss:
            return None
        if np.any(np.isnan(floors)):
            raise InputError(
                "end",
                problem="is needed",
                allowed="the smallest loss that these weights can reach is not known, so the run "
                "cannot tell when it has converged",
            )
        return floors + np.maximum(self._options.tolerance * (starts - floors), _LEAST_WAY)

    def _required_reach(self, vectors: np.ndarray) -> float | None:
        """How far a table must reach for these weights; None if no table pays off."""
        # Swept risks would need one table each.
        return None if self._swept else self._given.table_reach(self._layout.models(vectors))

    def _tabulate(self, reach: float | None, monitor: Monitor) -> None:
        """Replaces the risk by a table of it; if `reach` is None, by the given risk."""
        self._reach, self._risk, self._arranged = reach, self._given, None
        if reach is None:
            return
        words = "table of integrals"
        show = lambda share: monitor.show(Status(0.0, np.nan, 0, share, words=words))
        self._risk = self._given.tabulate(reach, show)

    def _widen(self, vectors: np.ndarray, monitor: Monitor) -> bool:
        """Replaces the table if these weights have left it; returns whether it did."""
        if self._reach is None or not len(vectors):
            return False
        reach = self._required_reach(vectors)
        if reach is not None and reach <= self._reach:
            return False
        now = self._program.by_member(self._state)
        self._tabulate(reach, monitor)
        self._make_program()
        # Steps near the end of a table may be too short to grow again: new ones are chosen.
        vectors = self.records.last_weights[self._held]
        there = Beginning(now.time, vectors, None, now.tried, now.thinned)
        _, self._state = self._program.begin(*self._settings(), self._program.arrange(there))
        return True

    def take(self, chunk: tuple[State, Any], monitor: Monitor) -> None:
        """Records a chunk, and frees the lanes of runs that have ended."""
        self._state, record = chunk
        busy = np.flatnonzero(self._lanes >= 0)
        members = self._lanes[busy]
        self.records.add(members, Points(*record), busy)
        state: State = self._state
        time, lost, resting = (
            np.asarray(x)[busy] for x in (state.time, is_stuck(state), state.resting)
        )
        self.records.finish(members[(time >= FOREVER) | resting], Result.stationary)
        running = members[self.records.running[members]]
        # Steps also become short at the end of a table: then the run is not stuck.
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
        """Takes runs that the explicit solver is too slow for out of their lanes."""
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
    def _may_switch(self) -> bool:
        wanted = self._options.solver == "auto" and self._kinds[-1] == "explicit"
        return wanted and self._layout.size <= MAX_IMPLICIT

    def _first_kind(self) -> str:
        # If gradients take most of the time, an implicit step costs no more than two explicit ones.
        if self._options.solver == "auto":
            small = self._layout.size <= MAX_IMPLICIT
            implicit = self._risk.costly or self._risk.stiff
            return "implicit" if implicit and small else "explicit"
        return self._options.solver

    def _make_program(self) -> None:
        """Builds the program for the present solver and risk."""
        self._arranged = None
        most = FLOW_TRIES if self._swept is None else _TRIES_OF_MANY
        numbers = self._count * self._layout.size
        self._tries = max(_LEAST_TRIES, min(most, _CHUNK_BYTES // (8 * numbers)))
        # Risks that take seconds set a smaller number, so that the bar moves.
        self._tries = min(self._tries, self._risk.tries_at_once or self._tries)
        kind, costly, widens = self._kinds[-1], self._risk.costly, self._reach is not None
        parts = self._layout, self._options, kind, self._count, self._swept, costly, widens
        self._program = FlowProgram.build(*parts)

    def _settings(self) -> tuple[Any, Any]:
        """The risk and the absolute tolerance of every lane, arranged once."""
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
        self._make_program()
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
        """A state of the right structure, without values."""
        nothing = Beginning(np.zeros(self._count), self._vectors[self._held])
        first = self._program.first
        return eqx.filter_eval_shape(first, *self._settings(), self._program.arrange(nothing))[1]

    def statistics(self, seconds: float) -> list[dict[str, Any]]:
        count, kinds = len(self._vectors), self._kinds
        common = {"rtol": self._options.rtol, "seconds": seconds, "members": count}
        numbers = self._atol, self.records.steps, self.records.rejected
        return [
            {"solver": " then ".join(kinds if i in self._parked else kinds[:1]), "atol": atol}
            | common
            | {"steps": steps, "rejected": rejected}
            for i, (atol, steps, rejected) in enumerate(zip(*(x.tolist() for x in numbers)))
        ]

    def status(self) -> Status:
        busy = np.flatnonzero(self._lanes >= 0)
        running, end = self.records.running, self._options.end
        shown = busy if len(busy) else np.arange(self._count)
        times = np.asarray(self._state.time)
        clock = float(times[shown].min())
        fraction = 1 - running.sum() / len(running)
        # For many runs the share that has ended says more than any clock.
        if end is not None and len(running) == 1:
            fraction = max(fraction, clock / end)
        known = end is not None or len(running) > 1
        loss = float(self.records.last_losses[self._held[shown[0]]])
        tried = int(self.records.tried.sum())
        so_far = lambda: self.records.so_far(self.clock)
        return Status(clock, loss, tried, float(fraction) if known else None, so_far)


def _stack(runs: list[Beginning]) -> Beginning:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

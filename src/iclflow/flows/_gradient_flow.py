"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..models import AbstractModel
from ..precision import require_float64
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory
from ._checkpoint import Snapshot, leaves_of, owner_of, with_leaves
from ._ensemble import Ensemble, Members
from ._flow_program import Beginning, FlowProgram
from ._layout import Layout
from ._options import FlowOptions, check_model_and_risk, flow_options
from ._progress import Monitor, Status
from ._records import Points, Records
from ._save import save_times
from ._stepper import State, stuck

# An explicit step costs microseconds, an implicit one factorises a matrix. On a plateau the
# explicit solver is limited by stability and needs a number of steps that grows as 1/s; the
# implicit one does not. Up to this many tries explicit is the cheaper of the two (measured at 36
# and at 153 weights), and beyond this size of state a factorisation never pays.
_EXPLICIT_TRIES = 100_000
_LARGEST_IMPLICIT = 512
_CHUNK_BYTES = 2**25
_FOREVER = 1e300
# Tries between two looks at a run; of an ensemble fewer, since a lane that is free waits for it.
_TRIES, _TRIES_OF_MANY = 512, 128
# How many runs of an ensemble go on side by side: their state should stay in a processor's cache.
_LANES, _LANES_OF_CARD = 64, 4096
# Lanes that wait before the next runs are begun, as a share of all: beginning some costs what
# beginning all does.
_FREE_SHARE = 8
# Weights that start at nothing have no size of their own to take a share of: then that of learned
# ones counts, which is of order one and known to 1e-16.
_ATOL_FROM_ZERO = 1e-14
_SMALLEST_ATOL = 1e-24


def gradient_flow(model: AbstractModel, risk: AbstractRisk, **options) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `options`: the fields of `FlowOptions`: `end`, `gradient_tolerance`, `save`, `solver`,
      `rtol`, `atol`, `tolerance`, `max_steps`, `progress`, `callback`, `checkpoint`; of an
      ensemble also `at_once`.
    """
    check_model_and_risk(model, risk)
    layout = Layout.of(model)
    driver = _Driver(layout, risk, None, layout.vectors(model), flow_options(**options))
    return driver.run("gradient flow")[0]


def gradient_flow_ensemble(models, risks, **options) -> Ensemble:
    """Gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one a model (swept tasks).
    - `options`: the fields of `FlowOptions`.
    """
    members = Members.of(models, risks)
    layout = Layout.of(members.first)
    vectors = layout.vectors(members.models)
    driver = _Driver(layout, members.risk, members.swept_risk, vectors, flow_options(**options))
    return driver.run(f"{members.count} gradient flows")


class _Driver:
    """Loops over chunks, on one run (`swept` None) or on an ensemble.

    An ensemble runs in lanes: where a run is over, the next one that waits takes its lane. Runs
    for which the explicit solver takes too long wait again, for the implicit one, until only such
    are left.
    """

    def __init__(self, layout: Layout, risk, swept: bool | None, vectors, options: FlowOptions):
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
        self._atol = _default_atol(vectors)
        if options.atol is not None:
            self._atol[:] = options.atol
        self._records = Records(layout, len(vectors), options.end)
        self._count = min(len(vectors), options.at_once or _default_lanes())
        # Which runs wait, how many of them have begun, who is in each lane (-1: nobody any more),
        # and who was there last.
        self._waiting, self._begun = np.arange(len(vectors)), 0
        self._lanes = np.full(self._count, -1)
        self._held = np.zeros(self._count, int)
        self._parked: dict[int, Beginning] = {}
        self._kinds = [self._first_kind()]
        self._state: Any = None

    def run(self, title: str) -> Ensemble:
        options, records = self._options, self._records
        monitor = Monitor(title, options.progress, options.callback)
        snapshot = self._found()
        # Until all of a chunk is taken in, there is nothing to go on from.
        whole = False
        try:
            if snapshot is None:
                self._tabulate(self._needed_reach(self._vectors), monitor)
                self._program = self._make_program()
            else:
                assert options.checkpoint is not None
                with options.checkpoint.restoring():
                    monitor.add(snapshot.about["seconds"])
                    reach = snapshot.about.get("reach")  # not in older ones, which had no table
                self._tabulate(reach, monitor)
                with options.checkpoint.restoring():
                    self._restore(snapshot)
            while True:
                whole = False
                if not self._fill():
                    break
                whole = True
                state, record = self._program.advance(*self._settings(), self._state, self._tries)
                record = self._program.by_member(record)
                whole = False
                self._state = state
                self._take(Points(*record), monitor)
                whole = True
                going = monitor.update(self._status())
                if options.checkpoint is not None and (options.checkpoint.due or not going):
                    options.checkpoint.save(self._snapshot(monitor.seconds))
                if not going:  # only now: a run that is taken up again has not been cancelled
                    break
        except KeyboardInterrupt:
            if not records.begun:
                raise
            if options.checkpoint is not None and whole:
                options.checkpoint.save(self._snapshot(monitor.seconds))
        finally:
            monitor.close()
        records.finish(np.flatnonzero(records.running), Result.cancelled)
        return Ensemble(records.series("time", self._statistics(monitor.seconds)))

    def _fill(self) -> bool:
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
            beginning = _stacked([run or parked[lanes[0]] for run in parked])
        else:
            beginning = Beginning(np.zeros(self._count), self._vectors[self._held])
        first, fresh = self._program.begin(*self._settings(), self._program.arrange(beginning))
        if self._state is None:
            self._state = fresh
        else:
            chosen = np.zeros(self._count, bool)
            chosen[lanes] = True
            self._state = self._program.replaced(self._state, chosen, fresh)
        if not taken:
            loss, floor, start, slope = (part[lanes] for part in self._program.by_member(first))
            targets = self._targets(floor, start)
            self._records.begin(members, loss, self._vectors[members], targets)
            rests = slope <= (self._options.gradient_tolerance or 0)
            self._records.finish(members[rests], Result.stationary)
            self._free()

    def _targets(self, floors: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        """The losses at which runs count as converged, if they end there."""
        if not self._lasting:
            return None
        if np.any(np.isnan(floors)):
            raise ValueError(
                "`end` is needed, or `gradient_tolerance`: the smallest loss that these weights "
                "can reach is not known, so the run cannot tell when it has converged."
            )
        # A start at the minimum has no way down of which to take a share: allow for rounding.
        return floors + np.maximum(self._options.tolerance * (starts - floors), 1e-14)

    def _needed_reach(self, vectors: np.ndarray) -> float | None:
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
        self._risk = self._given.tabulated(reach, show)

    def _widened(self, vectors: np.ndarray, monitor: Monitor) -> bool:
        """Whether weights have come to the end of the table; then there is a wider one now, or
        none."""
        if self._reach is None or not len(vectors):
            return False
        reach = self._needed_reach(vectors)
        if reach is not None and reach <= self._reach:
            return False
        now = self._program.by_member(self._state)
        self._tabulate(reach, monitor)
        self._program = self._make_program()
        # Steps may have become too short to grow again: each run begins with one of the usual size.
        vectors = self._records.last_weights[self._held]
        there = Beginning(now.time, vectors, None, now.tried, now.thinned)
        _, self._state = self._program.begin(*self._settings(), self._program.arrange(there))
        return True

    def _take(self, points: Points, monitor: Monitor) -> None:
        """Takes in a chunk, and frees the lanes of runs that are over."""
        busy = np.flatnonzero(self._lanes >= 0)
        members = self._lanes[busy]
        self._records.add(members, points, busy)
        state: State = self._state
        time, lost, resting = (
            np.asarray(x)[busy] for x in (state.time, stuck(state), state.resting)
        )
        self._records.finish(members[(time >= _FOREVER) | resting], Result.stationary)
        running = members[self._records.running[members]]
        # At the end of a table steps become short, too.
        if not self._widened(self._records.last_weights[running], monitor):
            self._records.finish(members[lost], Result.step_underflow)
        spent = self._records.tried[members] >= self._options.max_steps
        self._records.finish(members[spent], Result.step_limit)
        self._free()
        self._park()

    def _free(self) -> None:
        held = self._lanes >= 0
        self._lanes[held & ~self._records.running[self._lanes]] = -1

    def _park(self) -> None:
        """Takes runs out of their lanes that the explicit solver would take too long for."""
        slow = (self._lanes >= 0) & (self._records.tried[self._lanes] >= _EXPLICIT_TRIES)
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
        return wanted and self._layout.size <= _LARGEST_IMPLICIT

    def _first_kind(self) -> str:
        # Where gradients are all that counts, an implicit step costs no more than two explicit.
        if self._options.solver == "auto":
            small = self._layout.size <= _LARGEST_IMPLICIT
            implicit = self._risk.costly or self._risk.stiff
            return "implicit" if implicit and small else "explicit"
        return self._options.solver

    def _make_program(self) -> FlowProgram:
        options = self._options
        fixed = save_times(options.save, options.end)
        end = _FOREVER if options.end is None else options.end
        stops = np.append(() if fixed is None else fixed[fixed < end], end)
        self._arranged = None
        most = _TRIES if self._swept is None else _TRIES_OF_MANY
        numbers = self._count * self._layout.size
        self._tries = max(8, min(most, _CHUNK_BYTES // (8 * numbers)))
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

    def _found(self) -> Snapshot | None:
        """Where this run stood when it was stopped, if it was."""
        options = self._options
        if options.checkpoint is None:
            return None
        plain = dataclasses.replace(options, checkpoint=None, callback=None, progress=None)
        settings = self._atol, self._count, repr(plain)
        parts = self._layout, self._given, self._swept, self._vectors, settings
        return options.checkpoint.load(owner_of(parts))

    def _snapshot(self, seconds: float) -> Snapshot:
        arrays = leaves_of(self._state) | self._records.arrays()
        arrays |= {f"lanes.{name}": values for name, values in self._places().items()}
        if self._parked:
            stacked = _stacked(list(self._parked.values()))
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
        self._records.restore(arrays)
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

    def _statistics(self, seconds: float) -> list[dict]:
        count, kinds = len(self._vectors), self._kinds
        common = {"rtol": self._options.rtol, "seconds": seconds, "members": count}
        return [
            {"solver": " then ".join(kinds if i in self._parked else kinds[:1]), "atol": atol}
            | common
            | {"steps": steps, "rejected": rejected}
            for i, (atol, steps, rejected) in enumerate(
                zip(
                    self._atol.tolist(),
                    self._records.steps.tolist(),
                    self._records.rejected.tolist(),
                )
            )
        ]

    def _status(self) -> Status:
        busy = np.flatnonzero(self._lanes >= 0)
        running, end = self._records.running, self._options.end
        shown = busy if len(busy) else np.arange(self._count)
        times = np.asarray(self._state.time)
        clock = float(times[shown].min())
        fraction = 1 - running.sum() / len(running)
        if end is not None and len(running) == 1:
            fraction = max(fraction, clock / end)
        known = end is not None or len(running) > 1
        loss = float(self._records.last_losses[self._held[shown[0]]])
        tried = int(self._records.tried.sum())
        so_far = lambda: self._records.so_far("time")
        return Status(clock, loss, tried, float(fraction) if known else None, so_far)


def _default_lanes() -> int:
    return _LANES if jax.default_backend() == "cpu" else _LANES_OF_CARD


def _default_atol(vectors: np.ndarray) -> np.ndarray:
    """A share of the size of the weights of each run: on a plateau small ones are what matters."""
    largest = np.max(np.abs(vectors), axis=1, initial=0)
    scaled = vectors / np.where(largest > 0, largest, 1)[:, None]  # squares of huge ones overflow
    sizes = largest * np.sqrt(np.mean(scaled**2, axis=1))
    # Rounded to a decade: a number that reads well in the statistics of a run. (NumPy's own powers
    # of ten are off by a bit.)
    orders = np.floor(np.log10(1e-9 * np.where(sizes > 0, sizes, 1.0)))
    decades = np.asarray([10.0**order for order in orders.tolist()])
    return np.where(sizes > 0, np.maximum(decades, _SMALLEST_ATOL), _ATOL_FROM_ZERO)


def _stacked(runs: list[Beginning]) -> Beginning:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

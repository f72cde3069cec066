"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

import dataclasses

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..models import AbstractModel
from ..precision import require_float64
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory
from ._checkpoint import owner_of, packed, unpack, with_leaves
from ._ensemble import Ensemble, Members, over_members
from ._layout import Layout
from ._options import FlowOptions, check_model_and_risk, flow_options
from ._progress import Monitor, Status
from ._recorder import Recorder, Snapshot
from ._rodas5p import Rodas5P
from ._save import save_times
from ._stepper import State, Stepper, stuck
from ._tsit5 import Tsit5

# An explicit step costs microseconds, an implicit one factorises a matrix. On a plateau the
# explicit solver is limited by stability and needs a number of steps that grows as 1/s; the
# implicit one does not. Up to this many tries explicit is the cheaper of the two (measured at 36
# and at 153 weights), and beyond this size of state a factorisation never pays.
_EXPLICIT_TRIES = 100_000
_LARGEST_IMPLICIT = 512
_CHUNK_BYTES = 2**25
_FOREVER = 1e300
# Weights that start at nothing have no size of their own to take a share of: then that of learned
# ones counts, which is of order one and known to 1e-16.
_ATOL_FROM_ZERO = 1e-14
_SMALLEST_ATOL = 1e-24


def gradient_flow(model: AbstractModel, risk: AbstractRisk, **options) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `options`: the fields of `FlowOptions`: `end`, `gradient_tolerance`, `save`, `solver`,
      `rtol`, `atol`, `tolerance`, `max_steps`, `progress`, `callback`, `checkpoint`.
    """
    check_model_and_risk(model, risk)
    driver = _Driver(Layout.of(model), risk, None, flow_options(**options), "gradient flow")
    return driver.run(driver.layout.vector(model)[None])[0]


def gradient_flow_ensemble(models, risks, **options) -> Ensemble:
    """Gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one a model (swept tasks).
    - `options`: the fields of `FlowOptions`.
    """
    members = Members.of(models, risks)
    layout = Layout.of(members.first)
    title = f"{members.count} gradient flows"
    driver = _Driver(layout, members.risk, members.swept_risk, flow_options(**options), title)
    return Ensemble(tuple(driver.run(eqx.filter_vmap(layout.vector)(members.models))))


class _Driver:
    """Loops over chunks, on one run (`swept` None) or on an ensemble."""

    def __init__(self, layout: Layout, risk: AbstractRisk, swept, options: FlowOptions, title: str):
        require_float64("Gradient flow")
        if risk.stochastic:
            raise ValueError(
                "Gradient flow needs a risk without randomness: choose `exact` or `dataset`, or "
                "train with `sgd` or `adam`."
            )
        self.layout = layout
        self._risk = risk
        self._swept = swept
        self._options = options
        self._monitor = Monitor(title, options.progress, options.callback)

    def run(self, vectors) -> list[Trajectory]:
        options = self._options
        recorders, slopes = self._recorders(vectors)
        atol = _default_atol(vectors) if options.atol is None else options.atol
        fixed = save_times(options.save, options.end)
        end = _FOREVER if options.end is None else options.end
        stops = np.append(() if fixed is None else fixed[fixed < end], end)
        kind = self._first_kind()
        tried = 0
        solvers = [kind]
        # What the usual heuristic for a first step starts from; all of it takes two gradients.
        first = 0.02 * np.linalg.norm(vectors, axis=1) / np.maximum(slopes, 1e-300)
        first = jnp.asarray(np.clip(first, 1e-6, 1e6)) if kind == "implicit" else None
        snapshot = self._found(vectors, atol)
        if snapshot is not None:
            unpack(recorders, snapshot)
            tried, solvers = snapshot.about["tried"], snapshot.about["solvers"]
            kind = solvers[-1]
            self._monitor.add(snapshot.about["seconds"])
        stepper, state = self._begin(kind, atol, jnp.zeros(len(vectors)), vectors, first)
        if snapshot is not None:
            state = with_leaves(state, snapshot.arrays)
        size = max(8, min(512, _CHUNK_BYTES // (8 * vectors.size)))
        size = min(size, self._risk.tries_at_once or size)
        whole = True
        try:
            while any(recorder.result is None for recorder in recorders):
                state, record = _advance(stepper, self._swept, self._risk, state, stops, size)
                record = jax.tree.map(np.asarray, record)
                # Until all of this chunk is taken in, there is nothing to go on from.
                whole = False
                tried += size
                for i, recorder in enumerate(recorders):
                    recorder.add_tries(
                        record.accepted[i], record.time[i], record.loss[i], record.weights[i]
                    )
                self._stop_where_hopeless(recorders, state, tried)
                if kind == "explicit" and self._should_switch(tried):
                    kind = "implicit"
                    solvers.append(kind)
                    stepper, state = self._begin(kind, atol, state.time, state.weights, state.step)
                whole = True
                going = self._monitor.update(self._status(recorders, state, tried))
                if options.checkpoint is not None and (options.checkpoint.due or not going):
                    options.checkpoint.save(self._snapshot(recorders, state, tried, solvers))
                if not going:  # only now: a run that is taken up again has not been cancelled
                    _finish(recorders, Result.cancelled)
        except KeyboardInterrupt:
            if options.checkpoint is not None and whole:
                options.checkpoint.save(self._snapshot(recorders, state, tried, solvers))
            _finish(recorders, Result.cancelled)
        finally:
            self._monitor.close()
        statistics = {
            "solver": " then ".join(solvers),
            "rtol": self._options.rtol,
            "atol": atol,
            "seconds": self._monitor.seconds,
            "members": len(recorders),
        }
        return [
            recorder.trajectory(
                "time", statistics | {"steps": recorder.steps, "rejected": recorder.rejected}
            )
            for recorder in recorders
        ]

    def _found(self, vectors, atol: float) -> Snapshot | None:
        """Where this run stood when it was stopped, if it was."""
        options = self._options
        if options.checkpoint is None:
            return None
        plain = dataclasses.replace(options, checkpoint=None, callback=None, progress=None)
        parts = self.layout, self._risk, self._swept, np.asarray(vectors), atol, repr(plain)
        return options.checkpoint.load(owner_of(parts))

    def _snapshot(self, recorders, state: State, tried: int, solvers: list[str]) -> Snapshot:
        seconds = self._monitor.seconds
        return packed(recorders, state, tried=tried, solvers=solvers, seconds=seconds)

    def _recorders(self, vectors) -> tuple[list[Recorder], np.ndarray]:
        """What keeps each run, and ‖∂L/∂W‖ at its start."""
        measured = _measure(self.layout, self._swept, self._risk, vectors)
        losses, floors, starts, slopes = (np.asarray(values).tolist() for values in measured)
        lasting = self._options.end is None and self._options.gradient_tolerance is None
        if lasting and np.any(np.isnan(floors)):
            raise ValueError(
                "`end` is needed, or `gradient_tolerance`: the smallest loss that these weights "
                "can reach is not known, so the run cannot tell when it has converged."
            )
        targets = [None] * len(losses)
        if lasting:
            # A start at the minimum has no way down of which to take a share: allow for rounding.
            targets = [
                f + max(self._options.tolerance * (l - f), 1e-14) for l, f in zip(starts, floors)
            ]
        recorders = [
            Recorder(self.layout, self._options.save, loss, vector, self._options.end, target)
            for vector, loss, target in zip(np.asarray(vectors), losses, targets)
        ]
        for recorder, slope in zip(recorders, slopes):
            if slope <= (self._options.gradient_tolerance or 0):
                recorder.finish(Result.stationary)
        return recorders, np.asarray(slopes)

    def _begin(self, kind: str, atol: float, times, vectors, step) -> tuple[Stepper, State]:
        rest = self._options.gradient_tolerance
        rest = None if rest is None else jnp.asarray(rest)
        stepper = Stepper(*_solver(kind, self._options.rtol, atol), self.layout, rest)
        return stepper, _start(stepper, self._swept, self._risk, times, vectors, step)

    def _first_kind(self) -> str:
        # Where gradients are all that counts, an implicit step costs no more than two explicit.
        if self._options.solver == "auto":
            small = self.layout.size <= _LARGEST_IMPLICIT
            return "implicit" if self._risk.costly and small else "explicit"
        return self._options.solver

    def _should_switch(self, tried: int) -> bool:
        wanted = self._options.solver == "auto" and tried >= _EXPLICIT_TRIES
        return wanted and self.layout.size <= _LARGEST_IMPLICIT

    def _stop_where_hopeless(self, recorders, state: State, tried: int) -> None:
        lost = np.asarray(stuck(state))
        resting = (np.asarray(state.time) >= _FOREVER) | np.asarray(state.resting)
        for recorder, is_lost, is_resting in zip(recorders, lost, resting):
            if is_resting:
                recorder.finish(Result.stationary)
            elif is_lost:
                recorder.finish(Result.step_underflow)
        if tried >= self._options.max_steps:
            _finish(recorders, Result.step_limit)

    def _status(self, recorders, state: State, tried: int) -> Status:
        running = [i for i, recorder in enumerate(recorders) if recorder.result is None] or [0]
        clock = float(np.asarray(state.time)[running].min())
        done = 1 - len(running) / len(recorders)
        fraction = done if self._options.end is None else max(done, clock / self._options.end)
        known = self._options.end is not None or len(recorders) > 1
        return Status(clock, recorders[running[0]].last_loss, tried, fraction if known else None)


def _default_atol(vectors) -> float:
    # The smallest member of an ensemble sets it: on a plateau the small weights are what matters.
    scale = float(jnp.min(jnp.sqrt(jnp.mean(vectors**2, axis=-1))))
    if scale == 0:
        return _ATOL_FROM_ZERO
    # Rounded to a decade: a number that reads well in the statistics of a run.
    return max(10.0 ** float(np.floor(np.log10(1e-9 * scale))), _SMALLEST_ATOL)


def _finish(recorders: list[Recorder], result: Result) -> None:
    for recorder in recorders:
        recorder.finish(result)


def _solver(kind: str, rtol: float, atol: float):
    # As arrays: other tolerances do not mean another compilation.
    tolerances = jnp.asarray(rtol), jnp.asarray(atol)
    if kind == "implicit":
        return Rodas5P(), diffrax.PIDController(*tolerances)
    # With the default controller a fifth of the steps at the limit of stability are rejected.
    return Tsit5(), diffrax.PIDController(*tolerances, pcoeff=0.4, icoeff=0.3)


@eqx.filter_jit
def _measure(layout: Layout, swept, risk, vectors):
    def measure(risk, vector):
        model = layout.model(vector)
        loss, gradient = risk.value_and_gradient(model)
        floor, zero = risk.floor(model), risk.of_zero(model)
        slope = jnp.linalg.norm(layout.vector(gradient))
        # The way down is that of a predictor: huge weights start far above predicting zero.
        start = loss if zero is None else jnp.minimum(loss, zero)
        return loss, jnp.nan if floor is None else floor, start, slope

    return over_members(measure, swept, risk, vectors)


@eqx.filter_jit
def _start(stepper: Stepper, swept, risk, times, vectors, steps):
    return over_members(stepper.start, swept, risk, times, vectors, steps)


@eqx.filter_jit
def _advance(stepper: Stepper, swept, risk, state, stops, tries: int):
    chunk = lambda risk, state: stepper.chunk(risk, state, stops, tries)
    return over_members(chunk, swept, risk, state)

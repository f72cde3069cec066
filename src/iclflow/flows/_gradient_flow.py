"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

from collections.abc import Callable
from typing import Literal

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..models import AbstractModel
from ..precision import require_float64
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory
from ._ensemble import Ensemble, Members, over_members
from ._layout import Layout
from ._progress import Monitor, Status
from ._recorder import Recorder
from ._save import Drops, SavePoints, save_times
from ._stepper import State, Stepper, stuck

SolverChoice = Literal["auto", "explicit", "implicit"]

# An explicit step costs microseconds, an implicit one factorises a matrix. On a plateau the
# explicit solver is limited by stability and needs a number of steps that grows as 1/s; the
# implicit one does not. Up to this many tries explicit is the cheaper of the two (measured at 36
# and at 153 weights), and beyond this size of state a factorisation never pays.
_EXPLICIT_TRIES = 100_000
_LARGEST_IMPLICIT = 512
_CHUNK_BYTES = 2**25
_FOREVER = 1e300
# Learned weights are of order one: below this, Newton's iteration chases their rounding errors.
_SMALLEST_ATOL = 1e-14


def gradient_flow(
    model: AbstractModel,
    risk: AbstractRisk,
    *,
    end: float | None = None,
    save: SavePoints = Drops(),
    solver: SolverChoice = "auto",
    rtol: float = 1e-9,
    atol: float | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 2_000_000,
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `end`: the last moment. By default the run ends when the loss has come within `tolerance`
      (of the whole way down) of the smallest value that the weights can reach, if the risk
      knows it.
    - `save`: which moments to keep: `Drops`, `Linear`, `LogSpaced` or `Explicit`.
    - `solver`: `"explicit"` (Tsit5), `"implicit"` (Kvaerno5), or `"auto"`: explicit, and
      implicit once a long plateau has shown that stability limits the step.
    - `rtol`, `atol`: of the solver; `atol` is by default 1e-9 of the size of the initial
      weights (but at least 1e-14), since on a plateau the small weights are what matters.
    - `max_steps`: gives up after so many attempted steps.
    - `progress`: show a bar (default: on a terminal, after two seconds).
    - `callback`: called between chunks; the run is cancelled when it returns False.
    """
    driver = _Driver(
        Layout.of(model), risk, None, end, save, solver, rtol, tolerance, max_steps,
        Monitor("gradient flow", progress, callback),
    )  # fmt: skip
    return driver.run(driver.layout.vector(model)[None], atol)[0]


def gradient_flow_ensemble(models, risks, **options) -> Ensemble:
    """Gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one a model (swept tasks).
    - `options`: as in `gradient_flow`.
    """
    members = Members.of(models, risks)
    settings = {
        "end": None, "save": Drops(), "solver": "auto", "rtol": 1e-9, "atol": None,
        "tolerance": 1e-6, "max_steps": 2_000_000, "progress": None, "callback": None,
    }  # fmt: skip
    if unknown := set(options) - set(settings):
        raise TypeError(f"Unknown options: {', '.join(sorted(unknown))}.")
    settings |= options
    first = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, members.models)
    driver = _Driver(
        Layout.of(first), members.risk, members,
        *(settings[k] for k in ("end", "save", "solver", "rtol", "tolerance", "max_steps")),
        Monitor(f"{members.count} gradient flows", settings["progress"], settings["callback"]),
    )  # fmt: skip
    vectors = eqx.filter_vmap(driver.layout.vector)(members.models)
    return Ensemble(tuple(driver.run(vectors, settings["atol"])))


class _Driver:
    """Loops over chunks, on one run or on an ensemble (`members`)."""

    def __init__(
        self, layout, risk, members, end, save, solver, rtol, tolerance, max_steps, monitor
    ):
        require_float64("Gradient flow")
        if risk.stochastic:
            raise ValueError(
                "Gradient flow needs a risk without randomness: choose `exact` or `dataset`, or "
                "train with `sgd` or `adam`."
            )
        if end is not None and not (np.isfinite(end) and end > 0):
            raise ValueError(f"`end` = {end}: must be finite and positive.")
        if solver not in ("auto", "explicit", "implicit"):
            raise ValueError(f'`solver` = {solver!r}: must be "auto", "explicit" or "implicit".')
        for name, value in (("rtol", rtol), ("tolerance", tolerance)):
            if not 0 < value < 1:
                raise ValueError(f"`{name}` = {value}: must lie between 0 and 1.")
        self.layout = layout
        self._risk = risk
        self._swept = None if members is None else members.swept_risk
        self._end = end
        self._save = save
        self._choice = solver
        self._rtol = rtol
        self._tolerance = tolerance
        self._max_steps = max_steps
        self._monitor = monitor

    def run(self, vectors, atol: float | None) -> list[Trajectory]:
        recorders = self._recorders(vectors)
        if atol is None:
            scale = float(jnp.sqrt(jnp.mean(vectors**2)))
            # Rounded to a decade: the implicit solver compiles its tolerance in.
            atol = max(10.0 ** float(np.floor(np.log10(1e-9 * scale + 1e-300))), _SMALLEST_ATOL)
        fixed = save_times(self._save, self._end)
        end = _FOREVER if self._end is None else self._end
        stops = np.append(() if fixed is None else fixed[fixed < end], end)
        kind = "implicit" if self._choice == "implicit" else "explicit"
        tried = accepted = 0
        solvers = [kind]
        stepper, state = self._begin(kind, atol, jnp.zeros(len(vectors)), vectors)
        size = max(8, min(512, _CHUNK_BYTES // (8 * vectors.size)))
        try:
            while any(recorder.result is None for recorder in recorders):
                state, record = _advance(stepper, self._swept, self._risk, state, stops, size)
                record = jax.tree.map(np.asarray, record)
                tried += size
                accepted += int(record.accepted.sum())
                for i, recorder in enumerate(recorders):
                    kept = record.accepted[i]
                    recorder.add(
                        record.time[i, kept], record.loss[i, kept], record.weights[i, kept]
                    )
                self._stop_where_hopeless(recorders, state, tried)
                if not self._monitor.update(self._status(recorders, state, tried)):
                    _finish(recorders, Result.cancelled)
                if kind == "explicit" and self._should_switch(tried):
                    kind = "implicit"
                    solvers.append(kind)
                    stepper, state = self._begin(kind, atol, state.time, state.weights)
        except KeyboardInterrupt:
            _finish(recorders, Result.cancelled)
        finally:
            self._monitor.close()
        statistics = {
            "solver": " then ".join(solvers),
            "rtol": self._rtol,
            "atol": atol,
            "steps": accepted,
            "rejected": tried * len(recorders) - accepted,
            "seconds": self._monitor.seconds,
            "members": len(recorders),
        }
        return [recorder.trajectory("time", statistics) for recorder in recorders]

    def _recorders(self, vectors) -> list[Recorder]:
        measured = _measure(self.layout, self._swept, self._risk, vectors)
        losses, floors = (np.asarray(values).tolist() for values in measured)
        if self._end is None and np.any(np.isnan(floors)):
            raise ValueError(
                "`end` is needed: the smallest loss that these weights can reach is not known, "
                "so the run cannot tell when it has converged."
            )
        targets = [None] * len(losses)
        if self._end is None:
            # A start at the minimum has no way down of which to take a share: allow for rounding.
            targets = [f + max(self._tolerance * (l - f), 1e-14) for l, f in zip(losses, floors)]
        return [
            Recorder(self.layout, self._save, loss, vector, self._end, target)
            for vector, loss, target in zip(np.asarray(vectors), losses, targets)
        ]

    def _begin(self, kind: str, atol: float, times, vectors) -> tuple[Stepper, State]:
        stepper = Stepper(*_solver(kind, self._rtol, atol), self.layout)
        return stepper, _start(stepper, self._swept, self._risk, times, vectors)

    def _should_switch(self, tried: int) -> bool:
        wanted = self._choice == "auto" and tried >= _EXPLICIT_TRIES
        return wanted and self.layout.size <= _LARGEST_IMPLICIT

    def _stop_where_hopeless(self, recorders, state: State, tried: int) -> None:
        lost = np.asarray(stuck(state))
        resting = np.asarray(state.time) >= _FOREVER
        for recorder, is_lost, is_resting in zip(recorders, lost, resting):
            if is_resting:
                recorder.finish(Result.stationary)
            elif is_lost:
                recorder.finish(Result.step_underflow)
        if tried >= self._max_steps:
            _finish(recorders, Result.step_limit)

    def _status(self, recorders, state: State, tried: int) -> Status:
        running = [i for i, recorder in enumerate(recorders) if recorder.result is None] or [0]
        clock = float(np.asarray(state.time)[running].min())
        done = 1 - len(running) / len(recorders)
        fraction = done if self._end is None else max(done, clock / self._end)
        known = self._end is not None or len(recorders) > 1
        return Status(clock, recorders[running[0]].last_loss, tried, fraction if known else None)


def _finish(recorders: list[Recorder], result: Result) -> None:
    for recorder in recorders:
        recorder.finish(result)


def _solver(kind: str, rtol: float, atol: float):
    if kind == "explicit":
        controller = diffrax.PIDController(rtol=jnp.asarray(rtol), atol=jnp.asarray(atol))
        return diffrax.Tsit5(scan_kind="lax"), controller
    # With the default controller about half of the implicit steps are rejected.
    controller = diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=0.25, icoeff=0.25)
    root_finder = diffrax.VeryChord(rtol=rtol, atol=atol)
    return diffrax.Kvaerno5(scan_kind="lax", root_finder=root_finder), controller


@eqx.filter_jit
def _measure(layout: Layout, swept, risk, vectors):
    def measure(risk, vector):
        model = layout.model(vector)
        floor = risk.floor(model)
        return risk(model), jnp.nan if floor is None else floor

    return over_members(measure, swept, risk, vectors)


@eqx.filter_jit
def _start(stepper: Stepper, swept, risk, times, vectors):
    return over_members(stepper.start, swept, risk, times, vectors)


@eqx.filter_jit
def _advance(stepper: Stepper, swept, risk, state, stops, tries: int):
    chunk = lambda risk, state: stepper.chunk(risk, state, stops, tries)
    return over_members(chunk, swept, risk, state)

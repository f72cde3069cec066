"""What is happening at a moment of a run, in words, from measurements alone."""

import contextlib
import functools
from typing import Any

import numpy as np

from ..analysis import Algorithm, AlgorithmWatch, Match, learning_phases, plateaus
from ..estimators import PopulationPCR
from ..experiment import Experiment, Overlay
from ..models import AttentionStack
from ..tasks import MultiTaskRegression
from ..trajectory import Trajectory
from ._panels import Measured, Panels, contributions, panels_of, shares, zero_sums

# A loss within this share of a step is on the level where the step begins or ends.
# One that is farther from it than the smaller of these shares has just come or is about to go.
_MARGIN, _ON = 0.05, 0.01
# A component with half of its best strength is learned.
_LEARNED = 0.5
# Up to here a model equals an estimator, in words; `Algorithm.known` says up to where it is near.
_EQUAL = 0.05
# Values that sum to less than this share of their size leave a debiased step.
_DEBIASED = 0.05
# Over the last tenth of the time a loss that moves by less than this share rests.
_REST = 1e-3
# Contexts with more numbers take seconds to compare with estimators.
_LARGEST_WATCHED = 2**15
_MOST_HEADS = 4


class Narrator:
    """Tells what happens in the runs of one experiment, finished or under way."""

    def __init__(
        self,
        experiment: Experiment,
        predicted: Overlay | None = None,
        panels: Panels | None = None,
        algorithms: bool = True,
    ):
        """**Arguments:**

        - `predicted`: what theory says about these runs.
        - `panels`: of the experiment, if they are there already.
        - `algorithms`: whether to say which estimator a model equals; that takes a few seconds for
          the first sentence of an experiment, and milliseconds then.
        """
        self.experiment = experiment
        self.predicted = predicted
        self.panels = panels_of(experiment) if panels is None else panels
        task = experiment.task
        small = task.max_context * task.dim <= _LARGEST_WATCHED
        self._algorithms = algorithms and small
        self._curve: dict[float, float] = {}

    def sentences(self, run: Trajectory, index: int) -> list[str]:
        """Two to five sentences about one saved point; what comes after it is not looked at."""
        index = range(len(run))[index]
        loss = float(run.losses[index])
        if not np.isfinite(loss):
            return ["The loss is infinite or not a number: the weights ran away."]
        point = run[index : index + 1]
        parts = [
            self._where(run, index),
            self._against_theory(run, index),
            self._heads(point),
            self._algorithm(run, index),
        ]
        return [sentence for part in parts for sentence in part]

    # Where on the loss curve ----------------------------------------------------------------

    def _where(self, run: Trajectory, index: int) -> list[str]:
        levels = np.zeros(0) if self.predicted is None else np.asarray(self.predicted.levels)
        loss = float(run.losses[index])
        if len(levels) >= 2 and np.all(np.diff(levels) < 0):
            return [self._on_stairs(levels, loss, float(run.times[index]), run.clock)]
        sentences = [_pace(run, index)]
        floor = self._floor()
        if floor is not None and floor < run.losses[0]:
            with contextlib.suppress(ValueError):
                phase = learning_phases(run[: index + 1], floor=floor).at(float(run.times[index]))
                done = (run.losses[0] - loss) / (run.losses[0] - floor)
                share = f"{_percent(float(np.clip(done, 0, 1)))} of the drop is done"
                sentences = [f"{phase.capitalize()}: {share}; the loss is {_number(loss)}."]
        return sentences

    def _on_stairs(self, levels: np.ndarray, loss: float, time: float, clock: str) -> str:
        steps = -np.diff(levels)
        before = np.append(steps[:1], steps)
        after = np.append(steps, steps[-1:])
        off = loss - levels
        near = np.where(off > 0, off <= _MARGIN * before, -off <= _MARGIN * after)
        if near.any():
            place = int(np.flatnonzero(near)[np.argmin(np.abs(off[near]))])
            level = levels[place]
            told = f"the loss is {_number(loss)}, theory's level is {_number(level)}"
            told += f" ({_percent(abs(loss - level) / abs(level))} off)."
            step = before[place] if off[place] > 0 else after[place]
            if abs(off[place]) <= _ON * step:
                where = _place(place, len(steps))
                return f"{where[:1].upper()}{where[1:]}: {told}"
            # Below the last level nothing is left that could be left.
            leaving = off[place] < 0 and place < len(steps)
            return f"{'Leaving' if leaving else 'Near'} {_place(place, len(steps))}: {told}"
        if loss > levels[0]:
            return f"The loss is {_number(loss)}, above theory's first level {_number(levels[0])}."
        if loss < levels[-1]:
            return f"The loss is {_number(loss)}, below theory's last level {_number(levels[-1])}."
        place = int(np.searchsorted(-levels, -loss)) - 1
        share = (levels[place] - loss) / steps[place]
        target = "the bottom" if place + 1 == len(steps) else f"level {place + 2}"
        told = f"Dropping: {_percent(share)} of the way from level {place + 1} to {target}"
        times = () if self.predicted is None else self.predicted.drop_times
        if place < len(times) and np.isfinite(times[place]):
            name = "t =" if clock == "time" else "step"
            told += f"; predicted half-way at {name} {_number(times[place])}, "
            told += f"now {name} {_number(time)}"
        return f"{told}."

    def _floor(self) -> float | None:
        """The loss that a run on several tasks goes to, where theory has one."""
        if self.predicted is None or not isinstance(self.experiment.task, MultiTaskRegression):
            return None
        return dict(self.predicted.references).get("one head a task")

    def _against_theory(self, run: Trajectory, index: int) -> list[str]:
        if self.predicted is None:
            return []
        loss, time = float(run.losses[index]), float(run.times[index])
        sentences = []
        wanted = self._predicted_loss(run, time)
        if wanted is not None and len(self.predicted.levels) < 2:
            off = _percent(abs(loss - wanted) / max(abs(wanted), np.finfo(float).tiny))
            sentences.append(f"Theory's curve is at {_number(wanted)} now ({off} off).")
        below = [(name, level) for name, level in self.predicted.references if level <= loss]
        if below:
            name, level = max(below, key=lambda pair: pair[1])
            above = _percent((loss - level) / abs(level)) if level else _number(loss)
            sentences.append(f"The loss is {above} above “{name}” ({_number(level)}).")
        return sentences

    def _predicted_loss(self, run: Trajectory, time: float) -> float | None:
        if self.predicted is None or self.predicted.curve is None:
            return None
        if not self.predicted.whole:
            return self.predicted.at(time)
        if time not in self._curve:
            # One solution for all points there are: each call solves from the start.
            times = np.unique(np.append(0.0, run.times))
            with contextlib.suppress(ValueError, RuntimeError):
                losses = self.predicted.curve(times)
                self._curve = {float(t): float(x) for t, x in zip(times, losses)}
        found = self._curve.get(time)
        return found if found is not None and np.isfinite(found) else None

    # What the heads do ----------------------------------------------------------------------

    def _heads(self, point: Trajectory) -> list[str]:
        measured = self.panels.measure(point, matrices=False)
        if not all(np.isfinite(values).all() for id, values in measured.lines.items() if _sure(id)):
            return []
        if isinstance(self.experiment.model, AttentionStack):
            omega, mu = measured.lines["omega"][0], measured.lines["mu"][0]
            largest = int(np.argmax(np.abs(omega * mu)))
            return [
                f"The strongest is {self.panels.heads[largest]} "
                f"(ω = {_number(omega[largest])}, μ = {_number(mu[largest])})."
            ]
        if "share" in measured.lines:
            return self._tasks(point, measured)
        if "strengths" in measured.lines:
            return self._components(point, measured)
        return self._signs(measured)

    def _components(self, point: Trajectory, measured: Measured) -> list[str]:
        gains = self.panels.gains
        assert gains is not None and measured.roles is not None
        strengths = contributions(self.panels.reader.read(point)).sum(1)[0] / gains
        learned = np.flatnonzero(strengths >= _LEARNED) + 1
        if learned.size == 0:
            told = "No component is learned yet."
        elif learned.size == len(gains) > 1:
            told = f"All {len(gains)} components are learned."
        else:
            told = f"Learned components: {', '.join(map(str, learned))}."
        if self.experiment.config.model.kind not in ("separate", "convolutional"):
            return [told]
        carried = [(h, role) for h, role in enumerate(measured.roles[0]) if role != "idle"]
        if not carried or len(carried) > _MOST_HEADS:
            return [told]
        carriers = [f"head {h + 1} works on {role}" for h, role in carried]
        return [told, f"{_sentence(carriers)}."]

    def _signs(self, measured: Measured) -> list[str]:
        assert measured.roles is not None
        omega, mu, roles = measured.lines["omega"][0], measured.lines["mu"][0], measured.roles[0]
        if all(role == "idle" for role in roles):
            return ["All heads are idle: together they add next to nothing."]
        if len(roles) <= _MOST_HEADS:
            said = [
                f"head {h + 1} is {role} (ω = {_number(w)}, μ = {_number(m)})"
                for h, (role, w, m) in enumerate(zip(roles, omega, mu))
            ]
        else:
            names, counts = np.unique(list(roles), return_counts=True)
            verb = lambda count: "head is" if count == 1 else "heads are"
            said = [f"{count} {verb(count)} {name}" for name, count in zip(names, counts)]
        sentences = [f"{_sentence(said)}."]
        if len(roles) > 1:
            sums = float(zero_sums(mu[None])[0])
            debiased = "debiased" if sums <= _DEBIASED else "not debiased"
            sentences.append(f"Output-values sum to {_percent(sums)} of their size: {debiased}.")
        return sentences

    def _tasks(self, point: Trajectory, measured: Measured) -> list[str]:
        assert measured.roles is not None
        if all(role == "idle" for role in measured.roles[0]):
            return ["No head works for a task yet."]
        found = shares(self.panels.reader.read(point))[0]
        said = []
        for i, task in enumerate(found.T):
            head, share = int(task.argmax()), float(task.max())
            working = [h for h, role in enumerate(measured.roles[0]) if _names(role, i + 1)]
            if not working:
                said.append(f"task {i + 1} is not begun")
            elif share >= 0.5:
                said.append(f"head {head + 1} has task {i + 1} ({_percent(share)} of its step)")
            else:
                said.append(f"{len(working)} heads share task {i + 1}")
        return [f"{_sentence(said)}."] if len(said) <= 2 * _MOST_HEADS else []

    # Which estimator it is -------------------------------------------------------------------

    @functools.cached_property
    def _watch(self) -> AlgorithmWatch | None:
        """Made when it is needed first: it has every estimator predict many sequences."""
        if not self._algorithms:
            return None
        model = self.experiment.model
        normaliser: Any = getattr(model, "normaliser", "context")
        return AlgorithmWatch(self.experiment.task, normaliser, fitted=model.form == "general")

    def _algorithm(self, run: Trajectory, index: int) -> list[str]:
        if self._watch is None:
            return []
        found = self._watch.look(run.at(index))
        if found is None:
            return []
        if len(found) == 1:
            return [f"This model {_equals(found[0])}."]
        farthest = max(found, key=lambda each: each.best.distance)
        if len({each.best.name for each in found}) == 1:
            return [f"On every task it {_equals(farthest)}, or less."]
        if len(found) > _MOST_HEADS:
            return []
        said = [f"on task {i + 1} it {_equals(each)}" for i, each in enumerate(found)]
        return [f"{_sentence(said)}."]


def moments_to_tell(run: Trajectory, most: int = 40) -> list[int]:
    """The points of a run that are worth words, at most `most`: its ends, the plateaus and drops
    that it has, and some in between, close where much happens."""
    count = len(run)
    if count <= 2:
        return list(range(count))
    times, losses = np.asarray(run.times, float), np.asarray(run.losses, float)
    usable = np.isfinite(losses)
    chosen = {0, count - 1}
    with contextlib.suppress(ValueError):
        found = plateaus(times[usable], losses[usable])
        marks = [moment for each in found for moment in (each.start, (each.start + each.end) / 2)]
        marks += [(one.end + two.start) / 2 for one, two in zip(found, found[1:])]
        places = np.clip(np.searchsorted(times, marks), 0, count - 1)
        chosen |= {int(place) for place in places[: most // 2]}
    # A clock that is even in the loss, in time and in its logarithm.
    later = np.where(times > 0, times, np.min(times[times > 0], initial=np.inf))
    smooth = np.interp(times, times[usable], losses[usable]) if usable.any() else times
    paths = [np.abs(np.diff(x)) for x in (smooth, times, np.log(later))]
    steps = sum(path / max(path.sum(), np.finfo(float).tiny) for path in paths)
    clock = np.append(0.0, np.cumsum(steps))
    even = np.linspace(0.0, clock[-1], most - len(chosen))
    chosen |= {int(place) for place in np.searchsorted(clock, even).clip(0, count - 1)}
    return sorted(chosen)


def _pace(run: Trajectory, index: int) -> str:
    """The loss, and how it moves."""
    loss, time = float(run.losses[index]), float(run.times[index])
    if index == 0:
        return f"The start: the loss is {_number(loss)}."
    start = float(run.losses[0])
    known = run[: index + 1]
    earlier = float(known.loss_at(0.9 * time))
    change = (earlier - loss) / max(abs(earlier), np.finfo(float).tiny)
    moves = "at rest" if abs(change) < _REST else "falling" if change > 0 else "rising"
    since = _percent(abs(start - loss) / max(abs(start), np.finfo(float).tiny))
    side = "below" if loss <= start else "above"
    return f"The loss is {_number(loss)}, {since} {side} its start, and {moves}."


def _place(place: int, steps: int) -> str:
    """A level as a sentence names it: plateaus, and the bottom below all steps."""
    if place == steps:
        return "the bottom"
    return "the plateau" if steps == 1 else f"plateau {place + 1} of {steps}"


def _name(match: Match) -> str:
    """An estimator as a sentence names it; components count from 1 here."""
    estimator = match.estimator
    if isinstance(estimator, PopulationPCR) and estimator.which != tuple(
        range(len(estimator.which))
    ):
        one = len(estimator.which) == 1
        numbers = ", ".join(str(d + 1) for d in estimator.which)
        return f"PCR with component{'' if one else 's'} {numbers} alone"
    step = "" if match.step_size is None else f" (η = {_number(match.step_size)})"
    return match.name + step


def _equals(found: Algorithm) -> str:
    best = found.best
    if best.name in ("zero", "PCR with 0 components"):
        return "predicts next to nothing" if found.known else "is no known estimator"
    if best.distance <= _EQUAL:
        return f"now equals {_name(best)} to {best.words}"
    if found.known:
        return f"is near to {_name(best)}: {best.words} apart"
    return f"is no known estimator; the nearest, {_name(best)}, is {best.words} apart"


def _sure(panel: str) -> bool:
    """Whether a panel has a number at every point: what is conserved has not changed at first."""
    return panel != "conserved"


def _names(role: str, task: int) -> bool:
    """Whether a role names a task, alone or among others."""
    words = role.replace(",", " ").split()
    return "all" in words or str(task) in words or (words[-1] == "tasks" and words[0].isdigit())


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _number(value: float) -> str:
    """Four digits, and thousands set apart."""
    size = abs(value)
    if size < 1e-12:
        return "0"
    if 1e3 <= size < 1e7:
        text = f"{size:,.0f}".replace(",", "\u202f")
    else:
        text = f"{size:.4g}" if size >= 1e-3 else f"{size:.2g}"
    return f"−{text}" if value < 0 else text


def _percent(share: float) -> str:
    percent = 100 * share
    if percent < 0.01:
        return "less than 0.01 %"
    if percent < 1:
        return f"{percent:.2g} %"
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.1f} %"

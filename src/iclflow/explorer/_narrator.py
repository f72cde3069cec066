"""What is happening at a moment of a run, in words, from measurements alone."""

import contextlib
import functools

import numpy as np

from ..analysis import (
    AlgorithmWatch,
    Directions,
    components,
    count_steps,
    learned_directions,
    learning_phases,
)
from ..circuits import Circuits, weight_sets
from ..experiment import Experiment, Overlay
from ..models import AbstractModel, Merged, Normaliser
from ..tasks import MultiTaskRegression
from ..trajectory import Trajectory
from ._head_sentences import (
    describe_components,
    describe_idle,
    describe_signs,
    describe_strongest,
    describe_tasks,
)
from ._panel import Snapshots
from ._panels import Panels, build_panels
from ._sentences import describe_estimators, describe_loss, describe_stairs
from ._text import number, percent, percent_done

# The comparison with estimators takes seconds for contexts with more numbers.
_LARGEST_WATCHED = 2**15
# Tasks whose sequences are kept, some ten megabytes each; the oldest is dropped.
_MOST_WATCHES = 4
_WATCHES: dict[tuple[str, Normaliser, bool, int], AlgorithmWatch] = {}


class Narrator:
    """Describes what happens in the runs of one experiment, finished or under way.

    **Arguments:**

    - `predicted`: what theory says about these runs.
    - `panels`: of the experiment, if they were built before.
    - `algorithms`: whether to say which estimator a model equals. That takes a few seconds for the
      first moment of an experiment, and milliseconds from then on.
    """

    def __init__(
        self,
        experiment: Experiment,
        predicted: Overlay | None = None,
        panels: Panels | None = None,
        algorithms: bool = True,
    ):
        self.experiment = experiment
        self.predicted = predicted
        self.panels = build_panels(experiment) if panels is None else panels
        task = experiment.task
        small = task.max_context * task.dim <= _LARGEST_WATCHED
        self._algorithms = algorithms and small
        self._components = components(task)
        self._curve: dict[float, float] = {}

    def sentences(self, run: Trajectory, index: int) -> list[str]:
        """Two to five sentences about one saved point, which depend on no later point."""
        index = range(len(run))[index]
        if not np.isfinite(run.losses[index]):
            return ["The loss is infinite or not a number: the weights have diverged."]
        points = self.panels.read(run[index : index + 1])
        found, model = self._find_directions(points.circuits), run.at(index)
        sizes = None if self._watch is None else self._watch.sizes(model)
        return [
            *self._describe_place(run, index, found),
            *self._compare_with_theory(run, index),
            *self._describe_heads(points, found, sizes),
            *self._describe_algorithm(model, sizes),
        ]

    def _describe_place(self, run: Trajectory, index: int, found: Directions | None) -> list[str]:
        """Where on the loss curve the run is."""
        if self.predicted is not None:
            levels = np.asarray(self.predicted.levels)
            if len(levels) >= 2 and np.all(np.diff(levels) < 0):
                # A merged key-query matrix learns all directions at once, others one per level.
                attention = self.experiment.attention
                merged = attention is not None and isinstance(attention.circuits, Merged)
                each = self.experiment.task.dim if merged else 1
                times = self.predicted.drop_times
                words = describe_stairs(levels, times, run, index, found, each)
                return [describe_loss(run, index) if words is None else words]
        floor, first, loss = self._floor, float(run.losses[0]), float(run.losses[index])
        if floor is not None and floor < first:
            with contextlib.suppress(ValueError):
                phase = learning_phases(run[: index + 1], floor=floor).at(float(run.times[index]))
                done = percent_done((first - loss) / (first - floor))
                return [
                    f"{phase.capitalize()}: {done} of the drop is done; the loss is {number(loss)}."
                ]
        return [describe_loss(run, index)]

    def _find_directions(self, circuits: Circuits) -> Directions | None:
        """What a linear model does along components; None for other models, and for weights that
        have diverged."""
        gains, known = self.panels.gains, self._components
        if gains is None or known is None or self.experiment.config.model.softmax:
            return None
        one = circuits._replace(attention=circuits.attention[0], values=circuits.values[0])
        return learned_directions(one, gains, known.variances)

    @property
    def _floor(self) -> float | None:
        """The loss that a run on several tasks goes to, where theory has one."""
        if self.predicted is None or not isinstance(self.experiment.task, MultiTaskRegression):
            return None
        return self.predicted.floor

    def _compare_with_theory(self, run: Trajectory, index: int) -> list[str]:
        if self.predicted is None:
            return []
        loss, time = float(run.losses[index]), float(run.times[index])
        sentences = []
        predicted = self._predicted_loss(run, time)
        if predicted is not None and len(self.predicted.levels) < 2:
            off = percent(abs(loss - predicted) / max(abs(predicted), np.finfo(float).tiny))
            sentences.append(f"Theory's curve is at {number(predicted)} now ({off} off).")
        below = [(name, level) for name, level in self.predicted.references if level <= loss]
        if below:
            name, level = max(below, key=lambda pair: pair[1])
            above = percent((loss - level) / abs(level)) if level else number(loss)
            sentences.append(f"The loss is {above} above “{name}” ({number(level)}).")
        return sentences

    def _predicted_loss(self, run: Trajectory, time: float) -> float | None:
        if self.predicted is None or self.predicted.curve is None:
            return None
        if not self.predicted.whole:
            return self.predicted.at(time)
        if time not in self._curve:
            # One solution for all points so far: each call solves from the start.
            times = np.unique(np.append(0.0, run.times))
            with contextlib.suppress(ValueError, RuntimeError):
                losses = self.predicted.curve(times)
                self._curve = {float(t): float(x) for t, x in zip(times, losses)}
        found = self._curve.get(time)
        return found if found is not None and np.isfinite(found) else None

    def _describe_heads(
        self, points: Snapshots, found: Directions | None, sizes: tuple[float, ...] | None
    ) -> list[str]:
        lines = self.panels.measure_lines(points)
        # What is conserved has not changed at first, and is then a gap on its logarithmic axis.
        if not all(np.isfinite(x).all() for id, x in lines.items() if id != "conserved"):
            return []
        task, circuits, gains = self.experiment.task, points.circuits, self.panels.gains
        if weight_sets(self.experiment.model) is not None:
            return describe_strongest(circuits, self.panels.heads)
        if isinstance(task, MultiTaskRegression):
            return describe_tasks(circuits, task)
        if "strengths" in lines and gains is not None:
            by_head = self.experiment.config.model.kind in ("separate", "convolutional")
            return describe_components(circuits, found, gains, by_head)
        roles = self.panels.name_roles(circuits)
        assert roles is not None
        if any(role != "idle" for role in roles[0]):
            return describe_signs(circuits, roles[0].tolist())
        known = self._components
        variance = 1.0 if known is None else float(np.mean(known.variances))
        return [describe_idle(circuits, variance, task.max_context, sizes, gains is not None)]

    @functools.cached_property
    def _watch(self) -> AlgorithmWatch | None:
        """Built on first use: it has every estimator predict many sequences."""
        return _find_watch(self.experiment) if self._algorithms else None

    def _describe_algorithm(
        self, model: AbstractModel, sizes: tuple[float, ...] | None
    ) -> list[str]:
        found = None if self._watch is None else self._watch.look(model)
        if found is None or sizes is None:
            return []
        words = describe_estimators(found, sizes)
        return [] if words is None else [words]


def _find_watch(experiment: Experiment) -> AlgorithmWatch:
    """The comparison of an experiment's models with estimators. Those of the last few tasks are
    cached: readers change the model more often than the task."""
    model = experiment.model
    fitted = model.form == "general"
    steps = count_steps(model)
    key = experiment.config.task.model_dump_json(), model.divides_by, fitted, steps
    if key not in _WATCHES:
        _WATCHES[key] = AlgorithmWatch(
            experiment.task, model.divides_by, fitted=fitted, steps=steps
        )
        if len(_WATCHES) > _MOST_WATCHES:
            del _WATCHES[next(iter(_WATCHES))]
    return _WATCHES[key]

"""What is happening at a moment of a run, in words, from measurements alone."""

import contextlib
import functools
from typing import Any

import numpy as np

from ..analysis import (
    IDLE,
    AlgorithmWatch,
    Directions,
    best_steps,
    component_work,
    directions,
    input_variances,
    learning_phases,
    task_work,
)
from ..experiment import Experiment, Overlay
from ..models import AbstractModel, AttentionStack, MergedKQ
from ..tasks import LinearRegression, Mixture, MultiTaskRegression
from ..trajectory import Trajectory
from ._matrices import Heads
from ._moments import moments_to_tell as moments_to_tell
from ._panels import Measured, Panels, contributions, panels_of, shares, zero_sums
from ._sentences import (
    MOST_NAMED,
    SMALL,
    done,
    estimators_told,
    learned_told,
    number,
    numbered,
    on_stairs,
    pace,
    percent,
    sentence,
)

# A head that does this share of the work for a task has it; with less it shares it.
_HAS = 0.8
# Values that sum to less than these shares of their size leave a step debiased, or nearly so.
_DEBIASED, _NEARLY = 0.05, 0.2
# Attention with scores below this size is nearly the same for all tokens.
_FLAT = 0.3
# Contexts with more numbers take seconds to compare with estimators.
_LARGEST_WATCHED = 2**15
# Tasks whose sequences are kept, some ten megabytes each; the oldest goes.
_MOST_WATCHES = 4
_WATCHES: dict[tuple[str, str, bool], AlgorithmWatch] = {}


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
        with np.errstate(all="ignore"):
            heads = self.panels.reader.read(point)
        model = run.at(index)
        sizes = self._sizes(model)
        parts = [
            self._where(run, index, heads),
            self._against_theory(run, index),
            self._heads(point, heads, sizes),
            self._algorithm(model, sizes),
        ]
        return [told for part in parts for told in part]

    # Where on the loss curve ----------------------------------------------------------------

    def _where(self, run: Trajectory, index: int, heads: Heads) -> list[str]:
        levels = np.zeros(0) if self.predicted is None else np.asarray(self.predicted.levels)
        loss = float(run.losses[index])
        if len(levels) >= 2 and np.all(np.diff(levels) < 0):
            # A merged key-query matrix learns all at once, others one direction a level.
            merged = isinstance(self.experiment.attention, MergedKQ)
            each = self.experiment.task.dim if merged else 1
            times = np.zeros(0) if self.predicted is None else self.predicted.drop_times
            told = on_stairs(levels, times, run, index, self._directions(heads), each)
            return [pace(run, index) if told is None else told]
        sentences = [pace(run, index)]
        floor = self._floor()
        if floor is not None and floor < run.losses[0]:
            with contextlib.suppress(ValueError):
                phase = learning_phases(run[: index + 1], floor=floor).at(float(run.times[index]))
                share = float((run.losses[0] - loss) / (run.losses[0] - floor))
                told = f"{done(share)} of the drop is done"
                sentences = [f"{phase.capitalize()}: {told}; the loss is {number(loss)}."]
        return sentences

    def _directions(self, heads: Heads) -> Directions | None:
        """What a linear model does along components; None for other models, and for weights that
        ran away."""
        gains, spread = self.panels.gains, self._variances
        if gains is None or spread is None or self.experiment.config.model.softmax:
            return None
        dim, values = len(gains), heads.values[0, :, 0]
        with np.errstate(all="ignore"):
            matrix = np.einsum("h,hde->de", values[:, -1], heads.attention[0, :, :dim])
            matrix += np.einsum("hd,he->de", values[:, :dim], heads.attention[0, :, -1])
        # Sums of squares are taken of it.
        if not np.all(np.abs(matrix) < 1e100):
            return None
        return directions(matrix, gains, spread)

    @functools.cached_property
    def _variances(self) -> np.ndarray | None:
        """Of the inputs along each component, where there are components."""
        task, basis = self.experiment.task, self.panels.reader.basis
        if basis is None or not isinstance(task, LinearRegression | Mixture):
            return None
        return input_variances(task, basis)

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
            off = percent(abs(loss - wanted) / max(abs(wanted), np.finfo(float).tiny))
            sentences.append(f"Theory's curve is at {number(wanted)} now ({off} off).")
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
            # One solution for all points there are: each call solves from the start.
            times = np.unique(np.append(0.0, run.times))
            with contextlib.suppress(ValueError, RuntimeError):
                losses = self.predicted.curve(times)
                self._curve = {float(t): float(x) for t, x in zip(times, losses)}
        found = self._curve.get(time)
        return found if found is not None and np.isfinite(found) else None

    # What the heads do ----------------------------------------------------------------------

    def _heads(self, point: Trajectory, heads: Heads, sizes: tuple[float, ...] | None) -> list[str]:
        measured = self.panels.measure(point, matrices=False)
        if not all(np.isfinite(values).all() for id, values in measured.lines.items() if _sure(id)):
            return []
        if isinstance(self.experiment.model, AttentionStack):
            omega, mu = measured.lines["omega"][0], measured.lines["mu"][0]
            largest = int(np.argmax(np.abs(omega * mu)))
            return [
                f"The strongest is {self.panels.heads[largest]} "
                f"(ω = {number(omega[largest])}, μ = {number(mu[largest])})."
            ]
        if "share" in measured.lines:
            return self._tasks(heads)
        if "strengths" in measured.lines:
            return self._components(heads)
        return self._signs(measured, heads, sizes)

    def _components(self, heads: Heads) -> list[str]:
        gains, found = self.panels.gains, self._directions(heads)
        if gains is None or found is None:
            return []
        told = learned_told(found)
        if self.experiment.config.model.kind not in ("separate", "convolutional"):
            return [told]
        # Of equal components there are no axes, and heads that mix components work on none.
        if not found.orderly or len(found.spaces) == 1 < len(gains):
            return [told]
        works = component_work(contributions(heads) / gains)[0]
        carriers = []
        for h in np.flatnonzero(works.any(-1)):
            mine = [int(d) + 1 for d in np.flatnonzero(works[h])]
            equal = any(len(space) > 1 and works[h, space].any() for space in found.spaces)
            what = "components of equal variance" if equal else numbered("component", mine)
            carriers.append(f"head {h + 1} works on {what}")
        if not carriers or len(carriers) > MOST_NAMED:
            return [told]
        return [told, f"{sentence(carriers)}."]

    def _signs(
        self, measured: Measured, heads: Heads, sizes: tuple[float, ...] | None
    ) -> list[str]:
        assert measured.roles is not None
        omega, mu, roles = measured.lines["omega"][0], measured.lines["mu"][0], measured.roles[0]
        if all(role == "idle" for role in roles):
            return [self._without_steps(heads, sizes)]
        if len(roles) <= MOST_NAMED:
            said = [
                f"head {h + 1} is {role} (ω = {number(w)}, μ = {number(m)})"
                for h, (role, w, m) in enumerate(zip(roles, omega, mu))
            ]
        else:
            names, counts = np.unique(list(roles), return_counts=True)
            verb = lambda count: "head is" if count == 1 else "heads are"
            said = [f"{count} {verb(count)} {name}" for name, count in zip(names, counts)]
        sentences = [f"{sentence(said)}."]
        if len(roles) > 1:
            sums = float(zero_sums(mu[None])[0])
            told = f"Output-values sum to {percent(sums)} of their size"
            if sums <= _NEARLY:
                told += f": {'debiased' if sums <= _DEBIASED else 'nearly debiased'}"
            sentences.append(f"{told}.")
        return sentences

    def _without_steps(self, heads: Heads, sizes: tuple[float, ...] | None) -> str:
        """What heads do that add up to next to no gradient step."""
        if sizes is not None and max(sizes) < SMALL:
            return "All heads are idle."
        variance = 1.0 if self._variances is None else float(np.mean(self._variances))
        scores = variance * np.linalg.norm(heads.attention[0], axis=(-2, -1))
        summed = heads.values[0, :, 0].sum(0)
        labels, inputs = abs(summed[-1]), np.linalg.norm(summed[:-1])
        mean = labels / np.sqrt(self.experiment.task.max_context)
        if scores.max() <= _FLAT and mean >= SMALL > inputs:
            return f"The heads average the labels so far: Σμ = {number(float(summed[-1]))}."
        if self.panels.gains is None:
            return "The heads make next to no gradient step so far."
        return f"The heads make less than {100 * IDLE:.0f} % of the best gradient step so far."

    def _tasks(self, heads: Heads) -> list[str]:
        task = self.experiment.task
        assert isinstance(task, MultiTaskRegression)
        works = task_work(heads.omega, heads.mu, best_steps(task))[0]
        if not works.any():
            return ["No head works for a task yet."]
        said = []
        for i, found in enumerate(shares(heads)[0].T):
            head, share = int(found.argmax()), float(found.max())
            working = [int(h) + 1 for h in np.flatnonzero(works[:, i])]
            if not working:
                said.append(f"task {i + 1} is not begun")
            elif len(working) == 1 or share >= _HAS:
                said.append(f"head {head + 1} has task {i + 1} ({done(share)} of its step)")
            elif len(working) <= MOST_NAMED:
                said.append(f"{numbered('head', working)} share task {i + 1}")
            else:
                said.append(f"{len(working)} heads share task {i + 1}")
        return [f"{sentence(said)}."] if len(said) <= 2 * MOST_NAMED else []

    # Which estimator it is -------------------------------------------------------------------

    @functools.cached_property
    def _watch(self) -> AlgorithmWatch | None:
        """Made when it is needed first: it has every estimator predict many sequences."""
        return _watch_of(self.experiment) if self._algorithms else None

    def _sizes(self, model: AbstractModel) -> tuple[float, ...] | None:
        """How large the predictions are, as a share of the best ones, for each label."""
        return None if self._watch is None else self._watch.sizes(model)

    def _algorithm(self, model: AbstractModel, sizes: tuple[float, ...] | None) -> list[str]:
        if self._watch is None or sizes is None:
            return []
        found = self._watch.look(model)
        told = None if found is None else estimators_told(found, sizes)
        return [] if told is None else [told]


def _watch_of(experiment: Experiment) -> AlgorithmWatch:
    """What compares the models of an experiment with estimators. Those of the last few tasks are
    kept: whoever changes the model looks at the same task again."""
    model = experiment.model
    normaliser: Any = getattr(model, "normaliser", "context")
    fitted = model.form == "general"
    key = experiment.config.task.model_dump_json(), normaliser, fitted
    if key not in _WATCHES:
        _WATCHES[key] = AlgorithmWatch(experiment.task, normaliser, fitted=fitted)
        if len(_WATCHES) > _MOST_WATCHES:
            del _WATCHES[next(iter(_WATCHES))]
    return _WATCHES[key]


def _sure(panel: str) -> bool:
    """Whether a panel has a number at every point: what is conserved has not changed at first."""
    return panel != "conserved"

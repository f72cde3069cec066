"""The panels below the loss: numbers of heads and components, at every saved point of a run."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..analysis import RoleNames, best_strengths, component_circuits, components, role_names
from ..circuits import Circuits, read_heads, weight_sets
from ..experiment import Experiment
from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask
from ..trajectory import Trajectory
from ._panel import LARGEST_SERIES, Axis, Panel, Snapshots
from ._panel_table import choose_panels


class Matrix(NamedTuple):
    """One matrix that every head has, with the labels of its rows and columns."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class Measured(NamedTuple):
    """The measurements at some saved points (T of them).

    **Fields:**

    - `lines`: by the id of the panel, (T, series).
    - `roles`: what each head does, in a word, (T, heads); None where no such words exist.
    - `matrices`: by name, (T, heads, rows, columns).
    """

    lines: dict[str, np.ndarray]
    roles: np.ndarray | None
    matrices: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Panels:
    """The panels that exist for an experiment. Each point is measured alone: a run can be measured
    piece by piece.

    **Fields:**

    - `clock`: what the time axis counts.
    - `lines`: the diagrams.
    - `heads`: the names of the heads.
    - `matrices`: what every head has.
    - `gains`: the best strength of each component, where the task has components.
    """

    clock: str
    lines: tuple[Panel, ...]
    heads: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    gains: Float[np.ndarray, " D"] | None
    task: AbstractTask
    start: AbstractModel
    roles: RoleNames | None

    def read(self, run: Trajectory) -> Snapshots:
        """The heads at every point of a run of this experiment."""
        with np.errstate(all="ignore"):
            circuits = component_circuits(run, self.task)
        return Snapshots(circuits, run.models, self.start, self.gains)

    def measure_lines(self, points: Snapshots) -> dict[str, np.ndarray]:
        """The series of every panel by its id, (T, series)."""
        # Weights that have diverged make infinities, which are shown as gaps.
        with np.errstate(all="ignore"):
            return {panel.id: panel.curves(points) for panel in self.lines}

    def name_roles(self, circuits: Circuits) -> np.ndarray | None:
        with np.errstate(all="ignore"):
            return None if self.roles is None else self.roles.at_points(circuits)

    def measure(self, run: Trajectory, matrices: bool = True) -> Measured:
        """The measurements at every point of a run. `matrices` says whether to include those of the
        heads, which are many numbers."""
        points = self.read(run)
        shown = _matrices(points) if matrices else ()
        named = zip(self.matrices, shown)
        return Measured(
            self.measure_lines(points),
            self.name_roles(points.circuits),
            # Colours on a screen need no more digits.
            {matrix.name: np.asarray(values, np.float32) for matrix, values in named},
        )


def build_panels(experiment: Experiment) -> Panels:
    """The panels that exist for the model and the task of an experiment."""
    task, model = experiment.task, experiment.model
    heads = _head_names(model)
    roles = role_names(task, model)
    return Panels(
        clock="time" if experiment.config.flow.kind == "gradient_flow" else "step",
        lines=tuple(
            _name_series(panel, panel.series or _series_names(panel.axis, task, heads))
            for panel in choose_panels(experiment, len(heads))
        ),
        heads=heads,
        matrices=_matrix_labels(task, model),
        gains=None if roles is None else best_strengths(task, model.divides_by),
        task=task,
        start=model,
        roles=roles,
    )


def _series_names(axis: Axis, task: AbstractTask, heads: tuple[str, ...]) -> tuple[str, ...]:
    if axis == "heads":
        return heads
    if axis == "tasks":
        return tuple(f"{head}, task {i + 1}" for i in range(task.labels) for head in heads)
    if axis in ("components", "directions"):
        noun = "component" if axis == "components" or _has_components(task) else "input"
        return tuple(f"{noun} {d + 1}" for d in range(task.dim))
    return ("all heads",) if axis == "all" else ("sum of μ", "positive against negative")


def _name_series(panel: Panel, series: tuple[str, ...]) -> Panel:
    """The panel with the series that are drawn; its words say how many are left out."""
    if len(series) > LARGEST_SERIES:
        more = f" The first {LARGEST_SERIES} of {len(series)} are drawn."
        panel = panel._replace(words=panel.words + more)
    return panel._replace(series=series[:LARGEST_SERIES])


def _head_names(model: AbstractModel) -> tuple[str, ...]:
    count = eqx.filter_eval_shape(read_heads, model)[1].shape[0]
    layers = weight_sets(model) or 1
    heads = count // layers
    if layers == 1:
        return tuple(f"head {h + 1}" for h in range(heads))
    return tuple(f"layer {h // heads + 1}, head {h % heads + 1}" for h in range(count))


def _matrix_labels(task: AbstractTask, model: AbstractModel) -> tuple[Matrix, Matrix]:
    letter = "e" if _has_components(task) else "x"
    inputs = tuple(f"{letter}{d + 1}" for d in range(task.dim))
    outputs = ("y",) if task.labels == 1 else tuple(f"y{i + 1}" for i in range(task.labels))
    tokens = inputs + outputs
    if isinstance(model, AttentionStack):
        return Matrix("KQ", tokens, tokens), Matrix("OV", tokens, tokens)
    return Matrix("KQ", tokens, inputs), Matrix("OV", outputs, tokens)


def _matrices(points: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """The key-query and output-value matrices of the heads, in the shapes of `_matrix_labels`."""
    models = points.models
    if not isinstance(models, AttentionStack):
        return points.circuits.attention, points.circuits.values
    # Layers write to every entry of a token: their matrices are shown whole, layer after layer.
    whole = (np.asarray(weights) for weights in (models.key_query, models.value))
    blocks, values = (x.reshape(x.shape[0], -1, *x.shape[3:]) for x in whole)
    return blocks, values


def _has_components(task: AbstractTask) -> bool:
    """Whether the directions of the inputs are principal components, not just coordinates."""
    found = components(task)
    return found is not None and found.distinct

"""What is drawn below the loss: numbers of heads and components, at every saved point of a run."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ..analysis import balancedness, best_strengths, component_strengths, role_names
from ..experiment import Experiment
from ..models import (
    AbstractModel,
    AttentionStack,
    ConvolutionalLinear,
    FullMergedKQ,
    FullSeparateKQ,
    MergedKQ,
    SeparateKQ,
    TwoLayerLinear,
)
from ..tasks import MultiTaskRegression
from ..trajectory import Trajectory
from ._matrices import Heads, Matrix, Reader, reader_of

LARGEST_SERIES = 32
# Linear attention and its equivalents, whose conserved quantities are known.
_CONSERVING = (
    *(MergedKQ, FullMergedKQ, TwoLayerLinear),
    *(SeparateKQ, FullSeparateKQ, ConvolutionalLinear),
)
# They are computed as long as this is done in no time: heads times squared dimension.
_LARGEST_CONSERVED = 512


class Panel(NamedTuple):
    """One diagram over time: what it shows, and the names of its lines."""

    id: str
    title: str
    words: str
    y: str
    series: tuple[str, ...]
    log: bool = False


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


Measure = Callable[[Heads], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Panels:
    """The panels that exist for an experiment. Each point is measured by itself, so that a run can
    be measured piece by piece.

    **Fields:**

    - `lines`: the diagrams.
    - `heads`: the names of the heads.
    - `matrices`: what every head has.
    - `gains`: the best strength of each component, where the task has components.
    """

    clock: str
    lines: tuple[Panel, ...]
    heads: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    gains: np.ndarray | None
    reader: Reader
    measures: tuple[Measure, ...]
    roles: Measure | None

    def measure(self, run: Trajectory, matrices: bool = True) -> Measured:
        """The measurements at every point of a run of this experiment; `matrices` says whether
        those of the heads are wanted too, which are many numbers."""
        # Weights that ran away make infinities, which are shown as gaps.
        with np.errstate(all="ignore"):
            heads = self.reader.read(run)
            lines = {
                panel.id: np.asarray(measure(heads), np.float64)[:, : len(panel.series)]
                for panel, measure in zip(self.lines, self.measures)
            }
            roles = None if self.roles is None else self.roles(heads)
        shown = (heads.attention, heads.values) if matrices else ()
        named = zip(self.matrices, shown)
        return Measured(lines, roles, {m.name: np.asarray(x, np.float32) for m, x in named})


class _Drawn(NamedTuple):
    """A panel and how it is measured."""

    panel: Panel
    measure: Measure


def panels_of(experiment: Experiment) -> Panels:
    """The panels that exist for the model and the task of an experiment."""
    task, config = experiment.task, experiment.config
    reader = reader_of(task, experiment.model)
    names = role_names(task, experiment.model)
    normaliser: Any = getattr(experiment.model, "normaliser", "context")
    gains = None if names is None else best_strengths(task, normaliser)
    roles: Measure | None = None
    if names is not None:
        roles = lambda heads: names.of(heads.attention, heads.values, heads.omega, heads.mu)
    if isinstance(experiment.model, AttentionStack):
        drawn = _attend_and_read(reader, "ω", "μ")
    elif isinstance(task, MultiTaskRegression):
        drawn = _several_tasks(reader, task.labels)
    elif gains is not None and not config.model.softmax:
        drawn = _linear(experiment, reader, gains)
    else:
        drawn = _softmax(experiment, reader, gains)
    clock = "time" if config.flow.kind == "gradient_flow" else "step"
    lines = tuple(_cut(each.panel) for each in drawn)
    measures = tuple(each.measure for each in drawn)
    return Panels(clock, lines, reader.labels, reader.matrices, gains, reader, measures, roles)


def contributions(heads: Heads) -> np.ndarray:
    """What each head adds to the strength of each component, (T, H, D)."""
    return component_strengths(heads.attention, heads.values[:, :, 0])


def _linear(experiment: Experiment, reader: Reader, gains: np.ndarray) -> list[_Drawn]:
    dim = len(gains)
    components = tuple(f"component {d + 1}" for d in range(dim))
    drawn = [
        _Drawn(
            Panel(
                "strengths",
                "Strength of each component",
                "0 before a principal component is learned, 1 when it has the strength with the "
                "smallest loss.",
                "strength / best strength",
                components,
            ),
            lambda heads: contributions(heads).sum(1) / gains,
        )
    ]
    if experiment.config.model.kind in ("separate", "convolutional"):
        drawn.append(
            _Drawn(
                Panel(
                    "alignment",
                    "Alignment of each head with its component",
                    "The share of a head's key-query matrix that lies along the component nearest "
                    "to it: key and query both point there when it is 1.",
                    "share",
                    reader.labels,
                ),
                lambda heads: component_shares(heads).max(-1),
            )
        )
    drawn.append(
        _Drawn(
            Panel(
                "diagonal",
                "How diagonal the model is",
                "The share of the squared size of all heads together that lies along single "
                "components; the rest mixes them.",
                "share",
                ("all heads",),
            ),
            lambda heads: _diagonal_share(heads)[:, None],
        )
    )
    value = Panel(
        "values", "Value of each head", "v, what it reads from labels.", "v", reader.labels
    )
    size = Panel(
        "sizes", "Size of each key-query matrix", "Its Frobenius norm.", "‖KQ‖", reader.labels
    )
    drawn.append(_Drawn(value, lambda heads: heads.values[:, :, 0, -1]))
    drawn.append(_Drawn(size, lambda heads: np.linalg.norm(heads.attention, axis=(-2, -1))))
    return drawn + _conserved(experiment)


def _conserved(experiment: Experiment) -> list[_Drawn]:
    """How well gradient flow keeps what it conserves."""
    config, model = experiment.config, experiment.model
    conserving = isinstance(model, _CONSERVING) and config.flow.kind != "adam"
    if not conserving or config.model.heads * experiment.task.dim**2 > _LARGEST_CONSERVED:
        return []
    start = _conserved_values(jax.tree.map(lambda leaf: np.asarray(leaf)[None], model))
    panel = Panel(
        "conserved",
        "What gradient flow conserves",
        "The largest change since the start of the differences between the sizes of values, keys "
        "and queries, which gradient flow keeps and finite steps do not.",
        "change",
        ("all heads",),
        log=True,
    )

    def drift(heads: Heads) -> np.ndarray:
        change = np.abs(_conserved_values(heads.models) - start)
        # None at all cannot be drawn on a logarithmic axis.
        largest = change.max(-1, initial=0.0)[:, None]
        return np.where(largest > 0, largest, np.nan)

    return [_Drawn(panel, drift)]


def _conserved_values(models: AbstractModel) -> np.ndarray:
    """All conserved quantities of models with a leading axis, in one row a point."""
    count = len(jax.tree.leaves(models)[0])
    if count == 0:
        return np.zeros((0, 1))
    run = Trajectory(np.arange(count, dtype=float), np.zeros(count), models)
    values = balancedness(run).values.values()
    return np.concatenate([each.reshape(count, -1) for each in values], -1)


def component_shares(heads: Heads) -> np.ndarray:
    """The share of the squared size of each head's key-query matrix along each component."""
    dim = heads.attention.shape[-1]
    squares = np.diagonal(heads.attention[:, :, :dim], axis1=-2, axis2=-1) ** 2
    whole = np.sum(heads.attention**2, (-2, -1))[..., None]
    return squares / np.where(whole > 0, whole, 1.0)


def _diagonal_share(heads: Heads) -> np.ndarray:
    dim = heads.attention.shape[-1]
    blocks, values = heads.attention, heads.values[:, :, 0]
    matrix = np.einsum("th,thde->tde", values[..., -1], blocks[:, :, :dim], optimize=True)
    matrix = matrix + np.einsum("thd,the->tde", values[..., :dim], blocks[:, :, -1], optimize=True)
    squares, whole = np.einsum("taa->ta", matrix) ** 2, np.sum(matrix**2, (1, 2))
    return squares.sum(-1) / np.where(whole > 0, whole, 1.0)


def _attend_and_read(reader: Reader, omega: str, mu: str) -> list[_Drawn]:
    return [
        _Drawn(
            Panel(
                "omega",
                "What each head attends to",
                "ω, the mean of the diagonal of key-query on the inputs: above 0 it attends to "
                "similar inputs, below 0 to opposite ones.",
                omega,
                reader.labels,
            ),
            lambda heads: heads.omega[..., 0],
        ),
        _Drawn(
            Panel(
                "mu",
                "What each head reads from labels",
                "μ, with which the label of a token enters the prediction.",
                mu,
                reader.labels,
            ),
            lambda heads: heads.mu[..., 0],
        ),
    ]


def _softmax(experiment: Experiment, reader: Reader, gains) -> list[_Drawn]:
    drawn = _attend_and_read(reader, "ω", "μ")
    kind = experiment.config.model.kind
    one_number = kind == "structured" and not getattr(experiment.config.model, "per_coordinate")
    if not one_number:
        letter = "component" if gains is not None and reader.matrices[0].columns[0] == "e1" else ""
        names = tuple(f"{letter or 'input'} {d + 1}" for d in range(experiment.task.dim))
        drawn.append(
            _Drawn(
                Panel(
                    "steps",
                    "Gradient step of all heads together",
                    "The sum over heads of μ times the diagonal of key-query: the step along each "
                    "direction, to first order in the attention.",
                    "step size",
                    names,
                ),
                lambda heads: contributions(heads).sum(1),
            )
        )
        drawn.append(
            _Drawn(
                Panel(
                    "diagonal",
                    "How diagonal key-query is",
                    "The size of its diagonal as a share of all of it: 1 for a head that compares "
                    "inputs coordinate by coordinate.",
                    "share",
                    reader.labels,
                ),
                _diagonal_shares,
            )
        )
    if kind == "factored" or getattr(experiment.config.model, "form", "reduced") == "full":
        drawn.append(
            _Drawn(
                Panel(
                    "last",
                    "How much of output-value is the label",
                    "|μ| as a share of all that a head reads: 1 when it reads labels alone.",
                    "share",
                    reader.labels,
                ),
                lambda heads: _ratio(
                    np.abs(heads.mu[..., 0]), np.linalg.norm(heads.values[:, :, 0], axis=-1)
                ),
            )
        )
    if len(reader.labels) > 1:
        drawn.append(
            _Drawn(
                Panel(
                    "sums",
                    "Do positive and negative heads cancel?",
                    "Sum of μ over heads as a share of its size, and the same for what positive "
                    "and negative heads add to the step: both 0 for a debiased step.",
                    "share",
                    ("sum of μ", "positive against negative"),
                ),
                lambda heads: np.stack(
                    [zero_sums(heads.mu[..., 0]), balances(heads.omega[..., 0], heads.mu[..., 0])],
                    -1,
                ),
            )
        )
    return drawn


def _diagonal_shares(heads: Heads) -> np.ndarray:
    dim = heads.attention.shape[-1]
    diagonal = np.diagonal(heads.attention[:, :, :dim], axis1=-2, axis2=-1)
    return _ratio(np.linalg.norm(diagonal, axis=-1), np.linalg.norm(heads.attention, axis=(-2, -1)))


def zero_sums(mu: np.ndarray) -> np.ndarray:
    """|Σ μ_h| / Σ |μ_h| at each point."""
    return _ratio(np.abs(mu.sum(1)), np.abs(mu).sum(1))


def balances(omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """|Σ₊ μω − Σ₋ μω| / Σ |μω| at each point."""
    product = mu * omega
    return _ratio(np.abs(np.sum(product * np.sign(omega), 1)), np.abs(product).sum(1))


def _several_tasks(reader: Reader, tasks: int) -> list[_Drawn]:
    names = tuple(f"{head}, task {i + 1}" for i in range(tasks) for head in reader.labels)
    flat = lambda values: np.swapaxes(values, 1, 2).reshape(len(values), -1)
    panel = lambda id, title, words, y: Panel(id, title, words, y, names)
    return [
        _Drawn(
            panel(
                "share",
                "Which head works for which task",
                "What a head adds to the gradient step on a task, as a share of what all heads do.",
                "share of the task",
            ),
            lambda heads: flat(shares(heads)),
        ),
        _Drawn(
            panel(
                "step",
                "Step of each head on each task",
                "μω, what a head adds to the gradient step on a task, to first order.",
                "step size",
            ),
            lambda heads: flat(heads.mu * heads.omega),
        ),
        _Drawn(
            panel("omega", "What each head attends to", "ω, by head and task.", "ω"),
            lambda heads: flat(heads.omega),
        ),
        _Drawn(
            panel("mu", "What each head reads from labels", "μ, by head and task.", "μ"),
            lambda heads: flat(heads.mu),
        ),
    ]


def shares(heads: Heads) -> np.ndarray:
    """|μω| of each head and task as a share of what all heads have for the task, (T, H, I)."""
    strength = np.abs(heads.mu * heads.omega)
    return _ratio(strength, strength.sum(1, keepdims=True))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, 1.0)


def _cut(panel: Panel) -> Panel:
    """The panel with as many series as can be told apart, and a word about those left out."""
    count = len(panel.series)
    if count <= LARGEST_SERIES:
        return panel
    words = f"{panel.words} The first {LARGEST_SERIES} of {count} are drawn."
    return panel._replace(words=words, series=panel.series[:LARGEST_SERIES])

"""The heads of a watched model: how their weights are read, and what they do at one moment."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..analysis import Head as HeadPattern
from ..analysis import Patterns, has_circuits, named_patterns
from ..checkpoints import Layer, ReadIn, Weights, from_circuits, read_layers
from ..errors import InputError
from ..models import AbstractModel
from ..runtime.precision import in_float64
from ..tasks import AbstractTask
from ._predictions import PredictionError, double, to_numpy

# The heads of each layer, as they are now; called with the number of labels.
ReadCircuits = Callable[[int], tuple[Layer, ...]]
# The names of a head on several labels are joined.
_BETWEEN = " / "
_WHAT = (
    "must be a module of PyTorch, `icl.watch.heads(…)`, or a function without arguments that "
    "returns an attention model of iclflow, tensors by name, or the circuits (kq, ov)"
)


class Heads:
    """The layers of attention of a module of PyTorch, read by the names of their tensors.

    Known are `torch.nn.MultiheadAttention`, layers with q_proj, k_proj, v_proj and o_proj, GPT-2 of
    `transformers` and `HookedTransformer` of TransformerLens.

    **Arguments:**

    - `source`: the module, or tensors by name, or a function that returns either.
    - `heads`: how many a layer has; needed where neither its shapes nor its config say it.
    - `labels`: the number of labels; by default that of the task.
    - `embed`, `unembed`, `interleaved`: how tokens enter the space that layers read and write, and
      how labels leave it; see `ReadIn`.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> heads = icl.watch.heads(checkpoints.to_state_dict(model), heads=2)
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, circuits=heads)
    >>> len(watch(0).layers[0].roles)
    2
    ```
    """

    def __init__(
        self,
        source: Any,
        heads: int | None = None,
        *,
        labels: int | None = None,
        embed: Any = None,
        unembed: Any = None,
        interleaved: bool = False,
    ):
        self._source, self._heads, self._labels = source, heads, labels
        self._read_in = ReadIn(embed, unembed, interleaved)

    def __call__(self, labels: int) -> tuple[Layer, ...]:
        source = self._source
        if callable(source) and not _is_weights(source):
            source = source()  # of somebody else: in their own precision
        weights = Weights(source)
        labels = labels if self._labels is None else self._labels
        settings = weights.settings
        with in_float64():
            return read_layers(weights, self._heads, labels, self._read_in, settings, "model")


@dataclasses.dataclass(frozen=True)
class LayerLook:
    """The heads of one layer at one moment.

    **Fields:**

    - `name`: where the layer is in the model.
    - `roles`: what each head is called; see `iclflow.analysis.roles`.
    - `labels`: what the heads do on each label.
    - `left_out`: what else takes part in what the heads do, and was not read.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints, watching
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> heads = icl.watch.heads(checkpoints.to_state_dict(model), heads=2)
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, circuits=heads)
    >>> layer = watch(0).layers[0]
    >>> isinstance(layer, watching.LayerLook), len(layer.labels)
    (True, 1)
    ```
    """

    name: str
    roles: tuple[str, ...]
    labels: tuple[Patterns, ...]
    left_out: tuple[str, ...] = ()

    @staticmethod
    def from_json(data: dict[str, Any]) -> "LayerLook":
        """A layer of plain data."""
        labels = tuple(
            Patterns(**(each | {"heads": tuple(HeadPattern(**head) for head in each["heads"])}))
            for each in data["labels"]
        )
        return LayerLook(data["name"], tuple(data["roles"]), labels, tuple(data["left_out"]))

    def metrics(self) -> dict[str, float]:
        """The numbers of heads by name, for a logger."""
        found = {}
        for label, measured in enumerate(self.labels):
            of = f"/{label}" if len(self.labels) > 1 else ""
            for number, head in enumerate(measured.heads, 1):
                stem = f"icl/{self.name}/head {number}{of}"
                found |= {f"{stem}/omega": head.omega, f"{stem}/mu": head.mu}
        return found


def as_reader(circuits: Any) -> ReadCircuits | None:
    """How to read heads, from what `icl.watch` was given."""
    if circuits is None or isinstance(circuits, Heads):
        return circuits
    if isinstance(circuits, AbstractModel):
        raise InputError("`circuits` is one model of iclflow: must be a function that returns the "
                         "present one.")  # fmt: skip
    if _is_weights(circuits):
        return Heads(circuits)
    if not callable(circuits):
        raise InputError(f"`circuits` is a {type(circuits).__name__}: {_WHAT}.")
    return lambda labels: _read(circuits(), labels)


def look_at_heads(layers: tuple[Layer, ...], task: AbstractTask) -> tuple[LayerLook, ...]:
    """What the heads of these layers do, on a task in float64."""
    with in_float64():
        return tuple(_look_at_layers(layers, task))


def _look_at_layers(layers: tuple[Layer, ...], task: AbstractTask) -> Iterator[LayerLook]:
    whole = whole_model(layers)
    for name, model, left_out in layers:
        _check_tokens(name, model, task)
        found = [
            named_patterns(model, task, label, whole is not None) for label in range(model.labels)
        ]
        roles = _over_labels([names for _, names in found])
        yield LayerLook(name, roles, tuple(measured for measured, _ in found), left_out)


def _check_tokens(name: str, model: AbstractModel, task: AbstractTask) -> None:
    """Refuses a layer that reads other tokens than the (x; y) of the task."""
    dim = np.shape(getattr(model, "kq", lambda: np.zeros(task.dim))())[-1]
    if dim != task.dim:
        raise InputError(
            f"`{name}` reads tokens with {dim} inputs, and the task has {task.dim}: if there are "
            "linear layers before and behind attention, name them: `icl.watch.heads(module, "
            "embed=…, unembed=…)`."
        )


def whole_model(layers: tuple[Layer, ...]) -> AbstractModel | None:
    """The model that the heads are all of; None if there is more to it."""
    return layers[0].model if len(layers) == 1 and not layers[0].left_out else None


def role_on(role: str, label: int) -> str:
    """The name of a head on one label."""
    names = role.split(_BETWEEN)
    return names[label] if len(names) > 1 else role


def _over_labels(names: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The name of each head on every label, once if it is the same on all."""
    return tuple(_BETWEEN.join(each if len(set(each)) > 1 else each[:1]) for each in zip(*names))


def _read(found: Any, labels: int) -> tuple[Layer, ...]:
    """The layers in what a function of somebody else returned."""
    if isinstance(found, AbstractModel) and has_circuits(found):
        with in_float64():
            model: Any = double(found)
        return (Layer("attention", model, ()),)
    if _is_weights(found):
        return Heads(found)(labels)
    if isinstance(found, tuple) and found and all(isinstance(each, Layer) for each in found):
        return found
    if isinstance(found, tuple | list) and len(found) == 2:
        try:
            kq, ov = (to_numpy(part, "circuits") for part in found)
        except PredictionError as error:
            raise InputError(str(error)) from error
        with in_float64():
            return (Layer("attention", from_circuits(kq, ov), ()),)
    raise InputError(f"`circuits` returned a {type(found).__name__}: {_WHAT}.")


def _is_weights(given: Any) -> bool:
    return isinstance(given, Mapping) or callable(getattr(given, "state_dict", None))

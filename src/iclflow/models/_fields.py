"""The fields of a model by name, and whether it is one model or a stack of them.

The fields are its own and those of its circuits; names never repeat. A stack, such as the `models`
of a run, is many models in one, with one more axis in front of every weight. It is for `vmap`: to
compute with it as if it were one model would give numbers of the wrong shape. How many axes a
weight has is written in its annotation.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import numpy as np

from ..errors import InputError


def parts_of(model: eqx.Module) -> list[eqx.Module]:
    """The modules that hold the fields of a model: itself, and its circuits if it has some."""
    # One level deep: circuits hold arrays, never further modules.
    values = (getattr(model, field.name) for field in dataclasses.fields(model))
    return [model, *(value for value in values if isinstance(value, eqx.Module))]


def model_arrays(model: eqx.Module) -> dict[str, np.ndarray]:
    """The weights of a model by field name.

    **Example:**

    ```pycon
    >>> model = icl.Attention.separate(jr.key(0), dim=3, heads=2)
    >>> {name: array.shape for name, array in icl.models.model_arrays(model).items()}
    {'value': (2, 1, 1), 'K': (2, 3, 1), 'Q': (2, 3, 1)}
    ```
    """
    named = _named_fields(model, static=False)
    return {name: np.asarray(value) for name, value in named if not isinstance(value, eqx.Module)}


def model_settings(model: eqx.Module) -> dict[str, Any]:
    """The static fields of a model by name, and the class of its circuits.

    **Example:**

    ```pycon
    >>> icl.models.model_settings(icl.Attention.merged(jr.key(0), dim=3, heads=2))
    {'circuits': 'Merged', 'activation': 'linear', 'normaliser': 'context', 'self_attention': True}
    ```
    """
    named = _named_fields(model, static=False)
    kinds = {name: type(part).__name__ for name, part in named if isinstance(part, eqx.Module)}
    return kinds | dict(_named_fields(model, static=True))


def _named_fields(model: eqx.Module, static: bool) -> Iterator[tuple[str, Any]]:
    for part in parts_of(model):
        for field in dataclasses.fields(part):
            if bool(field.metadata.get("static")) == static:
                yield field.name, getattr(part, field.name)


def refuse_stacks(model_class: type, path: str = "model") -> None:
    """Makes the public methods of a class raise an error on a stack of models. `path` is how a
    function of one model reaches an object of this class."""
    for name, method in list(vars(model_class).items()):
        # Properties are left alone: they read shapes from the back, which are those of one model.
        public = name == "__call__" or not name.startswith("_")
        if public and isinstance(method, types.FunctionType):
            setattr(model_class, name, _for_one_model(method, path))


def check_single(model: Any, use: str = "function") -> None:
    """Refuses a stack of models; `use` is the call that the error message suggests."""
    for name, shape, allowed in axes_of_weights(model):
        axes = max(allowed)
        if len(shape) > axes:
            raise InputError(
                name,
                problem=f"of this {type(model).__name__} has shape {shape}",
                allowed=f"must have {axes} ax{'i' if axes == 1 else 'e'}s, so this is a stack of "
                "models, as `run.models` is; take one of them, as by `run.at(i)` or "
                f"`run.final`, or each, by `run.map({use})`",
            )


def _for_one_model(method: Callable, path: str) -> Callable:
    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        given = "…" if arguments or options else ""
        check_single(self, f"lambda model: {path}.{method.__name__}({given})")
        return method(self, *arguments, **options)

    return checked


def axes_of_weights(model: Any) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """The name and shape of each weight, and how many axes its annotation allows. Weights with any
    number of axes are left out.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> icl.models.axes_of_weights(model)
    [('value', (2, 1, 1), (3,)), ('key_query', (2, 3, 3), (3,))]
    ```
    """
    return [
        (name, tuple(getattr(getattr(part, name), "shape", ())), axes)
        for part in parts_of(model)
        for name, axes in _annotated_axes(type(part)).items()
    ]


@functools.cache
def _annotated_axes(model_class: type) -> dict[str, tuple[int, ...]]:
    found = {field.name: _axes(field.type) for field in dataclasses.fields(model_class)}
    return {name: axes for name, axes in found.items() if axes is not None}


def _axes(annotation: Any) -> tuple[int, ...] | None:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        each = [_axes(part) for part in typing.get_args(annotation)]
        return None if None in each else tuple(axes for some in each for axes in some or ())
    # In jaxtyping `index_variadic` is the place of "*batch" in "*batch D"; None: no such axes.
    if getattr(annotation, "index_variadic", 0) is not None:
        return None
    return (len(annotation.dims),)

"""One model, or a stack of them: many models in one, every weight with an axis more in front.

A stack, such as the `models` of a run, is for `vmap`: computing with it as if it were one model
would give numbers of the wrong shape. How many axes a weight has stands in its annotation.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

from ..errors import InputError
from ._fields import parts_of


def refuse_stacks(model_class: type, path: str = "model") -> None:
    """Makes the public methods that a class defines refuse a stack of models; `path` is where a
    function of one model finds an object of this class."""
    for name, method in list(vars(model_class).items()):
        # Properties are left alone: they read shapes from the back, and so hold for stacks too.
        public = name == "__call__" or not name.startswith("_")
        if public and isinstance(method, types.FunctionType):
            setattr(model_class, name, _for_one_model(method, path))


def check_single(model: Any, use: str = "function") -> None:
    """Refuses a stack of models; `use` is the function of one model that was wanted."""
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
    """The name and shape of each weight, and how many axes it may have by its annotation; those
    whose annotation leaves it open are not listed."""
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
    # jaxtyping's; `index_variadic` is where a shape such as "*batch D" has any number of axes.
    if getattr(annotation, "index_variadic", 0) is not None:
        return None
    return (len(annotation.dims),)

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


def refuse_stacks(model_class: type) -> None:
    """Makes the public methods that a class defines refuse a stack of models."""
    for name, method in list(vars(model_class).items()):
        public = name == "__call__" or not name.startswith("_")
        if public and isinstance(method, types.FunctionType):
            setattr(model_class, name, _for_one_model(method))


def check_single(model: Any, use: str = "function") -> None:
    """Refuses a stack of models; `use` is the function of one model that was wanted."""
    for name, allowed in axes_of_weights(type(model)).items():
        shape, axes = getattr(getattr(model, name), "shape", ()), max(allowed)
        if len(shape) > axes:
            raise ValueError(
                f"`{name}` of this {type(model).__name__} has shape {tuple(shape)}: must have "
                f"{axes} ax{'i' if axes == 1 else 'e'}s, so this is a stack of models, as "
                "`run.models` is; take one of them, as by `run.at(i)` or `run.final`, or each, by "
                f"`run.map({use})`."
            )


def _for_one_model(method: Callable) -> Callable:
    @functools.wraps(method)
    def checked(self, *arguments, **options):
        given = "…" if arguments or options else ""
        check_single(self, f"lambda model: model.{method.__name__}({given})")
        return method(self, *arguments, **options)

    return checked


@functools.cache
def axes_of_weights(model_class: type) -> dict[str, tuple[int, ...]]:
    """How many axes each weight may have, by the annotations; those that leave it open are not
    listed."""
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

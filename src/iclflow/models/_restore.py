"""A model from the weights and the settings of a file, which may say anything."""

import dataclasses
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, jaxtyped

from ..files import shorten
from ..tasks import MultiSequences, Sequences
from ._base import AbstractModel
from ._stack import AttentionStack

# What a file may state without holding weights of that size. No model comes near it.
_LARGEST_SIZE = 10_000


def restore_model(
    model_class: type[AbstractModel],
    arrays: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    points: int | None = None,
) -> AbstractModel:
    """A model with these weights and settings, if they are what its annotations say.

    A `ValueError` tells which field is wrong, in words that follow the name of the file.

    **Arguments:**

    - `arrays`: the weights by field.
    - `settings`: the static fields as JSON has them; one that is missing has its default.
    - `points`: the length of the leading axis that the weights of a run have.
    """
    fields = {field.name: field for field in dataclasses.fields(model_class)}
    name = model_class.__name__
    for field in fields.values():
        held = settings if field.metadata.get("static") else arrays
        if field.name not in held and field.default is dataclasses.MISSING:
            raise ValueError(f"has no `{field.name}`, which every {name} has")
    for held, static in ((arrays, False), (settings, True)):
        for key in held:
            if key not in fields or bool(fields[key].metadata.get("static")) != static:
                raise ValueError(f"has `{key}`, which is none of the fields of {name}")
    given = {key: _hashable(value) for key, value in settings.items()}
    for key, value in given.items():
        if not _matches(value, fields[key].type):
            raise ValueError(f"has `{key}` = {shorten(value)}, which no {name} can have")
    named = [key for key in fields if key in arrays]
    single = {key: _one_point(key, arrays[key], points) for key in named}
    # A class of somebody else may hold, and predict from, anything.
    if model_class.__module__.partition(".")[0] == __name__.partition(".")[0]:
        _check_weights({key: fields[key].type for key in single}, arrays, single, name)
        _check_prediction(model_class, single, given)
    return assemble(model_class, {**arrays, **given})


def assemble(model_class: type[AbstractModel], fields: Mapping[str, Any]) -> AbstractModel:
    """A model with these fields. Not through its `__init__`, whose shapes know no time axis."""
    model = object.__new__(model_class)
    for name, value in fields.items():
        object.__setattr__(model, name, value)
    return model


def count_inputs(model: AbstractModel) -> int:
    """D, the dimension of the inputs that a model reads."""
    if isinstance(model, AttentionStack):
        return model.key_query.shape[-1] - 1
    source: Any = model
    matrices = source.kq if hasattr(model, "kq") else model.coefficients
    return eqx.filter_eval_shape(matrices).shape[-1]


def _one_point(name: str, array: np.ndarray, points: int | None) -> jax.ShapeDtypeStruct:
    """The shape of a weight at one point. In single precision, which is always switched on."""
    if points is not None and (array.ndim == 0 or len(array) != points):
        raise ValueError(f"has `{name}` of shape {array.shape}: must begin with {points} points")
    return jax.ShapeDtypeStruct(array.shape if points is None else array.shape[1:], np.float32)


def _check_weights(
    annotations: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    single: Mapping[str, jax.ShapeDtypeStruct],
    name: str,
) -> None:
    """Refuses numbers of another type, and axes that are not those of the annotations."""
    with jaxtyped("context"):  # an axis has the same length in every field
        for key, weight in single.items():
            if not np.issubdtype(arrays[key].dtype, np.floating):
                raise ValueError(f"has `{key}` of type {arrays[key].dtype}: must be float64")
            allowed = _shapes(annotations[key])
            if 0 in weight.shape or not any(isinstance(weight, shape) for shape in allowed):
                raise ValueError(f"has `{key}` of shape {weight.shape}, which fits no {name}")


def _shapes(annotation: Any) -> list[Any]:
    """The axes that an annotation such as `Float[Array, "H D"]` asks for, of something that takes
    no memory."""
    kinds = get_args(annotation) if _is_union(annotation) else (annotation,)
    return [Float[jax.ShapeDtypeStruct, kind.dim_str] for kind in kinds]


def _matches(value: Any, annotation: Any) -> bool:
    """Whether a setting is what its annotation says, and of a sane size."""
    if _is_union(annotation):
        return any(_matches(value, kind) for kind in get_args(annotation))
    if get_origin(annotation) is Literal:
        return isinstance(value, str) and value in get_args(annotation)
    if get_origin(annotation) is tuple:
        kinds = get_args(annotation)
        if not isinstance(value, tuple):
            return False
        if kinds[1:] == (...,):
            return all(_matches(entry, kinds[0]) for entry in value)
        return len(value) == len(kinds) and all(map(_matches, value, kinds))
    if annotation is bool or annotation is type(None):
        return isinstance(value, annotation)
    if annotation is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and abs(value) <= _LARGEST_SIZE
    return True


def _check_prediction(
    model_class: type[AbstractModel],
    weights: Mapping[str, jax.ShapeDtypeStruct],
    settings: Mapping[str, Any],
) -> None:
    """Has a model predict in the abstract: no numbers, no memory."""

    def predict(weights):
        model = model_class(**weights, **settings)
        dim, labels, tokens = count_inputs(model), model.labels, 2
        if dim < 1:
            raise ValueError("there are no inputs")
        dtype = next(iter(weights.values())).dtype
        wide = () if labels is None else (labels,)
        kind = Sequences if labels is None else MultiSequences
        shapes = ((1, tokens, dim), (1, tokens, *wide), (1, dim), (1, *wide), (1,))
        return model.predict(kind(*(jax.numpy.zeros(shape, dtype) for shape in shapes)))

    try:
        jax.eval_shape(predict, dict(weights))
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:160].rstrip(".")
        raise ValueError(f"has weights that do not fit together ({reason})") from None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _hashable(value: Any) -> Any:
    """Static fields that were tuples before JSON made lists of them."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value

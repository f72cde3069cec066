"""A model from the weights and the settings of a file. Nothing in a file is trusted."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, jaxtyped

from ..errors import shorten
from ..tasks import Sequences
from ._attention import Attention, C
from ._base import AbstractModel
from ._circuits import AbstractCircuits
from ._first_build import FIRST_BUILD, translate

T = TypeVar("T")

# The largest whole number in a setting: a file may state a `dim` without weights of that size, and
# one line of text must not fill the memory. No model comes near it.
_LARGEST_SIZE = 10_000


def restore_model(
    kind: str,
    arrays: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    points: int | None = None,
    model_class: type[AbstractModel | AbstractCircuits] | None = None,
) -> AbstractModel:
    """A model with these weights and settings, if they are what its annotations say.

    A `ValueError` says which field is wrong, as the end of a sentence that begins with the file.

    **Arguments:**

    - `kind`: the name of its class, which may be one of an earlier version.
    - `arrays`: the weights by field.
    - `settings`: the static fields as JSON has them, and the name of the class of the circuits. A
      missing one has its default.
    - `points`: the length of the leading axis that the weights of a run have.
    - `model_class`: the class of the model, or of the circuits of attention, if it is not ours.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> parts = icl.models.model_arrays(model), icl.models.model_settings(model)
    >>> same = icl.models.restore_model("Attention", *parts)
    >>> np.array_equal(same.circuits.key_query, model.circuits.key_query)
    True
    ```
    """
    if model_class is None:
        kind, arrays, settings = translate(kind, arrays, settings)
    if not is_known_model(kind, model_class):
        raise ValueError(f"holds a {shorten(kind)}: must be one of {', '.join(known_models())}")
    own = model_class
    model_class = (
        own if own is not None and issubclass(own, AbstractModel) else known_models()[kind]
    )
    circuits, settings = _circuits_class(model_class, settings, own)
    fields = _fields(model_class) | ({} if circuits is None else _fields(circuits))
    name = model_class.__name__ if circuits is None else circuits.__name__
    # Complete, then nothing else, then of the right kind: each error names the first wrong field.
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
    # A class from outside of this library may hold, and predict from, anything.
    if (own or model_class).__module__.partition(".")[0] == __name__.partition(".")[0]:
        _check_weights({key: fields[key].type for key in single}, arrays, single, name)
        _check_prediction(lambda weights: _build(model_class, circuits, weights, given), single)
    # Not through `__init__`, which refuses the time axis of a run.
    return _build(model_class, circuits, arrays, given, make=_assemble)


def known_models() -> dict[str, type[AbstractModel]]:
    """The classes of models that files may name: those that this package exports.

    **Example:**

    ```pycon
    >>> "Attention" in icl.models.known_models()
    True
    ```
    """
    return _find_exported(AbstractModel)


def known_circuits() -> dict[str, type[AbstractCircuits]]:
    """The classes of circuits that files may name: those that this package exports.

    **Example:**

    ```pycon
    >>> "Merged" in icl.models.known_circuits()
    True
    ```
    """
    return _find_exported(AbstractCircuits)


@functools.cache
def _find_exported(base: type[T]) -> dict[str, type[T]]:
    # When this is called, all of the package is loaded.
    from .. import models

    exported = vars(models).items()
    classes = {name: kind for name, kind in exported if isinstance(kind, type)}
    return {
        name: kind
        for name, kind in classes.items()
        if issubclass(kind, base) and not _is_abstract(kind)
    }


def _is_abstract(kind: type) -> bool:
    """Whether a class has methods, or variables of Equinox, that only its subclasses define."""
    return inspect.isabstract(kind) or bool(getattr(kind, "__abstractvars__", ()))


def _circuits_class(
    model_class: type[AbstractModel], settings: Mapping[str, Any], own: type | None
) -> tuple[type[AbstractCircuits] | None, dict[str, Any]]:
    """The class of the circuits, if the model has any, and the other settings."""
    rest = dict(settings)
    if model_class is not Attention:
        return None, rest
    name = rest.pop("circuits", None)
    known = known_circuits() if own is None else {own.__name__: own}
    if not isinstance(name, str) or name not in known:
        hint = "; pass the class of your own circuits as `model_class`" if own is None else ""
        raise ValueError(
            f"has `circuits` = {shorten(name)}: must be one of {', '.join(known)}{hint}"
        )
    circuits = known[name]
    default = {"activation": circuits.activation, "self_attention": circuits.self_attention}
    return circuits, {"normaliser": "context", **default, **rest}


def _fields(module: type) -> dict[str, dataclasses.Field]:
    """The fields of a module without its circuits, whose fields are listed apart."""
    found = {field.name: field for field in dataclasses.fields(module)}
    return {name: field for name, field in found.items() if field.type is not C}


def _build(
    model_class: type[AbstractModel],
    circuits: type[AbstractCircuits] | None,
    weights: Mapping[str, Any],
    settings: Mapping[str, Any],
    make: Callable[..., Any] = lambda module, fields: module(**fields),
) -> AbstractModel:
    """A model from the fields of it and of its circuits."""
    held = {**weights, **settings}
    if circuits is None:
        return make(model_class, held)
    inner = {name: held.pop(name) for name in _fields(circuits) if name in held}
    return make(model_class, {"circuits": make(circuits, inner), **held})


def _assemble(module: type, fields: Mapping[str, Any]) -> Any:
    found = object.__new__(module)
    for name, value in fields.items():
        object.__setattr__(found, name, value)
    return found


def is_known_model(kind: Any, model_class: type | None = None) -> bool:
    """Whether a model of this class, now or in earlier versions, can be restored.

    **Arguments:**

    - `kind`: the name of the class in a file.
    - `model_class`: as in `restore_model`.

    **Example:**

    ```pycon
    >>> icl.models.is_known_model("AttentionStack"), icl.models.is_known_model("Transformer")
    (True, False)
    ```
    """
    if model_class is None:
        return kind in known_models() or kind in FIRST_BUILD
    # Circuits from outside of this library are always those of attention.
    return (
        kind == (Attention if issubclass(model_class, AbstractCircuits) else model_class).__name__
    )


def count_inputs(model: AbstractModel) -> int:
    """D, the dimension of the inputs that a model reads.

    **Example:**

    ```pycon
    >>> icl.models.count_inputs(icl.Attention.merged(jr.key(0), dim=3, heads=2))
    3
    ```
    """
    dim = getattr(model, "dim", None)
    return eqx.filter_eval_shape(model.coefficients).shape[-1] if dim is None else dim


def name_of(model: AbstractModel) -> str:
    """The name of a model in messages.

    **Example:**

    ```pycon
    >>> icl.models.name_of(icl.Attention.merged(jr.key(0), dim=3, heads=2))
    'Merged attention'
    ```
    """
    if isinstance(model, Attention):
        return f"{type(model.circuits).__name__} attention"
    return type(model).__name__


def _one_point(name: str, array: np.ndarray, points: int | None) -> jax.ShapeDtypeStruct:
    """The shape of a weight at one point, in single precision: float64 may not be switched on."""
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
    """The shapes that an annotation such as `Float[Array, "H D"]` allows, without numbers."""
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
    build: Callable[[Any], AbstractModel], weights: Mapping[str, jax.ShapeDtypeStruct]
) -> None:
    """Traces a prediction with shapes alone, which needs no numbers and no memory."""

    def predict(weights: dict[str, Any]) -> Any:
        model = build(weights)
        # Two tokens: the smallest context with more than one.
        dim, labels, tokens = count_inputs(model), model.labels, 2
        if dim < 1:
            raise ValueError("there are no inputs")
        dtype = next(iter(weights.values())).dtype
        shapes = ((1, tokens, dim), (1, tokens, labels), (1, dim), (1, labels), (1,))
        return model.predict(Sequences(*(jax.numpy.zeros(shape, dtype) for shape in shapes)))

    try:
        jax.eval_shape(predict, dict(weights))
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        # The message of JAX, which may be pages long, on one line.
        reason = " ".join(str(error).split())[:160].rstrip(".")
        raise ValueError(f"has weights that do not fit together ({reason})") from None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _hashable(value: Any) -> Any:
    """Lists of JSON as the tuples that they were: static fields must be hashable."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value

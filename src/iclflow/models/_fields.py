"""The fields of a model by name: its own, and those of its circuits. Names never repeat."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import numpy as np


def parts_of(model: eqx.Module) -> list[eqx.Module]:
    """The modules that hold the fields of a model: itself, and its circuits if it has some."""
    values = (getattr(model, field.name) for field in dataclasses.fields(model))
    return [model, *(value for value in values if isinstance(value, eqx.Module))]


def model_arrays(model: eqx.Module) -> dict[str, np.ndarray]:
    """The weights of a model by field name."""
    named = _named_fields(model, static=False)
    return {name: np.asarray(value) for name, value in named if not isinstance(value, eqx.Module)}


def model_settings(model: eqx.Module) -> dict[str, Any]:
    """The static fields of a model by name, and the class of its circuits."""
    named = _named_fields(model, static=False)
    kinds = {name: type(part).__name__ for name, part in named if isinstance(part, eqx.Module)}
    return kinds | dict(_named_fields(model, static=True))


def _named_fields(model: eqx.Module, static: bool) -> Iterator[tuple[str, Any]]:
    for part in parts_of(model):
        for field in dataclasses.fields(part):
            if bool(field.metadata.get("static")) == static:
                yield field.name, getattr(part, field.name)

"""Turns errors of pydantic into an `InputError` that names the setting as the file does."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ..errors import InputError, shorten

# Types of values in a file, by pydantic's names.
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "list": "a list",
    "model": "a section of settings",
    "model_attributes": "a section of settings",
    "dict": "a section of settings",
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def find_error(
    error: ValidationError, data: Any, allowed: Mapping[str, Sequence[str]]
) -> InputError:
    """The first error in a config.

    **Arguments:**

    - `data`: what was validated, to name the setting as the user wrote it.
    - `allowed`: the keys of each section (`""`: the top level) for this data, and the kinds of
      each section under `section.kind`.
    """
    first = _most_telling(error.errors(include_url=False))
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        found = context["error"]
        return found if isinstance(found, InputError) else InputError(str(found))
    path = _path(first["loc"], data)
    name = _dotted(path) or "config"
    if kind == "extra_forbidden":
        return _unknown_key(path, data, allowed)
    if kind == "missing":
        return InputError(name, problem="is missing", allowed="it must be given")
    if kind == "union_tag_not_found":
        for key in difflib.get_close_matches("kind", map(str, first["input"]), n=1):
            return _unknown_key([*path, key], data, {name: ["kind"]})
        kinds = ", ".join(repr(kind) for kind in allowed[f"{name}.kind"])
        return InputError(f"{name}.kind", problem="is missing", allowed=f"must be one of {kinds}")
    if kind == "union_tag_invalid":
        return InputError(
            f"{name}.kind", context["tag"], f"must be one of {context['expected_tags']}"
        )
    requirement = _requirement(kind, context, first["msg"])
    return InputError(name, first["input"], f"must be {requirement}")


def _most_telling(found: Sequence[Any]) -> Any:
    """The first error. If it is a missing key, an unknown key in the same section comes first: it
    may be the same key, misspelt."""
    first = found[0]
    if first["type"] != "missing":
        return first
    beside = (e for e in found if e["loc"][:-1] == first["loc"][:-1])
    return next((e for e in beside if e["type"] == "extra_forbidden"), first)


def _requirement(kind: str, context: dict[str, Any], message: str) -> str:
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {context[key]:g}"
    if kind == "finite_number":
        return "finite"
    if kind == "literal_error":
        return f"one of {context['expected'].replace(' or ', ', ')}"
    if kind == "too_short":
        return f"a list with at least {context['min_length']} entry"
    if kind == "string_pattern_mismatch":
        return "made of letters, digits, `.`, `_` and `-`, and begin with a letter or a digit"
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters long"
    stem = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    return _TYPES.get(stem, message.removeprefix("Input should be ").rstrip("."))


def _path(location: tuple, data: Any) -> list[str | int]:
    """The path of a setting as the user wrote it, without pydantic's union tags, and without the
    index into a list of one that was given as a number."""
    path: list[str | int] = []
    for i, step in enumerate(location):
        if isinstance(data, dict) and (step in data or i == len(location) - 1):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int):
            path.append(step)
            data = data[step] if step < len(data) else None
    return path


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _unknown_key(
    path: list[str | int], data: Any, allowed: Mapping[str, Sequence[str]]
) -> InputError:
    section, key = _dotted(path[:-1]), str(path[-1])
    keys = sorted(allowed.get(section, ()))
    close = difflib.get_close_matches(key, keys, n=1)
    name = _dotted([*path[:-1], key if key.isidentifier() else shorten(key)])
    place = f"[{section}]" if section else "the top level"
    if section in allowed and section and len(keys) > 1 and "kind" not in data[section]:
        place += f' of kind "{allowed[f"{section}.kind"][0]}", the default'
    elif section in allowed and section and not close and "kind" in data[section]:
        place += f' of kind "{data[section]["kind"]}"'
    remedy = f"did you mean `{close[0]}`?" if close else f"allowed are {', '.join(keys)}"
    return InputError(name, problem=f"is not a setting of {place}", allowed=remedy)

"""Configs as TOML: read and checked."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from ..errors import InputError
from ._config import Config
from ._errors import find_error

# Bytes: a config is a page of text, and a sweep with a million points has a file of some MB.
_LARGEST_FILE = 2**26


def read_toml(path: Path | str) -> dict[str, Any]:
    """The content of a TOML file as plain data.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mine.toml"
    >>> _ = path.write_text("seed = 3\\n")
    >>> icl.config.read_toml(path)
    {'seed': 3}
    ```
    """
    path = Path(path)
    try:
        with path.open("rb") as file:  # a device may have no end
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InputError(
                f"`{path}` is more than {_LARGEST_FILE} bytes long: must be a TOML file."
            )
        return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist: give the path of a TOML file.") from None
    except IsADirectoryError:
        raise InputError(f"`{path}` is a folder: give the path of a TOML file.") from None
    except UnicodeDecodeError:
        raise InputError(f"`{path}` is not a text file in UTF-8: must be TOML.") from None
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"`{path}` is not valid TOML: {reason}.") from None
    except RecursionError:
        raise InputError(f"`{path}` is nested too deeply: must be a plain config.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"`{path}` cannot be read: {reason}.") from None


def parse_config(data: Mapping[str, Any], stored: bool = False) -> Config:
    """A config from plain data; an `InputError` of one sentence if anything is wrong.

    **Arguments:**

    - `stored`: whether the run exists already, or was checked before: then memory is not checked.

    **Example:**

    ```pycon
    >>> data = {"task": {"kind": "linear_regression", "eigenvalues": [0.4, 0.1], "context": 31}}
    >>> config = icl.config.parse_config(data | {"model": {"kind": "separate", "heads": 2}})
    >>> config.flow.kind, config.exact_exists
    ('gradient_flow', True)
    ```
    """
    try:
        return Config.model_validate(dict(data), context={"stored": stored})
    except ValidationError as error:
        raise _find_error_of_kind(data) or find_error(error, data, known_keys(data)) from None


def _find_error_of_kind(data: Mapping[str, Any]) -> InputError | None:
    """The error about the kind of a risk, if that kind does not exist for this model and task. It
    is more useful than the errors about settings that belong to another kind."""
    section, known = data.get("risk"), known_keys(data).get("risk", ())
    if not isinstance(section, Mapping) or not known or set(section) <= set(known):
        return None
    left = {key: value for key, value in section.items() if key in known}
    try:
        Config.model_validate({**data, "risk": left})
    except ValidationError as error:
        found = find_error(error, data, known_keys(data))
        return found if found.field == "risk.kind" else None
    return None


def load_config(path: Path | str) -> Config:
    """The config in a TOML file; without a `name` it gets that of the file.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mine.toml"
    >>> task = '[task]\\nkind = "linear_regression"\\neigenvalues = [0.4, 0.1]\\ncontext = 31\\n'
    >>> _ = path.write_text(task + '[model]\\nkind = "separate"\\nheads = 2\\n')
    >>> icl.config.load_config(path).name
    'mine'
    ```
    """
    return parse_config(named(read_toml(path), path))


def named(data: dict[str, Any], path: Path | str) -> dict[str, Any]:
    """`data` with a name: its own, or that of the file it comes from.

    **Example:**

    ```pycon
    >>> icl.config.named({"seed": 3}, "runs/mine.toml")
    {'name': 'mine', 'seed': 3}
    ```
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(path).stem).strip("._-")[:80]
    return {"name": stem or "run"} | data


def known_keys(data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The keys that each section may have, given its kind, and its kinds; `""` is the top level.

    **Example:**

    ```pycon
    >>> keys = icl.config.known_keys({"model": {"kind": "separate"}})
    >>> "heads" in keys["model"], "seed" in keys[""]
    (True, True)
    ```
    """
    keys = {"": tuple(Config.model_fields)}
    for section in sections():
        kinds = get_args(Config.model_fields[section].annotation)
        keys[f"{section}.kind"] = tuple(kind.model_fields["kind"].default for kind in kinds)
        chosen = section_class(section, data.get(section))
        if chosen is not None:
            keys[section] = tuple(chosen.model_fields)
    return keys


def sections() -> tuple[str, ...]:
    """The names of the sections, which are unions of kinds.

    **Example:**

    ```pycon
    >>> icl.config.sections()
    ('task', 'model', 'risk', 'flow', 'save')
    ```
    """
    fields = Config.model_fields.items()
    return tuple(name for name, field in fields if field.discriminator is not None)


def section_class(section: str, data: Any):
    """The class of the kind that `data` names, or of the default; None if the kind is unknown.

    **Example:**

    ```pycon
    >>> icl.config.section_class("model", {"kind": "separate"}).__name__
    'SeparateModel'
    ```
    """
    field = Config.model_fields[section]
    unsaid = data is None or (isinstance(data, Mapping) and "kind" not in data)
    if unsaid and not field.is_required():
        return type(field.default)
    kind = data.get("kind") if isinstance(data, Mapping) else None
    for kind_class in get_args(field.annotation):
        if kind_class.model_fields["kind"].default == kind:
            return kind_class
    return None

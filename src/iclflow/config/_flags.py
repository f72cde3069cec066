"""Settings given on the command line, which override those of a file: `--model.heads 8`.

The flags are built from the models of the config, for the kinds that the file chooses. They are
read as text: only the models check values, so that all errors look alike.
"""

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..errors import InputError, shorten
from ._config import Config
from ._files import known_keys, section_class, sections

_PROGRAM = "iclflow run FILE"
_TRUTH = {"true": True, "false": False}


def with_flags(data: Mapping[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The data of a config, overridden by the flags; nothing is validated yet.

    **Arguments:**

    - `flags`: as on a command line; `--help` prints all settings and leaves the program.

    **Example:**

    ```pycon
    >>> data = {"task": {"kind": "linear_regression"}, "model": {"kind": "separate", "heads": 2}}
    >>> icl.config.with_flags(data, ["--model.heads", "4"])["model"]
    {'kind': 'separate', 'heads': 4}
    ```
    """
    import tyro

    merged = _with_kinds(data, flags)
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            given, unknown = tyro.cli(
                _flags_class(merged), prog=_PROGRAM, args=list(flags), return_unknown_args=True
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_flatten(captured.getvalue())) from None
    if unknown:
        raise InputError(_unknown_flag(unknown[0], merged))
    return _merge(merged, dataclasses.asdict(given), merged)


def _with_kinds(data: Mapping[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The data with the kinds that flags choose: they decide which other flags there are."""
    merged = dict(data)
    words = [word for flag in flags for word in flag.split("=", 1)]
    for section in sections():
        for flag, value in zip(words, words[1:]):
            if flag == f"--{section}.kind":
                kinds = known_keys({})[f"{section}.kind"]
                if value not in kinds:
                    choices = ", ".join(repr(kind) for kind in kinds)
                    raise InputError(f"{section}.kind", value, f"must be one of {choices}")
                inside = merged.get(section)
                inside = inside if isinstance(inside, Mapping) else {}
                # Settings that the file gives for another kind are dropped.
                known = known_keys({section: {"kind": value}})[section]
                other = inside.get("kind", value) != value
                kept = {k: v for k, v in inside.items() if not other or k in known}
                merged[section] = {**kept, "kind": value}
    return merged


def _flags_class(data: Mapping[str, Any]) -> type:
    """A dataclass with one optional text for every setting, for tyro to read."""
    fields = []
    for name, field in Config.model_fields.items():
        if field.discriminator is None:
            fields.append(_flag(name, field, data.get(name)))
            continue
        chosen = section_class(name, data.get(name))
        if chosen is None:
            continue
        section = _section_class(name, chosen, data.get(name) or {})
        fields.append((name, section, dataclasses.field(default_factory=section)))
    made = dataclasses.make_dataclass("Settings", fields)
    made.__doc__ = "Settings that override those of the file. Lists are given word by word."
    return made


def _section_class(name: str, chosen: type[BaseModel], data: Mapping[str, Any]) -> type:
    kinds = known_keys({})[f"{name}.kind"]
    kind = chosen.model_fields["kind"].default
    fields = [_text("kind", str, f"One of {', '.join(kinds)}.", kind)]
    for key, field in chosen.model_fields.items():
        if key != "kind" and _plain_type(field) is not None:
            fields.append(_flag(key, field, data.get(key)))
    made = dataclasses.make_dataclass(name.capitalize(), fields)
    made.__doc__ = chosen.__doc__
    return made


def _flag(name: str, field: FieldInfo, value: Any):
    listed = get_origin(_plain_type(field)) is tuple
    choices = _choices(field)
    words = f"{field.description or ''}{f' One of {choices}.' if choices else ''}"
    if value is None and not field.is_required():
        value = field.default
    return _text(name, tuple[str, ...] if listed else str, words, value)


def _text(name: str, kind: Any, words: str, value: Any):
    import tyro

    text = str(value).lower() if isinstance(value, bool) else shorten(value)
    hint = "(not set)" if value is None else f"(here: {text})"
    argument = tyro.conf.arg(help=words, metavar="…", help_behavior_hint=hint)
    return name, Annotated[kind | None, argument], None


def _merge(base: Mapping[str, Any], over: Mapping[str, Any], data: Mapping[str, Any]) -> dict:
    merged = dict(base)
    for name, value in over.items():
        field = Config.model_fields[name]
        if isinstance(value, Mapping):
            chosen = section_class(name, data.get(name))
            given = {k: v for k, v in value.items() if v is not None}
            if chosen is not None and given:
                read = {k: _read(v, chosen.model_fields[k]) for k, v in given.items()}
                merged[name] = {"kind": chosen.model_fields["kind"].default}
                merged[name] |= {**(base.get(name) or {}), **read}
        elif value is not None:
            merged[name] = _read(value, field)
    return merged


def _read(text: Any, field: FieldInfo) -> Any:
    """A text as the type that the field wants, or as it is where it cannot be read as that."""
    wanted = _plain_type(field)
    if isinstance(text, list | tuple):
        return [_read_one(entry, get_args(wanted)[0]) for entry in text]
    return _read_one(text, wanted)


def _read_one(text: str, wanted: Any) -> Any:
    readers = {int: (int, _whole), float: (float,), bool: (_TRUTH.__getitem__,)}
    for reader in readers.get(_bare(wanted), ()):
        with contextlib.suppress(ValueError, KeyError):
            return reader(text.strip().lower() if wanted is bool else text)
    return text


def _whole(text: str) -> int:
    """A whole number as `1e4`. One with a point but no exponent is no whole number: `4.0`."""
    if not re.fullmatch(r"[+-]?\d+(\.\d+)?[eE]\+?\d{1,2}", text.strip()):
        raise ValueError(text)
    number = Fraction(text.strip())
    if number.denominator != 1:
        raise ValueError(text)
    return int(number)


def _plain_type(field: FieldInfo) -> Any:
    """The type of a field without bounds and None; None for a matrix, which has no flag."""
    kinds = [kind for kind in (get_args(field.annotation) or ()) if kind is not type(None)]
    optional = type(None) in get_args(field.annotation)
    plain = _bare(kinds[0] if optional else field.annotation)
    if get_origin(plain) is tuple and get_origin(_bare(get_args(plain)[0])) is tuple:
        return None
    return plain


def _bare(kind: Any) -> Any:
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _choices(field: FieldInfo) -> str:
    plain = _plain_type(field)
    return ", ".join(get_args(plain)) if get_origin(plain) is Literal else ""


def _unknown_flag(word: str, data: Mapping[str, Any]) -> str:
    flags = []
    known = known_keys(data)
    for section, keys in known.items():
        if not section.endswith(".kind"):
            settings = [key for key in keys if section or key not in known]  # sections have no flag
            flags += [f"--{section}.{key}".replace("--.", "--") for key in settings]
    wanted = word.partition("=")[0].replace("-", "_").replace("__", "--", 1)
    if wanted in flags:
        setting = wanted.removeprefix("--")
        return f"`{setting}` is a list of lists, which has no flag: give it in the file."
    # A setting without its section: `--scale` means `--model.scale`.
    close = [flag for flag in flags if flag.rpartition(".")[2] == wanted.removeprefix("--")]
    close = close or difflib.get_close_matches(wanted, flags, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"`{_PROGRAM} --help` lists the settings."
    return f"{shorten(word)} is not a setting of this config: {remedy}"


def _flatten(box: str) -> str:
    """The text of a framed message as one sentence."""
    # The first line is the frame's title.
    lines = [re.sub(r"[\u2500-\u257f]", " ", line).strip() for line in box.splitlines()[1:]]
    text = " ".join(line for line in lines if line)
    text = re.split(r"For full helptext|Expected", text)[0].strip().rstrip(".")
    return f"{text or 'The flags cannot be read'}: `{_PROGRAM} --help` lists the settings."

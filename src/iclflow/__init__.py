"""A lab for how attention learns to learn in context."""

import importlib
import os


def _read_homes() -> dict[str, str]:
    """The module of each public name, from the lines `from .home import name as name` of the stub.

    Type checkers read the stub too, so that every name is written once. Nothing is imported
    before it is used: `iclflow --help` does not wait for JAX.
    """
    # Not by `pathlib`, which takes longer to import than all of this.
    stub = os.path.join(os.path.dirname(__file__), "__init__.pyi")
    with open(stub, encoding="utf-8") as lines:
        words = [line.split() for line in lines if line.startswith("from .")]
    return {name: home for _, home, _, name, *_ in words}


_HOMES = _read_homes()
__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'iclflow' has no attribute {name!r}")
    home = _HOMES[name]
    if home == ".":  # the name is a module
        return importlib.import_module(f".{name}", __name__)
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("iclflow")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "unknown"


def __dir__() -> list[str]:
    return sorted(__all__)

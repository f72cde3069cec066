"""The kinds of `[task]` and `[model]`: those that share a file, and those in files of their own."""

import functools
import importlib
import operator
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from . import _model, _task
from ._base import Settings


def kinds_in_files(package: ModuleType, section: str) -> list[type[Settings]]:
    """The classes with a `kind` in the modules `_SECTION_NAME.py` of a package, by file."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    chosen = sorted(name for name in names if name.startswith(f"_{section}_"))
    modules = [importlib.import_module(f".{name}", package.__name__) for name in chosen]
    return [kind for module in modules for kind in _kinds_of(module)]


def _kinds_of(module: ModuleType) -> list[type[Settings]]:
    """The classes with a `kind` that a module defines itself."""
    classes = (kind for kind in vars(module).values() if isinstance(kind, type))
    own = (kind for kind in classes if kind.__module__ == module.__name__)
    return [kind for kind in own if issubclass(kind, Settings) and "kind" in kind.model_fields]


def _with_files(section: str, known: Any) -> Any:
    """The union of the kinds in `known` and of those in files of their own."""
    package = importlib.import_module(__package__ or "")
    kinds = [*get_args(known), *kinds_in_files(package, section)]
    return functools.reduce(operator.or_, kinds)


# Type checkers see those that share a file.
if TYPE_CHECKING:
    from ._model import ModelSettings as ModelSettings
    from ._task import TaskSettings as TaskSettings
else:
    TaskSettings = _with_files("task", _task.TaskSettings)
    ModelSettings = _with_files("model", _model.ModelSettings)

"""Writes the API reference, docs/reference: one page per room, with every public name.

Usage: `python tools/reference.py`. `make docs` runs it first: the pages are generated, and no part
of the repository. mkdocstrings fills in signatures and docstrings.
"""

import ast
import functools
import importlib
import inspect
import itertools
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
DERIVATIONS = ROOT / "docs" / "theory"

# What every example takes as given: `tests/test_reference_examples.py` runs them so.
BEFORE_EXAMPLES = """Examples begin as if after

```python
import iclflow as icl
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

icl.enable_float64()
```"""

# The rooms that programs of users call, in the order in which data flows, with the titles of pages.
ROOMS = {
    "tasks": "Tasks",
    "models": "Models",
    "risks": "Risks",
    "flows": "Flows",
    "trajectory": "Trajectories",
    "estimators": "Estimators",
    "theory": "Theory",
    "theory.multitask": "Theory of several tasks",
    "theory.depth": "Theory of stacks and loops",
    "theory.diversity": "Theory of few tasks and finite data",
    "analysis": "Analysis",
    "circuits": "Circuits of heads",
    "experiment": "Experiments",
    "papers": "Studies, claims, figures",
    "verification": "Verification",
    "sweeps": "Sweeps",
    "store": "Stored runs",
    "watching": "Watching",
    "checkpoints": "Checkpoints",
    "config": "Configs",
    "runtime": "Runtime",
    "runtime.precision": "Precision",
    "errors": "Errors",
}


@functools.cache
def public_names(room: str) -> dict[str, str]:
    """The public names of a room, each with the dotted name of the file that defines it.

    A package offers what its `__init__.py` re-exports, a module what it defines.
    """
    module = importlib.import_module(f"iclflow.{room}")
    if not hasattr(module, "__path__"):
        return {name: module.__name__ for name in defined_names(module)}
    found = {}
    # Walked whole: names that are loaded on demand are imported for type checkers alone.
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            home = importlib.import_module(f".{node.module}", module.__name__)
            for name in (alias.name for alias in node.names if alias.asname):
                # A package in the room re-exports what a file of it defines.
                origin = getattr(getattr(home, name), "__module__", None) or ""
                if name in defined_names(home):
                    found[name] = home.__name__
                elif origin.startswith(f"{home.__name__}."):
                    found[name] = origin
    return found


@functools.cache
def statements(module: types.ModuleType) -> list[ast.stmt]:
    """The statements of a file."""
    return ast.parse(Path(str(module.__file__)).read_text()).body


def defined_names(module: types.ModuleType) -> list[str]:
    """The public functions, classes and constants that a file defines itself."""
    found = []
    for node in statements(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            # Type variables are for type checkers alone.
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar":
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [n.id for each in targets for n in ast.walk(each) if isinstance(n, ast.Name)]
    return [name for name in found if not name.startswith("_")]


def sections(room: str) -> Iterator[tuple[str, list[str]]]:
    """The names of a room by the file that defines them: the file's first sentence, and names."""
    by_home: dict[str, list[str]] = {}
    for name, home in public_names(room).items():
        by_home.setdefault(home, []).append(name)
    for home, names in by_home.items():
        yield first_sentence(importlib.import_module(home)).rstrip("."), names


def definition(room: str, name: str) -> tuple[ast.stmt, ast.stmt | None]:
    """The statement that defines a public name, and the next one."""
    module = importlib.import_module(public_names(room)[name])
    for node, after in itertools.zip_longest(statements(module), statements(module)[1:]):
        targets = [getattr(node, "target", None), *getattr(node, "targets", ())]
        if name in (getattr(node, "name", None), *(getattr(n, "id", None) for n in targets)):
            return node, after
    raise LookupError(f"`{name}` is not defined in {module.__file__}.")


def documentation(room: str, name: str) -> str:
    """The docstring of a public name: of a class with those of its public methods, of a constant
    the text behind it."""
    node, after = definition(room, name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
        return "\n\n".join(ast.get_docstring(n) or "" for n in (node, *methods))
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        return inspect.cleandoc(str(after.value.value))
    return ""


def examples(room: str) -> dict[str, str]:
    """The names of a room that have an example in their docstring, each with the example."""
    found = {}
    for name in public_names(room):
        lines = documentation(room, name).splitlines()
        program = [line for line in lines if line.lstrip().startswith((">>>", "..."))]
        if program:
            found[name] = "\n".join(program)
    return found


def linked_examples(room: str) -> dict[str, str]:
    """The names without an example of their own that one of the same room shows, each with the name
    that has the example: a function that returns them, or an example that uses them."""
    have = examples(room)
    found: dict[str, str] = {}
    for name in public_names(room):
        word = re.compile(rf"\b{name}\b")
        returns = [each for each in have if word.search(returned(definition(room, each)[0]))]
        uses = [each for each, program in have.items() if word.search(program)]
        if name not in have and (returns or uses):
            found[name] = (returns or uses)[0]
    return found


def returned(node: ast.stmt) -> str:
    """What a function says that it returns."""
    return ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns else ""


def names_without_example(room: str) -> list[str]:
    """The public names of a room for which the reference would show no example."""
    have, linked = examples(room), linked_examples(room)
    return [name for name in public_names(room) if name not in have and name not in linked]


def derivations() -> dict[str, list[str]]:
    """The sections of docs/theory that derive what a function of theory computes: the line behind a
    heading names its functions."""
    found: dict[str, list[str]] = {}
    for page in sorted(DERIVATIONS.glob("*.md")):
        for heading, body in re.findall(r"^#+ (.+)\n\n((?:.+\n)+)", page.read_text(), re.MULTILINE):
            link = f"[{heading}](../theory/{page.name}#{anchor(heading)})"
            for name in re.findall(r"`(\w+)`", body):
                found.setdefault(name, []).append(link)
    return found


def anchor(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def page(room: str) -> str:
    """One page of the reference."""
    module = importlib.import_module(f"iclflow.{room}")
    derived = derivations() if room.startswith("theory") else {}
    linked = linked_examples(room)
    parts = [f"# {ROOMS[room]}", f"`iclflow.{room}`", str(module.__doc__).strip()]
    for words, names in sections(room):
        parts.append(f"## {words}")
        for name in names:
            parts.append(f"::: iclflow.{room}.{name}")
            if name in linked:
                parts.append(f"Example: [`{linked[name]}`][iclflow.{room}.{linked[name]}].")
            if name in derived:
                parts.append(f"Derivation: {'; '.join(dict.fromkeys(derived[name]))}.")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The first page: the names of `import iclflow as icl`, and all rooms."""
    tree = ast.parse((ROOT / "src" / "iclflow" / "__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    rows = []
    for node in imports:
        value = importlib.import_module(f"iclflow.{node.module}")
        for name in (alias.name for alias in node.names):
            target = f"iclflow.{node.module}.{name}"
            rows.append(f"| [`icl.{name}`][{target}] | {first_sentence(getattr(value, name))} |")
    rooms = [
        f"| [{title}]({file_name(room)}) | `iclflow.{room}` | "
        f"{first_sentence(importlib.import_module(f'iclflow.{room}'))} |"
        for room, title in ROOMS.items()
    ]
    return "\n".join([
        "# Reference", "", "Every public name, from the source. " + BEFORE_EXAMPLES, "",
        "| page | room | what it holds |", "|---|---|---|", *rooms, "",
        "## `import iclflow as icl`", "", "| name | what it is |", "|---|---|", *sorted(rows), "",
    ])  # fmt: skip


def first_sentence(value: Any) -> str:
    words = " ".join((value.__doc__ or "").split("\n\n")[0].split())
    return words.replace("|", "\\|")


def file_name(room: str) -> str:
    return f"{room.replace('.', '_')}.md"


def all_pages() -> dict[str, str]:
    """The pages of the reference by the names of their files."""
    return {"index.md": index(), **{file_name(room): page(room) for room in ROOMS}}


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    pages = all_pages()
    for old in PAGES.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (PAGES / name).write_text(text)


if __name__ == "__main__":
    main()

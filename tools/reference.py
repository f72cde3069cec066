"""Writes the API reference, docs/reference: one page per room, with every public name.

Usage: `python tools/reference.py`. `make docs` runs it first: the pages are generated, and no part
of the repository. mkdocstrings fills in signatures and docstrings.
"""

import ast
import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
DERIVATIONS = ROOT / "docs" / "theory"

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
            own = defined_names(home)
            found |= {a.name: home.__name__ for a in node.names if a.asname and a.name in own}
    return found


def defined_names(module: types.ModuleType) -> list[str]:
    """The public functions, classes and constants that a file defines itself."""
    found = []
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
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
    parts = [f"# {ROOMS[room]}", f"`iclflow.{room}`", str(module.__doc__).strip()]
    for words, names in sections(room):
        parts.append(f"## {words}")
        for name in names:
            parts.append(f"::: iclflow.{room}.{name}")
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
        "# Reference", "", "Every public name, from the source.", "",
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

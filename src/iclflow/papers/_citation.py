"""BibTeX of the papers behind claims, studies, figures and theory functions."""

import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from ..errors import InputError, shorten
from ..studies import BIBLIOGRAPHY, STUDIES, Paper, Study
from ._claim import CLAIMS, Claim
from ._figure import FIGURES, Figure

_THEORY = "iclflow.theory."
# How a docstring of theory names a place in its paper.
_PLACE = re.compile(r"((?:Section|Eq\.|Figure|[Pp]roposition|[Dd]efinition) \d[\w.]*)")

Subject = str | Claim | Study | Figure | Callable


def citation(*subjects: Subject) -> str:
    """The BibTeX of the papers behind claims, studies, figures or theory functions.

    Each entry is a paper, with the equations or sections in question as a note. Without arguments:
    iclflow itself, and all papers.

    **Arguments:**

    - `subjects`: claims, studies, figures, or their names (`"linear/staircase"`); functions of
      `iclflow.theory`, or their names (`"pair_optimum"`, `"multitask.loss"`).

    **Example:**

    ```pycon
    >>> print(icl.citation("linear/staircase").splitlines()[0])
    @inproceedings{zhang2025training,
    ```
    """
    if not subjects:
        return "\n\n".join([_software(), *(_papers(name, []) for name in BIBLIOGRAPHY)])
    notes: dict[str, list[str]] = {}
    for subject in subjects:
        for paper, note in _find(subject):
            notes.setdefault(paper, [])
            # A claim, a study and a figure may share a name, and then a note.
            if note not in notes[paper]:
                notes[paper].append(note)
    return "\n\n".join(_papers(paper, found) for paper, found in notes.items())


def _find(subject: Subject) -> Iterator[tuple[str, str]]:
    """The paper of a subject and a note on the place there, for everything of its name."""
    if isinstance(subject, Claim):
        yield subject.paper, f"{subject.id}: {subject.source}"
    elif isinstance(subject, Study):
        yield subject.paper, f"{subject.id}: {subject.title}"
    elif isinstance(subject, Figure):
        yield subject.name.partition("/")[0], f"{subject.name}: {subject.paper}"
    elif isinstance(subject, str):
        named = [kind[subject] for kind in (CLAIMS, STUDIES, FIGURES) if subject in kind]
        functions = _theory_functions()
        name = subject.removeprefix("iclflow.").removeprefix("theory.")
        if not named and name not in functions:
            _refuse(subject, [*CLAIMS, *STUDIES, *FIGURES, *functions])
        for found in named or [functions[name]]:
            yield from _find(found)
    elif _is_theory(subject):
        yield _place_in_theory(subject)
    else:
        raise InputError(
            f"{shorten(subject)} cannot be cited: must be a claim, a study, a figure or a function "
            "of `iclflow.theory`, or the name of one."
        )


def _theory_functions() -> dict[str, Callable]:
    """Public functions and classes of theory by name, such as `multitask.loss`."""
    from .. import theory  # here, since it loads JAX

    found = {}
    for prefix, module in (
        ("", theory),
        ("multitask.", theory.multitask),
        ("diversity.", theory.diversity),
        ("depth.", theory.depth),
    ):
        for name, value in vars(module).items():
            if _is_theory(value):
                found[prefix + name] = value
    return found


def _is_theory(value: object) -> bool:
    # An instance has the module of its class, but no name.
    named = hasattr(value, "__name__")
    return named and (getattr(value, "__module__", None) or "").startswith(_THEORY)


def _place_in_theory(function: Callable) -> tuple[str, str]:
    """A function's paper, by its module, and its place there, where its docstring names one."""
    module = function.__module__.removeprefix(_THEORY)
    paper = next((name for name in BIBLIOGRAPHY if module.lstrip("_").startswith(name)), "linear")
    words = inspect.getdoc(function) or ""
    place = _PLACE.search(words)
    room = f"{paper}." if paper in ("multitask", "diversity", "depth") else ""
    name = f"theory.{room}{function.__name__}"
    where = place.group(1) if place else f"derived in docs/theory/{paper}.md of iclflow"
    return paper, f"{name}: {where}"


def _refuse(name: str, known: list[str]) -> None:
    near = dict.fromkeys(difflib.get_close_matches(name, known, n=3, cutoff=0.6))
    remedy = f"did you mean {' or '.join(near)}?" if near else "`iclflow claims` lists the claims."
    raise InputError(f"{shorten(name)} is not a claim, study, figure or theory function: {remedy}")


def _software() -> str:
    try:
        release = version("iclflow")
    except PackageNotFoundError:  # a source tree on the path, not installed
        release = "unknown"
    title = "{iclflow}: how attention learns to learn in context"
    return _entry("software", "iclflow", {"title": title, "author": "{The iclflow developers}",
                                          "version": release})  # fmt: skip


def _papers(name: str, notes: list[str]) -> str:
    """The entries of a paper and of the others in its folder, each with the notes that name it;
    a note that names none is about the first. Without notes: all."""
    paper = BIBLIOGRAPHY[name]
    theirs = {each.arxiv: [note for note in notes if each.arxiv in note] for each in paper.others}
    own = [note for note in notes if not any(note in found for found in theirs.values())]
    found = [(paper, own), *((each, theirs[each.arxiv]) for each in paper.others)]
    return "\n\n".join(_paper(each, about) for each, about in found if about or not notes)


def _paper(paper: Paper, notes: list[str]) -> str:
    fields = {**paper.fields, "eprint": paper.arxiv, "archiveprefix": "arXiv"}
    fields["url"] = f"https://arxiv.org/abs/{paper.arxiv}"
    if notes:
        # Characters that LaTeX would not print as they are.
        fields["note"] = re.sub(r"([%&#_])", r"\\\1", "; ".join(notes))
    return _entry("article" if "journal" in fields else "inproceedings", paper.key, fields)


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])

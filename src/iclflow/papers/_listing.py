"""Claims and figures as a list needs them: their words, read from the source without running it.

The modules that define them load JAX, which takes seconds. Their words are literals in the
decorators that register them.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..studies import PAPERS
from ._claim import CLAIMS, Claim, new_claim
from ._diagram import DIAGRAMS
from ._figure import FIGURES, Figure, in_order, new_figure
from ._registry import Registry, find_paper, join_lines, module_names


class _NotLiteral(Exception):
    """A word that a list shows is computed."""


def listed_claims() -> tuple[Claim, ...]:
    """Every claim in the order of the papers: its words, without what tests it.

    **Example:**

    ```pycon
    >>> names = [claim.id for claim in icl.papers.listed_claims()]
    >>> sorted(names) == sorted(icl.papers.CLAIMS)
    True
    ```
    """
    words = ("id", "statement"), ("source", "tier", "corrected_by", "overread", "undecided")
    try:
        found = _declared(CLAIMS, ("claim", "claim_on_run"), *words)
        return tuple(new_claim(_not_loaded, **claim) for _, claim in found)
    except _NotLiteral:
        return tuple(CLAIMS.values())


def listed_figures() -> tuple[Figure, ...]:
    """Every figure, then those of sweeps: their words, without what draws them.

    **Example:**

    ```pycon
    >>> "linear/staircase" in {figure.name for figure in icl.papers.listed_figures()}
    True
    ```
    """
    try:
        words = ("name", "title", "caption", "number")
        found = [new_figure(_not_loaded, **f) for _, f in _declared(FIGURES, ("figure",), words)]
        words = ("paper", "title", "caption")
        swept = [_swept(name, **d) for name, d in _declared(DIAGRAMS, ("diagram",), words)]
    except _NotLiteral:
        every = (*FIGURES.values(), *DIAGRAMS.values())
        return tuple(Figure(f.name, f.title, f.caption, f.paper, _not_loaded) for f in every)
    figures = {figure.name: figure for figure in found}
    return (*(figures[name] for name in in_order(figures)), *swept)


def _swept(function: str, paper: str, title: str, caption: str) -> Figure:
    where = f"arXiv {PAPERS[paper]}"
    return Figure(f"sweeps/{function}", title, join_lines(caption), where, _not_loaded)


def _not_loaded(*_: Any) -> Any:
    raise RuntimeError("A claim or a figure that was read for a list cannot be computed.")


def _declared(
    registry: Registry[Any],
    decorators: Sequence[str],
    positional: Sequence[str],
    named: Sequence[str] = (),
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The decorated functions of the papers: their names, and these arguments of the decorators."""
    for call, function in _decorated(registry.kind, decorators):
        given = dict(zip(positional, call.args))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        wanted = {*positional, *named}
        yield function, {name: _literal(given[name]) for name in given if name in wanted}


def _decorated(kind: str, decorators: Sequence[str]) -> Iterator[tuple[ast.Call, str]]:
    for paper in PAPERS:
        package = find_paper(paper)
        for module in module_names(kind, package):
            source = Path(package.__path__[0], f"{module}.py").read_text(encoding="utf-8")
            for function in _functions(ast.parse(source).body):
                for call in function.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) in decorators:
                        yield call, function.name


def _functions(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """All functions, also those inside others: what is registered there has no literal name."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
            yield from _functions(node.body)


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        raise _NotLiteral from None

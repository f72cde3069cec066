"""Lists of claims and figures: the words in the source are those of the registry."""

import pytest

from iclflow.papers import (
    CLAIMS,
    DIAGRAMS,
    FIGURES,
    Figure,
    _listing,
    listed_claims,
    listed_figures,
)

WORDS = ("id", "paper", "statement", "source", "tier", "corrected_by", "overread", "undecided")


def words_of_claims(claims) -> list[tuple[str, ...]]:
    return [tuple(str(getattr(c, word)) for word in (*WORDS, "misstated")) for c in claims]


def words_of_figures(figures) -> list[tuple]:
    return [(figure.name, figure.title, figure.caption, figure.paper) for figure in figures]


def test_a_list_has_the_words_of_every_claim_and_figure():
    registered = words_of_figures(FIGURES.values()) + words_of_figures(DIAGRAMS.values())
    # Other tests may have loaded the modules of claims in another order.
    assert sorted(words_of_claims(listed_claims())) == sorted(words_of_claims(CLAIMS.values()))
    assert words_of_figures(listed_figures()) == registered
    with pytest.raises(RuntimeError, match="cannot be computed"):
        listed_claims()[0].test(None)


def test_what_is_listed_is_read_and_not_loaded(monkeypatch):
    # The same words, though nothing can be looked up.
    listed = words_of_claims(listed_claims()), words_of_figures(listed_figures())
    for registry in (CLAIMS, FIGURES, DIAGRAMS):
        monkeypatch.setattr(registry, "_items", {})
    assert (words_of_claims(listed_claims()), words_of_figures(listed_figures())) == listed


def test_words_that_are_computed_are_looked_up(monkeypatch):
    def refuse(value):
        raise _listing._NotLiteral

    monkeypatch.setattr(_listing, "_literal", refuse)
    assert listed_claims() == tuple(CLAIMS.values())
    found = listed_figures()
    assert words_of_figures(found)[: len(FIGURES)] == words_of_figures(FIGURES.values())
    assert len(found) == len(FIGURES) + len(DIAGRAMS)
    assert all(isinstance(figure, Figure) for figure in found)


def test_a_claim_inside_a_function_is_found():
    import ast

    source = "def make(k):\n    @claim(f'linear/{k}')\n    def row(lab):\n        pass\n"
    names = [function.name for function in _listing._functions(ast.parse(source).body)]
    assert names == ["make", "row"]
    with pytest.raises(_listing._NotLiteral):
        _listing._literal(ast.parse("f'linear/{k}'", mode="eval").body)

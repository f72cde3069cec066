"""Where a claim comes from: whose sentence it is, its place, and links to the paper."""

import re
from importlib.metadata import PackageNotFoundError, metadata

from ..papers import PAPERS, Claim, statements_of
from ._text import escape

# Whose sentences claims are, in the order of the page.
ORIGINS = {
    "paper": "From the paper",
    "authors": "From the authors’ code and notebooks",
    "summary": "From summaries of the paper by others",
    "beyond": "Beyond the paper, derived here",
}
# How the source of a claim begins, if it is not a place in the paper.
_BEGINNINGS = {
    "summary": "summary",
    "code": "authors",
    "notebook": "authors",
    "beyond": "beyond",
    "derived in": "beyond",
}
_DERIVATION = re.compile(r"docs/theory/(\w+)\.md")
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")
_FIRST_PAPER = re.compile(rf"^{_ARXIV.pattern}, ")


def origin_of(claim: Claim) -> str:
    """Whose sentence it is: a key of `ORIGINS`."""
    if "a summary of the paper" in claim.source:
        return "summary"
    # A room of several papers names the one that is meant first.
    place = _FIRST_PAPER.sub("", claim.source)
    begins = (kind for words, kind in _BEGINNINGS.items() if place.startswith(words))
    return next(begins, "paper")


def source_html(claim: Claim) -> str:
    """The place of a claim, with links to its paper and to the derivation."""
    words = escape(claim.source)
    pages = _documentation()
    if pages:
        link = lambda found: (
            f'<a href="{escape(pages)}/theory/{found[1]}.html" rel="noreferrer">{found[0]}</a>'
        )
        words = _DERIVATION.sub(link, words)
    else:
        words = _DERIVATION.sub(r"<code>\g<0></code>", words)
    if not _ARXIV.search(words):
        return f"{words} · {arxiv_html(claim.paper)}"
    return _ARXIV.sub(lambda found: _link(found[1]), words)


def arxiv_html(paper: str) -> str:
    """A link to a paper."""
    return _link(PAPERS[paper])


def _link(number: str) -> str:
    return f'<a href="https://arxiv.org/abs/{number}" rel="noreferrer">arXiv {number}</a>'


def statements_html(claim: Claim) -> str:
    """What the paper says at each place that the claim tests; empty if it is beyond the paper."""
    items = "".join(
        f"<li><b>{escape(each.where)}</b> ({each.row}): {escape(each.words)}</li>"
        for each in statements_of(claim.id)
    )
    return f'<p>In the source, in our words:</p><ul class="said-there">{items}</ul>' * bool(items)


def _documentation() -> str:
    """The address of the documentation, without a slash at its end, if the package has one."""
    try:
        found = metadata("iclflow").get_all("Project-URL") or []
    except PackageNotFoundError:  # a source tree on the path, not installed
        return ""
    links = dict(each.split(", ", 1) for each in found)
    return links.get("Documentation", "").rstrip("/")

"""The report as one self-contained page."""

import base64
import dataclasses
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ..papers import PAPERS, SUBJECTS, Claim, Outcome
from ._claims import claims_html, config_html, counts_html, overview_html, recorded_html
from ._info import RunInfo
from ._records import Record
from ._text import anchor, count_of, duration, escape, left_out_text

# Folded sections are open on paper. The page must work from a file, so its script is inside it.
_SCRIPT = (
    "addEventListener('beforeprint',()=>document.querySelectorAll('details')"
    ".forEach(d=>{d.dataset.was=d.open;d.open=true}));"
    "addEventListener('afterprint',()=>document.querySelectorAll('details')"
    ".forEach(d=>{d.open=d.dataset.was==='true'}));"
)


@dataclasses.dataclass(frozen=True)
class ReportFigure:
    """A figure as the report shows it; `image` is None where it could not be drawn.

    **Fields:**

    - `media_type`: of `image`, `image/svg+xml` or `image/png`.
    - `share`: its width as a share of the page; 1 for two columns of print.
    - `problem`: why there is no image, in words.
    """

    name: str
    title: str
    caption: str
    paper: str
    image: bytes | None
    media_type: str
    config: dict[str, Any]
    seconds: float
    problem: str = ""
    share: float = 1.0


def render_report(
    outcomes: Sequence[Outcome],
    figures: Sequence[ReportFigure],
    info: RunInfo,
    left_out: Sequence[Claim] = (),
    records: Sequence[Record] = (),
) -> str:
    """The whole page as HTML, with styles and images inside.

    **Arguments:**

    - `outcomes`: the results of the claims, in the order of the page.
    - `figures`: the figures below them.
    - `info`: where, when and how the results were computed.
    - `left_out`: claims of slower tiers, which were not computed.
    - `records`: what was measured elsewhere.
    """
    style = files("iclflow.report").joinpath("page.css").read_text(encoding="utf-8")
    names, ids = {figure.name for figure in figures}, {o.claim.id for o in outcomes}
    papers = [paper for paper in PAPERS if any(o.claim.paper == paper for o in outcomes)]
    sections = "".join(
        f'<section id="{paper}"><h2>{escape(_heading(paper))}</h2>'
        f"{claims_html([o for o in outcomes if o.claim.paper == paper], names, ids, records)}"
        f"{recorded_html([r for r in records if r.claim.startswith(f'{paper}/')], ids)}</section>"
        for paper in papers
    )
    rest = f"<p>{escape(left_out_text(left_out))}</p>" if left_out else ""
    drawn = "".join(_figure(figure) for figure in figures)
    gallery = f'<section id="figures"><h2>Figures</h2>{drawn}</section>' if figures else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<title>iclflow: claims and what was measured</title>"
        f"<style>{style}</style></head><body>"
        f"<header><h1>How attention learns in context: claims, computed</h1>{_header(info)}"
        f"{_recorded_note(records)}{_whose(outcomes)}{counts_html(outcomes)}{rest}"
        f"{_contents(papers, figures)}"
        f"{overview_html(outcomes)}</header>"
        f"<main>{sections}{gallery}</main>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _header(info: RunInfo) -> str:
    bent = (
        '<p class="bent">Predictions were made wrong on purpose: a claim that still holds here '
        "cannot fail.</p>"
        if info.falsify
        else ""
    )
    return (
        f"<p>The numbers on this page were computed in one run, on {escape(info.date)}, in "
        f"{escape(duration(info.seconds))}, at tier “{escape(info.tier)}”.</p>"
        f'<p class="source">{escape(info.machine)} · {escape(info.software)}</p>{bent}'
    )


def _recorded_note(records: Sequence[Record]) -> str:
    if not records:
        return ""
    machines = ", ".join(dict.fromkeys(record.info.machine for record in records))
    number = count_of(len(records), "claim")
    return (
        f"<p>Only what is marked “recorded elsewhere” was not: {number} at the tier “paper”, on "
        f"{escape(machines)}. <code>iclflow verify --recorded</code> repeats them.</p>"
    )


def _whose(outcomes: Sequence[Outcome]) -> str:
    """A note on whose statements are judged, if one is refuted: readers might blame a paper for
    the words of others."""
    notes = {
        "misstated": "≠ misstated: wrong as written in the source that the claim names. "
        "“Summary” is a summary of the paper by others; a verdict on it says nothing about "
        "the paper.",
        "overread": "⊄ overread: the sentence drops a condition that its source states. It shows "
        "the edge of a result, and is not an error of the paper.",
    }
    found = {outcome.verdict for outcome in outcomes}
    return "".join(
        f'<p class="source">{words}</p>' for verdict, words in notes.items() if verdict in found
    )


def _contents(papers: Sequence[str], figures: Sequence[ReportFigure]) -> str:
    links = [f'<a href="#{paper}">{escape(_heading(paper))}</a>' for paper in papers]
    links += ['<a href="#figures">Figures</a>'] if figures else []
    return f"<nav>{' · '.join(links)}</nav>" if links else ""


def _heading(paper: str) -> str:
    return f"{SUBJECTS[paper]} (arXiv {PAPERS[paper]})"


def _figure(figure: ReportFigure) -> str:
    if figure.image is None:
        picture = f'<p class="reason">Not drawn: {escape(figure.problem)}</p>'
    else:
        data = base64.b64encode(figure.image).decode("ascii")
        picture = (
            f'<img src="data:{escape(figure.media_type)};base64,{data}" '
            # The style sheet scales by `--share`: text has one size in all figures.
            f'alt="{escape(figure.title)}" style="--share: {figure.share:.4g}" loading="lazy">'
        )
    return (
        f'<figure id="{anchor("figure", figure.name)}"><h3>{escape(figure.title)}</h3>{picture}'
        f"<figcaption><p>{escape(figure.caption)}</p>"
        f'<p class="source"><code>{escape(figure.name)}</code> · {escape(figure.paper)} · '
        f"{escape(duration(figure.seconds))} · "
        f"<code>iclflow reproduce {escape(figure.name)}</code></p>"
        f"{config_html(figure.config)}</figcaption></figure>"
    )

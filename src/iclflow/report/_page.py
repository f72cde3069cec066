"""The report as one self-contained page."""

import base64
import dataclasses
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ..papers import PAPERS, SUBJECTS, Claim, Outcome
from ._claims import claims_html, config_html, counts_html, overview_html
from ._info import RunInfo
from ._records import Record
from ._sources import arxiv_html
from ._text import anchor, count_of, duration, escape, left_out_text

_MARKS = {
    "misstated": "≠ misstated: wrong as written in the source that the claim names.",
    "overread": "⊄ overread: the sentence leaves out a condition that its source states. The "
    "measurement shows where the result ends; it is not an error of the paper.",
}


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
    """The whole page as HTML, with styles, script and images inside: one file can be sent.

    **Arguments:**

    - `outcomes`: the results of the claims, in the order of the page.
    - `figures`: the figures below them.
    - `info`: where, when and how the results were computed.
    - `left_out`: claims of slower tiers, which were not computed.
    - `records`: what was measured elsewhere.
    """
    style, script = _asset("page.css"), _asset("page.js")
    titles = {figure.name: figure.title for figure in figures}
    ids = {o.claim.id for o in outcomes} | {record.claim for record in records}
    shown = {*(o.claim.paper for o in outcomes), *(r.statement.paper for r in records)}
    papers = [paper for paper in PAPERS if paper in shown]
    sections = "".join(
        f'<section id="{paper}"><h2>{escape(SUBJECTS[paper])} ({arxiv_html(paper)})</h2>'
        + overview_html([o for o in outcomes if o.claim.paper == paper])
        + claims_html(
            [o for o in outcomes if o.claim.paper == paper],
            titles,
            ids,
            [record for record in records if record.statement.paper == paper],
        )
        + "</section>"
        for paper in papers
    )
    rest = f"<p>{escape(left_out_text(left_out))}</p>" if left_out else ""
    drawn = "".join(_figure(figure) for figure in figures)
    gallery = f'<section id="figures"><h2>Figures</h2>{drawn}</section>' if figures else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>iclflow: claims and what was measured, {escape(info.date[:10])}</title>"
        f"<style>{style}</style></head><body>"
        f"<header><h1>How attention learns in context: claims, computed</h1>{_header(info)}"
        f"{_recorded_note(records)}{rest}{_contents(papers, figures)}</header>"
        f"{_filters(outcomes, papers)}"
        f"<main>{_marks(outcomes)}{sections}"
        '<p id="none" class="none" hidden>No claim is as chosen above.</p>'
        f"{gallery}</main>{_WINDOWS}"
        f"<script>{script}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("iclflow.report").joinpath(name).read_text(encoding="utf-8")


def _header(info: RunInfo) -> str:
    bent = (
        '<p class="bent">Predictions were made wrong on purpose: a claim that still holds here '
        "cannot fail.</p>"
        if info.falsify
        else ""
    )
    facts = {
        "Date": info.date,
        "Version": f"iclflow {info.versions.get('iclflow', 'unknown')}",
        "Commit": info.commit or "not known",
        "Tier": f"{info.tier}, in {duration(info.seconds)}",
        "Machine": info.machine,
        "With": ", ".join(f"{k} {v}" for k, v in info.versions.items() if k != "iclflow"),
    }
    items = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    return (
        "<p>The numbers on this page were computed in one run:</p>"
        f'<dl class="facts">{items}</dl>{bent}'
    )


def _recorded_note(records: Sequence[Record]) -> str:
    if not records:
        return ""
    machines = "; ".join(dict.fromkeys(record.info.machine for record in records))
    number = count_of(len(records), "claim")
    return (
        "<p>Results marked “recorded elsewhere” were computed before, at the tier “paper”: "
        f"{number} ({escape(machines)}). "
        "<code>iclflow verify --recorded</code> repeats them here.</p>"
    )


def _marks(outcomes: Sequence[Outcome]) -> str:
    """What a refuted sentence means, if there is one: readers might blame a paper for the words of
    others."""
    found = {outcome.verdict for outcome in outcomes}
    return "".join(
        f'<p class="mark">{words}</p>' for verdict, words in _MARKS.items() if verdict in found
    )


def _contents(papers: Sequence[str], figures: Sequence[ReportFigure]) -> str:
    links = [f'<a href="#{paper}">{escape(SUBJECTS[paper])}</a>' for paper in papers]
    links += ['<a href="#figures">Figures</a>'] if figures else []
    return f"<nav>{' · '.join(links)}</nav>" if links else ""


def _filters(outcomes: Sequence[Outcome], papers: Sequence[str]) -> str:
    """Which claims are shown: by verdict, paper and text. Without a script these are counts."""
    options = "".join(f'<option value="{p}">{escape(SUBJECTS[p])}</option>' for p in papers)
    return (
        f'<form class="filters" role="search" aria-label="Claims to show">{counts_html(outcomes)}'
        '<div class="choose" hidden><label>Paper <select id="paper">'
        f'<option value="">all</option>{options}</select></label>'
        '<label>Text <input id="text" type="search" placeholder="words, a claim, a section" '
        'autocomplete="off"></label><button type="reset" id="clear">Show all</button>'
        '<button type="button" id="help" aria-label="Keyboard shortcuts">?</button></div>'
        '<output id="shown" aria-live="polite"></output></form>'
    )


_WINDOWS = (
    '<dialog id="picture" aria-labelledby="picture-title"><form method="dialog">'
    '<h3 id="picture-title"></h3><button>Close</button></form><img alt=""><p></p></dialog>'
    '<dialog id="keys" aria-labelledby="keys-title"><form method="dialog"><h3 id="keys-title">'
    "Keyboard shortcuts</h3><button>Close</button></form><dl>"
    "<dt><kbd>/</kbd></dt><dd>search</dd>"
    "<dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next or previous claim</dd>"
    "<dt><kbd>o</kbd></dt><dd>open or close its checks</dd>"
    "<dt><kbd>f</kbd></dt><dd>enlarge its figure</dd>"
    "<dt><kbd>Esc</kbd></dt><dd>show all claims, close a window</dd>"
    "<dt><kbd>?</kbd></dt><dd>this list</dd></dl></dialog>"
)


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

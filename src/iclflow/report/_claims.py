"""The claims on the page: one card each, with its verdict, its numbers and its checks."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..papers import Check, Outcome
from ._records import Record, record_summary, recorded_card
from ._sources import ORIGINS, origin_of, source_html, statements_html
from ._text import (
    SIGNS,
    anchor,
    count_of,
    duration,
    error_text,
    escape,
    power_text,
    predicted_text,
    value_text,
)

# The columns of the checks of one claim, with their CSS classes.
_CHECK_COLUMNS = {
    "Check": "name",
    "Predicted": "number",
    "Measured": "number",
    "Error ≤ tolerance, or bound": "number",
    "Comparison": "comparison",
    "Result": "result",
}
_ELSEWHERE = "Recorded elsewhere, not computed here"
_COMPARISONS = {
    "absolute": "within",
    "relative": "within, relative",
    "standard errors": "within, in standard errors",
    "equal": "equal",
    "at least": "at least",
    "at most": "at most",
    "above": "above",
    "below": "below",
}


def counts_html(outcomes: Sequence[Outcome]) -> str:
    """How many claims got each verdict: the script of the page makes each a filter."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    boxes = [
        f'<li><button type="button" class="count {verdict}" data-verdict="{verdict}" '
        f'aria-pressed="false" disabled><span class="sign">{sign}</span> {verdict} '
        f"<b>{counts[verdict]}</b></button></li>"
        for verdict, sign in SIGNS.items()
    ]
    return f'<ul class="counts">{"".join(boxes)}</ul>'


def overview_html(outcomes: Sequence[Outcome]) -> str:
    """Every claim as one short link with the sign of its verdict."""
    links = [
        f'<li class="{o.verdict}" data-of="{anchor("claim", o.claim.id)}">'
        f'<a href="#{anchor("claim", o.claim.id)}">{SIGNS[o.verdict]} {escape(o.claim.id)}</a></li>'
        for o in outcomes
    ]
    return f'<ul class="overview">{"".join(links)}</ul>'


def claims_html(
    outcomes: Sequence[Outcome],
    figures: Mapping[str, str],
    claims: set[str],
    records: Sequence[Record] = (),
) -> str:
    """The claims of one paper, apart by whose sentences they are.

    **Arguments:**

    - `figures`: the titles of all figures on this page by name.
    - `claims`: the ids of all claims on this page, for links to them.
    - `records`: what was measured elsewhere.
    """
    recorded = {record.claim: record for record in records}
    own = {outcome.claim.id for outcome in outcomes}
    parts = []
    for origin, title in ORIGINS.items():
        cards = [
            _card(outcome, figures, claims, recorded.get(outcome.claim.id))
            for outcome in outcomes
            if origin_of(outcome.claim) == origin
        ]
        elsewhere = [
            recorded_card(record, _recorded(record))
            for record in records
            if record.claim not in own and origin_of(record.statement) == origin
        ]
        parts.append(_group(title, [_group("", cards), _group(_ELSEWHERE, elsewhere, "h4")]))
    return "".join(parts)


def _group(title: str, parts: Sequence[str], level: str = "h3") -> str:
    """Cards below a heading, which the script of the page hides where none of them is shown."""
    inside = "".join(parts)
    heading = f"<{level}>{title}</{level}>" if title else ""
    return f'<div class="group">{heading}{inside}</div>' if inside else ""


def _recorded(record: Record) -> str:
    """A record: one line that unfolds into its checks and settings."""
    rows = "".join(_check_row(check) for check in record.checks)
    settings = record.outcome["config"] | {"command": record.command} | record.info.versions
    body = (_checks_table(rows) if rows else "") + config_html(settings)
    return f'<details class="recorded"><summary>{record_summary(record)}</summary>{body}</details>'


def _card(
    outcome: Outcome, figures: Mapping[str, str], claims: set[str], record: Record | None = None
) -> str:
    claim, verdict = outcome.claim, outcome.verdict
    here = anchor("claim", claim.id)
    badge = (
        f'<span class="badge {verdict}"><span class="sign">{SIGNS[verdict]}</span> {verdict}</span>'
    )
    link = f'<a class="id" href="#{here}"><code>{escape(claim.id)}</code></a>'
    time = f'<span class="time">{claim.tier} tier · {duration(outcome.seconds)}</span>'
    shown = [(name, figures[name]) for name in claim.figures if name in figures]
    return (
        f'<article id="{here}" class="claim {verdict}" data-verdict="{verdict}" '
        f'data-paper="{claim.paper}" tabindex="-1"><div class="said">'
        f'<p class="top">{badge} {link} {time}</p>{_words(outcome, claims)}{_worst(outcome)}'
        f'</div>{_pictures(shown)}<div class="more">{_details(outcome)}'
        f"{'' if record is None else _recorded(record)}</div></article>"
    )


def _pictures(figures: Sequence[tuple[str, str]]) -> str:
    """Links to the figures of a claim; the script of the page puts the pictures into them."""
    links = "".join(
        f'<a class="picture" href="#{anchor("figure", name)}"><span>Figure: {escape(title)}</span>'
        "</a>"
        for name, title in figures
    )
    return f'<div class="pictures">{links}</div>' * bool(links)


def _words(outcome: Outcome, claims: set[str]) -> str:
    """The sentence, why it has its verdict, where it comes from, and what corrects it."""
    claim = outcome.claim
    parts = [f'<p class="statement">{escape(claim.statement)}</p>']
    if outcome.reason:
        parts.append(f'<p class="reason">{escape(outcome.reason)}</p>')
    if claim.corrected_by:
        right = escape(claim.corrected_by)
        if claim.corrected_by in claims:
            right = f'<a href="#{anchor("claim", claim.corrected_by)}">{right}</a>'
        else:
            right += ", which is not on this page"
        parts.append(f'<p class="corrected">→ corrected in {right}</p>')
    power = power_text(outcome)
    about = source_html(claim) + (f" · {escape(power)}" if power else "")
    parts.append(f'<p class="source">{about}</p>')
    return "".join(parts)


def _worst(outcome: Outcome) -> str:
    """The check that comes closest to failing."""
    worst = outcome.worst
    if worst is None:
        return ""
    predicted, measured, error = _numbers(worst)
    items = {"Predicted": predicted, "Measured": measured, "Error ≤ tolerance, or bound": error}
    numbers = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in items.items())
    return f'<p class="which">{escape(worst.name)}</p><dl class="numbers">{numbers}</dl>'


def _numbers(check: Check) -> tuple[str, str, str]:
    """The prediction, the measurement and the error of a check."""
    texts = predicted_text(check), value_text(check.measured), error_text(check)
    predicted, measured, error = map(escape, texts)
    return predicted, measured, error


def _details(outcome: Outcome) -> str:
    rows = "".join(_check_row(check) for check in outcome.checks)
    words = f"<p><b>Tolerance:</b> {escape(outcome.claim.tolerance_reason)}</p>"
    title = f"{count_of(len(outcome.checks), 'check')}, tolerance, settings, source"
    body = (_checks_table(rows) if rows else "") + words + statements_html(outcome.claim)
    body += config_html(outcome.config)
    return f"<details><summary>{title}</summary>{body}</details>"


def _checks_table(rows: str) -> str:
    titles = "".join(f'<th scope="col">{title}</th>' for title in _CHECK_COLUMNS)
    head = f"<thead><tr>{titles}</tr></thead>"
    return f'<table class="checks">{head}<tbody>{rows}</tbody></table>'


def _check_row(check: Check) -> str:
    css, result = ("passed", "✓ passes") if check.passed else ("failed", "✗ fails")
    shown = escape(check.name), *_numbers(check), _COMPARISONS[check.comparison], result
    # On a narrow screen the style sheet shows the titles of columns beside their cells.
    cells = "".join(
        f'<td class="{kind}" data-label="{escape(title)}">{content}</td>'
        for (title, kind), content in zip(_CHECK_COLUMNS.items(), shown)
    )
    return f'<tr class="{css}">{cells}</tr>'


def config_html(config: dict) -> str:
    """Settings as a list of names and values."""
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value_text(value))}</dd></div>"
        for key, value in config.items()
    )
    return f'<dl class="config">{items}</dl>'

"""The claims on the page: a table of verdicts, with the checks of each claim below it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..papers import Check, Outcome
from ._records import Record, record_summary, statements_html
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

_COMPARED = "Error ≤ tolerance, or bound"
# The columns of the table of claims and of the checks of one claim, with their CSS classes.
_CLAIM_COLUMNS = {
    "Verdict": "verdict",
    "Claim": "claim",
    "Predicted": "number",
    "Measured": "number",
    _COMPARED: "number error",
    "Time": "time",
}
_CHECK_COLUMNS = {
    "Check": "name",
    "Predicted": "number",
    "Measured": "number",
    _COMPARED: "number",
    "Comparison": "comparison",
    "Result": "result",
}
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
    """How many claims got each verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    boxes = [
        f'<li class="count {verdict}"><span class="sign">{sign}</span> {verdict} '
        f"<b>{counts[verdict]}</b></li>"
        for verdict, sign in SIGNS.items()
    ]
    return f'<ul class="counts">{"".join(boxes)}</ul>'


def overview_html(outcomes: Sequence[Outcome]) -> str:
    """Every claim as one short link with the sign of its verdict."""
    links = [
        f'<li class="{o.verdict}"><a href="#{anchor("claim", o.claim.id)}">'
        # Without the paper: the overview has to fit on one screen.
        f"{SIGNS[o.verdict]} {escape(o.claim.id.split('/', 1)[-1])}</a></li>"
        for o in outcomes
    ]
    return f'<ul class="overview">{"".join(links)}</ul>'


def claims_html(
    outcomes: Sequence[Outcome],
    figures: set[str],
    claims: set[str],
    records: Sequence[Record] = (),
) -> str:
    """The table of claims, with the checks of each in a section that folds away.

    **Arguments:**

    - `figures`, `claims`: the names of all figures and the ids of all claims on this page, for
      links to them.
    - `records`: what was measured elsewhere.
    """
    recorded = {record.claim: record for record in records}
    rows = "".join(
        _row(outcome, figures, claims, recorded.get(outcome.claim.id)) for outcome in outcomes
    )
    return f'<table class="claims">{_head(_CLAIM_COLUMNS)}{rows}</table>'


def recorded_html(records: Sequence[Record], claims: set[str]) -> str:
    """The records of claims that are not in the table."""
    others = [record for record in records if record.claim not in claims]
    return statements_html(others, [_recorded(record) for record in others])


def _recorded(record: Record) -> str:
    """A record: one line that unfolds into its checks and settings."""
    rows = "".join(_check_row(check) for check in record.checks)
    table = f'<table class="checks">{_head(_CHECK_COLUMNS)}<tbody>{rows}</tbody></table>'
    settings = record.outcome["config"] | {"command": record.command} | record.info.versions
    body = (table if rows else "") + config_html(settings)
    return f'<details class="recorded"><summary>{record_summary(record)}</summary>{body}</details>'


def _head(columns: Mapping[str, str]) -> str:
    titles = "".join(f'<th scope="col">{title}</th>' for title in columns)
    return f"<thead><tr>{titles}</tr></thead>"


def _cells(columns: Mapping[str, str], *contents: str) -> str:
    """The cells of one row. On a narrow screen the style sheet shows titles beside them."""
    return "".join(
        f'<td class="{css}" data-label="{escape(title)}">{content}</td>'
        for (title, css), content in zip(columns.items(), contents)
    )


def _row(
    outcome: Outcome, figures: set[str], claims: set[str], record: Record | None = None
) -> str:
    worst, verdict = outcome.worst, outcome.verdict
    shown = ("–", "–", "–")
    if worst is not None:
        name = f'<span class="which">{escape(worst.name)}</span>'
        predicted, *others = _numbers(worst)
        shown = (name + predicted, *others)
    badge = (
        f'<span class="badge {verdict}"><span class="sign">{SIGNS[verdict]}</span> {verdict}</span>'
    )
    statement = _statement(outcome, figures, claims)
    row = _cells(_CLAIM_COLUMNS, badge, statement, *shown, duration(outcome.seconds))
    return (
        f'<tbody id="{anchor("claim", outcome.claim.id)}" class="{verdict}"><tr>{row}</tr>'
        f'<tr class="more"><td colspan="6">{_details(outcome)}'
        f"{'' if record is None else _recorded(record)}</td></tr></tbody>"
    )


def _numbers(check: Check) -> tuple[str, str, str]:
    """The prediction, the measurement and the error of a check."""
    texts = predicted_text(check), value_text(check.measured), error_text(check)
    predicted, measured, error = map(escape, texts)
    return predicted, measured, error


def _statement(outcome: Outcome, figures: set[str], claims: set[str]) -> str:
    claim = outcome.claim
    parts = [f"<p>{escape(claim.statement)}</p>"]
    if outcome.reason:
        parts.append(f'<p class="reason">{escape(outcome.reason)}</p>')
    link = f'<a href="#{anchor("claim", claim.id)}"><code>{escape(claim.id)}</code></a>'
    about = " · ".join(escape(words) for words in (claim.source, power_text(outcome)) if words)
    parts.append(f'<p class="source">{link} · {about}</p>')
    pointers = [
        f'<a href="#{anchor("figure", name)}">{escape(name)}</a>'
        for name in claim.figures
        if name in figures
    ]
    if claim.corrected_by:
        right = escape(claim.corrected_by)
        if claim.corrected_by in claims:
            right = f'<a href="#{anchor("claim", claim.corrected_by)}">{right}</a>'
        else:
            right += ", which is not on this page"
        pointers.append(f"corrected in {right}")
    if pointers:
        parts.append(f'<p class="source">→ {", ".join(pointers)}</p>')
    return "".join(parts)


def _details(outcome: Outcome) -> str:
    rows = "".join(_check_row(check) for check in outcome.checks)
    table = f'<table class="checks">{_head(_CHECK_COLUMNS)}<tbody>{rows}</tbody></table>'
    words = f"<p><b>Tolerance:</b> {escape(outcome.claim.tolerance_reason)}</p>"
    title = f"{count_of(len(outcome.checks), 'check')}, tolerance, settings"
    body = (table if rows else "") + words + config_html(outcome.config)
    return f"<details><summary>{title}</summary>{body}</details>"


def _check_row(check: Check) -> str:
    css, result = ("passed", "✓ passes") if check.passed else ("failed", "✗ fails")
    shown = escape(check.name), *_numbers(check), _COMPARISONS[check.comparison], result
    return f'<tr class="{css}">{_cells(_CHECK_COLUMNS, *shown)}</tr>'


def config_html(config: dict) -> str:
    """Settings as a list of names and values."""
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value_text(value))}</dd></div>"
        for key, value in config.items()
    )
    return f'<dl class="config">{items}</dl>'

"""The claims on the page: a table of verdicts, with the checks of each claim below it."""

from collections import Counter
from collections.abc import Sequence

from ..papers import Outcome
from ._text import anchor, duration, error_text, escape, predicted_text, value_text

# Sign and word: readers who do not see colours can tell verdicts apart.
VERDICTS = {
    "holds": ("✓", "holds"),
    "fails": ("✗", "fails"),
    "inconclusive": ("?", "inconclusive"),
    "misstated": ("≠", "misstated"),
}
_COMPARED = "Error ≤ tolerance, or bound"
_COMPARISONS = {
    "absolute": "within",
    "relative": "within, relative",
    "standard errors": "within, in standard errors",
    "equal": "equal",
    "at least": "at least",
    "at most": "at most",
}


def counts_html(outcomes: Sequence[Outcome]) -> str:
    """How many claims got each verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    boxes = [
        f'<li class="count {verdict}"><span class="sign">{sign}</span> {word} '
        f"<b>{counts[verdict]}</b></li>"
        for verdict, (sign, word) in VERDICTS.items()
    ]
    return f'<ul class="counts">{"".join(boxes)}</ul>'


def overview_html(outcomes: Sequence[Outcome]) -> str:
    """Every claim as one short link with the sign of its verdict."""
    links = [
        f'<li class="{o.verdict}"><a href="#{anchor("claim", o.claim.id)}">'
        f"{VERDICTS[o.verdict][0]} {escape(o.claim.id.split('/', 1)[-1])}</a></li>"
        for o in outcomes
    ]
    return f'<ul class="overview">{"".join(links)}</ul>'


def claims_html(outcomes: Sequence[Outcome], figures: set[str], claims: set[str]) -> str:
    """The table of claims, with the checks of each in a section that folds away.

    **Arguments:**

    - `figures`, `claims`: the names of all figures and the ids of all claims on this page, for
      links to them.
    """
    rows = "".join(_row(outcome, figures, claims) for outcome in outcomes)
    head = "".join(
        f'<th scope="col">{title}</th>'
        for title in ("Verdict", "Claim", "Predicted", "Measured", _COMPARED, "Time")
    )
    return f'<table class="claims"><thead><tr>{head}</tr></thead>{rows}</table>'


def _row(outcome: Outcome, figures: set[str], claims: set[str]) -> str:
    claim, worst = outcome.claim, outcome.worst
    shown = ("–", "–", "–")
    if worst is not None:
        predicted, measured = escape(predicted_text(worst)), escape(value_text(worst.measured))
        name = f'<span class="which">{escape(worst.name)}</span>'
        shown = (name + predicted, measured, escape(error_text(worst)))
    cells = (
        ("Verdict", _verdict(outcome)),
        ("Claim", _statement(outcome, figures, claims)),
        *zip(("Predicted", "Measured", _COMPARED), shown),
        ("Time", duration(outcome.seconds)),
    )
    classes = ("verdict", "claim", "number", "number", "number error", "time")
    row = "".join(
        f'<td class="{css}" data-label="{escape(label)}">{content}</td>'
        for (label, content), css in zip(cells, classes)
    )
    name = anchor("claim", claim.id)
    return (
        f'<tbody id="{name}" class="{outcome.verdict}"><tr>{row}</tr>'
        f'<tr class="more"><td colspan="6">{_details(outcome)}</td></tr></tbody>'
    )


def _verdict(outcome: Outcome) -> str:
    sign, word = VERDICTS[outcome.verdict]
    return f'<span class="badge {outcome.verdict}"><span class="sign">{sign}</span> {word}</span>'


def _statement(outcome: Outcome, figures: set[str], claims: set[str]) -> str:
    claim = outcome.claim
    parts = [f"<p>{escape(claim.statement)}</p>"]
    if outcome.reason:
        parts.append(f'<p class="reason">{escape(outcome.reason)}</p>')
    link = f'<a href="#{anchor("claim", claim.id)}"><code>{escape(claim.id)}</code></a>'
    parts.append(f'<p class="source">{link} · {escape(claim.source)}</p>')
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
    rows = "".join(
        f'<tr class="{"passed" if check.passed else "failed"}">'
        f'<td data-label="Check">{escape(check.name)}</td>'
        f'<td data-label="Predicted" class="number">{escape(predicted_text(check))}</td>'
        f'<td data-label="Measured" class="number">{escape(value_text(check.measured))}</td>'
        f'<td data-label="{_COMPARED}" class="number">{escape(error_text(check))}</td>'
        f'<td data-label="Comparison">{_COMPARISONS[check.comparison]}</td>'
        f'<td data-label="Passed">{"✓ passes" if check.passed else "✗ fails"}</td></tr>'
        for check in outcome.checks
    )
    titles = ("Check", "Predicted", "Measured", _COMPARED, "Comparison", "Result")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    table = f'<table class="checks"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    words = f"<p><b>Tolerance:</b> {escape(outcome.claim.tolerance_reason)}</p>"
    count = len(outcome.checks)
    title = f"{count} check{'' if count == 1 else 's'}, tolerance, settings"
    body = (table if rows else "") + words + config_html(outcome.config)
    return f"<details><summary>{title}</summary>{body}</details>"


def config_html(config: dict) -> str:
    """Settings as a list of names and values."""
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value_text(value))}</dd></div>"
        for key, value in config.items()
    )
    return f'<dl class="config">{items}</dl>'

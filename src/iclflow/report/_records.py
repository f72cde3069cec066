"""Recorded results on the page, clearly apart from what this machine computed."""

import dataclasses
from typing import Any

from ..papers import CLAIMS, Check, Claim
from ._info import RunInfo
from ._sources import source_html
from ._text import COARSE, SIGNS, anchor, count_of, duration, escape


@dataclasses.dataclass(frozen=True)
class Record:
    """What a claim measured elsewhere.

    **Fields:**

    - `info`: where, when and how it was computed.
    - `command`: computes it.
    - `outcome`: verdict, reason, power, seconds, settings, hashes and checks, as in the JSON of a
      report.
    """

    claim: str
    info: RunInfo
    command: str
    outcome: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The record as plain data, as its file holds it."""
        about = dataclasses.asdict(self.info)
        about.pop("seconds")  # of all claims that were computed together
        return {"claim": self.claim, "command": self.command, **about, **self.outcome}

    @property
    def statement(self) -> Claim:
        """The claim itself."""
        return CLAIMS[self.claim]

    @property
    def checks(self) -> list[Check]:
        """The recorded checks."""
        fields = [field.name for field in dataclasses.fields(Check)]
        kept = [{key: c[key] for key in fields if key in c} for c in self.outcome["checks"]]
        return [Check(**each) for each in kept]


def record_summary(record: Record) -> str:
    """One line: the recorded verdict, where and when."""
    verdict, info = record.outcome["verdict"], record.info
    power = record.outcome["power"]
    words = f"{count_of(len(record.outcome['checks']), 'check')}, tier “{info.tier}”"
    if isinstance(power, float) and power > COARSE:
        words += f", coarse: notices {100 * power:.2g} %"
    return (
        f'Recorded elsewhere: <span class="{verdict}">{SIGNS[verdict]} {verdict}</span>, '
        f"{escape(words)}, on {escape(info.machine)}, {escape(info.date)}, in "
        f"{escape(duration(record.outcome['seconds']))}, by {escape(info.software)}"
    )


def recorded_card(record: Record, details: str) -> str:
    """A claim that was not computed here, with what was measured elsewhere.

    **Arguments:**

    - `details`: its checks and settings, as HTML.
    """
    claim, verdict = record.statement, record.outcome["verdict"]
    here, reason = anchor("claim", claim.id), record.outcome["reason"]
    return (
        f'<article id="{here}" class="claim elsewhere {verdict}" data-verdict="{verdict}" '
        f'data-paper="{claim.paper}" tabindex="-1"><div class="said">'
        f'<p class="top"><span class="badge {verdict}"><span class="sign">{SIGNS[verdict]}</span> '
        f'{verdict}</span> <a class="id" href="#{here}">'
        f"<code>{escape(claim.id)}</code></a></p>"
        f'<p class="statement">{escape(claim.statement)}</p>'
        + (f'<p class="reason">{escape(reason)}</p>' if reason else "")
        + f'<p class="source">{source_html(claim)}</p></div>'
        f'<div class="more">{details}</div></article>'
    )

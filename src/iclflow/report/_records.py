"""Recorded results on the page, clearly apart from what this machine computed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..papers import CLAIMS, Check
from ._info import RunInfo
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


def statements_html(records: Sequence[Record], details: Sequence[str]) -> str:
    """Records of claims that were not computed here, with their statements.

    **Arguments:**

    - `details`: the checks and settings of each, as HTML.
    """
    items = []
    for record, detail in zip(records, details, strict=True):
        claim = CLAIMS[record.claim]
        reason = record.outcome["reason"]
        items.append(
            f'<li id="{anchor("claim", claim.id)}"><p>{escape(claim.statement)}</p>'
            + (f'<p class="reason">{escape(reason)}</p>' if reason else "")
            + f'<p class="source"><code>{escape(claim.id)}</code> · {escape(claim.source)}</p>'
            f"{detail}</li>"
        )
    return (
        f'<h3>Recorded elsewhere, not computed here</h3><ul class="recorded">{"".join(items)}</ul>'
        if items
        else ""
    )

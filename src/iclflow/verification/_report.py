"""The result of a verification: outcomes and figures, as data, as a page, and in a folder."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

from ..files import write_own
from ..papers import FIGURES, Claim, Outcome
from ..report import Record, ReportFigure, RunInfo, render_report
from ._gallery import figure_files
from ._record import TIER, compare

# The page, and the same as data.
PAGES = ("report.html", "claims.json")
"""The files that a report writes, beside its figures.

**Example:**

```pycon
>>> from iclflow.verification import PAGES
>>> PAGES
('report.html', 'claims.json')
```
"""


@dataclasses.dataclass(frozen=True)
class Report:
    """Claims, their verdicts, and the figures that show them.

    **Fields:**

    - `files`: the files of the figures that could be drawn, by name.
    - `info`: where, when and how the results were computed.
    - `left_out`: claims of slower tiers that would have been selected too.
    - `records`: what was measured elsewhere, by claim: of the selected claims and of those that
      were left out.
    - `compared`: whether results have to agree with their records.
    """

    outcomes: tuple[Outcome, ...]
    figures: tuple[ReportFigure, ...]
    files: dict[str, bytes]
    info: RunInfo
    left_out: tuple[Claim, ...]
    records: dict[str, Record] = dataclasses.field(default_factory=dict)
    compared: bool = False

    @property
    def ok(self) -> bool:
        """Whether no claim fails, every figure was drawn, and results agree with the records that
        they are compared with; with wrong predictions, whether all claims fail."""
        failed = [outcome.verdict == "fails" for outcome in self.outcomes]
        if self.info.falsify:
            return all(failed)
        apart = self.compared and any(kind == "differs" for kind, _ in self.differences().values())
        return not (any(failed) or self.not_drawn or apart)

    @property
    def not_drawn(self) -> list[str]:
        """The names of the figures that could not be drawn."""
        return [figure.name for figure in self.figures if figure.problem]

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims got each verdict."""
        return Counter(outcome.verdict for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        info = self.info
        return {
            "date": info.date,
            "tier": info.tier,
            "falsify": info.falsify,
            "seconds": round(info.seconds, 3),
            "machine": info.machine,
            "versions": info.versions,
            "commit": info.commit,
            "verdicts": dict(self.verdicts),
            "claims": [outcome.as_json() for outcome in self.outcomes],
            "left_out": [{"id": claim.id, "tier": claim.tier} for claim in self.left_out],
            "recorded": [record.as_json() for record in self.records.values()],
            "differences": self.differences() if self.info.tier == TIER else {},
            "figures": [
                {"name": f.name, "seconds": round(f.seconds, 3), "problem": f.problem}
                for f in self.figures
            ],
        }

    def differences(self) -> dict[str, tuple[str, str]]:
        """How the outcomes compare with their records, by claim; only the paper tier has records
        of the same size."""
        own = {outcome.claim.id: outcome for outcome in self.outcomes}
        return {id: compare(own[id], record) for id, record in self.records.items() if id in own}

    def json_text(self) -> str:
        """The report as JSON."""
        # Settings that claims record may be objects, such as save points: written as text.
        return json.dumps(self.as_json(), indent=2, default=str) + "\n"

    def html(self) -> str:
        """The report as one self-contained HTML page."""
        return render_report(
            self.outcomes, self.figures, self.info, self.left_out, tuple(self.records.values())
        )

    def write(self, folder: Path) -> Path:
        """Writes the page, the data and the figures, and returns the page; figures of an earlier
        report that are not in this one are removed."""
        page, claims = PAGES
        pages = {page: self.html(), claims: self.json_text()}
        earlier = [name for name in figure_files(FIGURES) if name not in self.files]
        write_own(folder, self.files | pages, earlier)
        return folder / page

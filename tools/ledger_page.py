"""Writes docs/ledger.md: every statement of the papers, its claims, their verdicts and power.

Usage: `python tools/ledger_page.py out/verify/claims.json`, after `iclflow verify`. Statements, and
which claims test them, are in src/iclflow/papers/ledger.toml; verdicts are those of the report.
"""

import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "src" / "iclflow" / "papers" / "ledger.toml"
RECORDS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "ledger.md"
TITLES = {
    "linear": "Linear attention (arXiv 2501.16265)",
    "softmax": "Softmax attention (arXiv 2503.12734)",
    "multitask": "Multi-task softmax attention (arXiv 2402.19442)",
    "diversity": "Few tasks and finite pretraining data (arXiv 2405.11751 and others)",
    "depth": "Stacks and loops of linear attention (arXiv 2510.01098, 2306.00297)",
}
HEAD = """# The ledger

What the papers say, statement by statement, as far as their text can be had, and what is
computed about each. `tools/ledger_page.py` writes this page from `src/iclflow/papers/ledger.toml`
and a report of `iclflow verify`.

- **covered**: claims test the statement in its own setting.
- **partly**: claims test a weaker or another form; the last column says what a full check must do.
- **missing**: nothing tests it yet.
- **unavailable**: the text of the statement cannot be had.

*Power* is the smallest relative change of its predictions that a claim would have noticed (0: a
count or an order, which notices every change). *Recorded*: computed at the paper tier on another
machine (`docs/results`).

No other page says more than this one. A statement that is *partly* covered or *unavailable* has not
been checked as it stands. A claim that holds was measured at the settings of its study: that is
evidence, not a proof. Each page of derivations has a section on what is not proved
([linear](theory/linear.md#16-what-is-not-proved-here),
[softmax](theory/softmax.md#17-what-is-not-proved-here),
[several tasks](theory/multitask.md#16-what-is-not-proved-here),
[few tasks](theory/diversity.md#15-what-is-not-proved-here)).

## In numbers
"""
STATUSES = ("covered", "partly", "missing", "unavailable")
VERDICTS = ("holds", "misstated", "overread", "inconclusive", "fails")


def write(outcomes: dict[str, dict]) -> str:
    """The page as Markdown."""
    rows = tomllib.loads(LEDGER.read_text(encoding="utf-8"))
    parts = [HEAD, *statement_counts(rows), "", *_verdict_counts(rows, outcomes)]
    for paper, title in TITLES.items():
        parts += [f"\n## {title}\n", "| row | where | statement | status | claims | open |"]
        parts += ["|---|---|---|---|---|---|"]
        for name, row in rows.items():
            if row["paper"] == paper:
                claims = "<br>".join(_claim(id, outcomes) for id in row["claims"]) or "–"
                cells = name, row["where"], row["statement"], row["status"], claims
                parts.append(_line(*cells, row.get("open", "")))
    named = {id for row in rows.values() for id in row["claims"]}
    parts += ["\n## Beyond the papers\n", "Derived here, and tested like the rest.\n"]
    parts += [f"- {_claim(id, outcomes)}" for id in outcomes if id not in named]
    return "\n".join(parts) + "\n"


def statement_counts(rows: dict[str, dict]) -> list[str]:
    """How many statements of each paper have each status."""
    lines = [_line("paper", "statements", *STATUSES), "|---|---|---|---|---|---|"]
    for paper, title in [*TITLES.items(), (None, "all")]:
        mine = [row["status"] for row in rows.values() if paper in (row["paper"], None)]
        lines.append(_line(title, str(len(mine)), *(str(mine.count(each)) for each in STATUSES)))
    return lines


def _verdict_counts(rows: dict[str, dict], outcomes: dict[str, dict]) -> list[str]:
    """How many claims about statements, and beyond them, have each verdict."""
    named = {id for row in rows.values() for id in row["claims"]}
    lines = [_line("claims", "number", *VERDICTS, "not computed"), f"|{'---|' * 8}"]
    beyond = set(outcomes) - named
    for title, ids in (("about these statements", named), ("beyond the papers", beyond)):
        found = [(_outcome(id, outcomes)[0] or {}).get("verdict", "") for id in ids]
        counts = [str(found.count(each)) for each in (*VERDICTS, "")]
        lines.append(_line(title, str(len(ids)), *counts))
    return lines


def _outcome(id: str, outcomes: dict[str, dict]) -> tuple[dict | None, str]:
    """What came out for a claim, and where if not in this report: recorded elsewhere, or None."""
    record = RECORDS / f"{id.replace('/', '-')}.json"
    if id not in outcomes and record.exists():
        return json.loads(record.read_text(encoding="utf-8")), ", recorded"
    return outcomes.get(id), ""


def _claim(id: str, outcomes: dict[str, dict]) -> str:
    """A claim with its verdict: computed, or recorded elsewhere for want of it."""
    outcome, where = _outcome(id, outcomes)
    if outcome is None:
        return f"`{id}` (not computed at this tier)"
    power = outcome["power"]
    share = "–" if power is None else "0" if power == 0 else f"{100 * power:.2g} %"
    return f"`{id}`: {outcome['verdict']}, power {share}{where}"


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} CLAIMS.json")
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    PAGE.write_text(write({each["id"]: each for each in report["claims"]}), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")

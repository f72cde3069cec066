"""Writes docs/ledger.md: every statement of the papers, its claims, their verdicts and power.

Usage: `python tools/ledger_page.py out/verify/claims.json`, after `iclflow verify`. Statements, and
which claims test them, are in src/iclflow/papers/ledger.toml; verdicts are those of the report.
"""

import collections
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
    "diversity": "Few tasks and finite pretraining data (arXiv 2405.11751)",
}
HEAD = """# The ledger

What the three papers say, statement by statement, as far as their text can be had, and what is
computed about each. `tools/ledger_page.py` writes this page from `src/iclflow/papers/ledger.toml`
and a report of `iclflow verify`.

- **covered**: claims test the statement in its own setting.
- **partly**: claims test a weaker or another form; the last column says what a full check must do.
- **missing**: nothing tests it yet.
- **unavailable**: the text of the statement cannot be had.

*Power* is the smallest relative change of its predictions that a claim would have noticed (0: a
count or an order, which notices every change). *Recorded*: computed at the paper tier on another
machine (`docs/results`).
"""


def write(outcomes: dict[str, dict]) -> str:
    """The page as Markdown."""
    rows = tomllib.loads(LEDGER.read_text(encoding="utf-8"))
    parts = [HEAD, _counts(rows)]
    for paper, title in TITLES.items():
        parts += [f"\n## {title}\n", "| row | where | statement | status | claims | open |"]
        parts += ["|---|---|---|---|---|---|"]
        for name, row in rows.items():
            if row["paper"] == paper:
                claims = "<br>".join(_claim(id, outcomes.get(id)) for id in row["claims"]) or "–"
                cells = name, row["where"], row["statement"], row["status"], claims
                parts.append(_line(*cells, row.get("open", "")))
    named = {id for row in rows.values() for id in row["claims"]}
    parts += ["\n## Beyond the papers\n", "Derived here, and tested like the rest.\n"]
    parts += [f"- {_claim(id, outcome)}" for id, outcome in outcomes.items() if id not in named]
    return "\n".join(parts) + "\n"


def _counts(rows: dict[str, dict]) -> str:
    counts = collections.Counter(row["status"] for row in rows.values())
    order = ("covered", "partly", "missing", "unavailable")
    return f"Of {len(rows)} statements: " + ", ".join(f"{counts[s]} {s}" for s in order) + "."


def _claim(id: str, outcome: dict | None) -> str:
    """A claim with its verdict: computed, or recorded elsewhere for want of it."""
    where, record = "", RECORDS / f"{id.replace('/', '-')}.json"
    if outcome is None and record.exists():
        where, outcome = ", recorded", json.loads(record.read_text(encoding="utf-8"))
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

"""The ledger: every statement has a status, and names claims that exist."""

import re
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

from iclflow.papers import PAPERS, all_claims

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import ledger_page

ROOT = Path(__file__).resolve().parent.parent
ROWS = tomllib.loads(files("iclflow.papers").joinpath("ledger.toml").read_text("utf-8"))


def test_every_row_has_a_status_and_claims_that_exist():
    known = {claim.id for claim in all_claims()}
    assert len(ROWS) == 119
    for name, row in ROWS.items():
        assert row["paper"] in PAPERS and row["where"] and row["statement"], name
        assert set(row["claims"]) <= known, name
        assert row["status"] in {"covered", "partly", "missing", "unavailable"}, name
        # What is tested names its claims; what is not says what a check must do.
        assert bool(row["claims"]) or row["status"] in {"missing", "unavailable", "partly"}, name
        assert ("open" in row) == (row["status"] in {"partly", "missing"}), name


def test_the_page_has_every_row_with_its_claims():
    lines = (ROOT / "docs" / "ledger.md").read_text("utf-8").splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    for name, row in ROWS.items():
        assert f"| {row['status']} |" in rows[name], name
        assert all(f"`{claim}`" in rows[name] for claim in row["claims"]), name


def test_no_claim_of_a_paper_is_refuted_without_its_row():
    named = {claim for row in ROWS.values() for claim in row["claims"]}
    # A verdict against a statement needs the statement, with where it stands.
    assert {claim.id for claim in all_claims() if claim.fault} <= named


def test_the_page_begins_with_the_counts_of_the_registry():
    page = (ROOT / "docs" / "ledger.md").read_text("utf-8")
    assert page.startswith(ledger_page.HEAD)
    assert "\n".join(ledger_page.statement_counts(ROWS)) in page
    summed = re.search(
        r"^\| all \| 119 \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE
    )
    assert summed is not None and sum(map(int, summed.groups())) == len(ROWS)
    # Every verdict that the rows show is counted.
    named = {claim for row in ROWS.values() for claim in row["claims"]}
    about = re.search(r"^\| about these statements \|(.*)\|$", page, re.MULTILINE)
    assert about is not None
    number, *counts = (int(cell) for cell in about[1].split("|"))
    assert number == sum(counts) == len(named)


def test_no_page_says_that_more_is_computed_than_the_ledger_has():
    pages = [ROOT / name for name in ("README.md", "CITATION.cff", "pyproject.toml")]
    too_much = re.compile(
        r"(?:every|all|each)(?: of)?(?: the)? (?:claims?|statements?|theorems?|results?) (?:of|in)"
        r" (?:the|these|all|three) (?:three )?papers?|arXiv[^.]{0,60}\): computed",
        re.IGNORECASE,
    )
    for page in (*pages, *sorted((ROOT / "docs").rglob("*.md"))):
        text = " ".join(page.read_text("utf-8").split())
        assert too_much.findall(text) == [], page

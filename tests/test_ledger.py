"""The ledger: every statement has a status, and names claims that exist."""

import tomllib
from importlib.resources import files
from pathlib import Path

from iclflow.papers import PAPERS, all_claims

ROOT = Path(__file__).resolve().parent.parent
ROWS = tomllib.loads(files("iclflow.papers").joinpath("ledger.toml").read_text("utf-8"))


def test_every_row_has_a_status_and_claims_that_exist():
    known = {claim.id for claim in all_claims()}
    assert len(ROWS) == 99
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

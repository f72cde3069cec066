"""`iclflow claims`: the claims, and which of them a config or a sweep tests."""

import json
from collections.abc import Sequence
from typing import Any

from ..runtime import start
from ..studies import PAPERS
from ._errors import Parser, add_json
from ._kinds import check_kind


def main(arguments: Sequence[str]) -> int:
    """Lists the claims, in words or as JSON."""
    parser = Parser("claims", "Lists every claim: its statement, its source, its tier.")
    parser.add_argument("--paper", choices=PAPERS, help="only claims of one paper")
    parser.add_argument(
        "--on",
        metavar="FILE|STUDY",
        help="only claims that a run of this config or study tests, or the runs of this sweep, and "
        "why other claims on single runs do not apply",
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    if options.on is not None:
        return _list_for_config(options.on, options.paper, options.json)
    from ..papers import all_claims

    chosen = tuple(c for c in all_claims() if options.paper in (None, c.paper))
    if options.json:
        keys = ("id", "paper", "statement", "source", "tier", "misstated", "corrected_by")
        print(json.dumps([{key: getattr(c, key) for key in keys} for c in chosen], indent=2))
    elif not chosen:
        print(f"There is no claim of the paper `{options.paper}` yet.")
    else:
        from ._tables import print_claims

        print_claims(chosen)
    return 0


def _list_for_config(path: str, paper: str | None, as_json: bool) -> int:
    """Which claims the run of a config tests, or the runs of a sweep."""
    from ..config import parse_config
    from ..papers import read_settings

    check_kind(path, "file of a run", "file of a sweep")
    data = read_settings(path)
    if "base" in data:
        return _list_for_sweep(data, path, paper, as_json)
    config = parse_config(data, stored=True)  # nothing is computed
    start()
    checks = _select(paper)
    reasons = {check: check.refuses(config) for check in checks}
    if as_json:
        rows = [
            {"id": c.id, "statement": c.statement, "tests": r is None, "reason": r}
            for c, r in reasons.items()
        ]
        print(json.dumps(rows, indent=2))
        return 0
    from ._tables import count_of, print_claims

    tested = tuple(check for check, reason in reasons.items() if reason is None)
    print(f"A run of {path} tests {count_of(len(tested), 'claim')} {_of_how_many(paper)}:")
    print_claims(tested)
    for check, reason in reasons.items():
        if reason is not None:
            print(f"– {check.id} {reason}")
    return 0


def _list_for_sweep(data: dict[str, Any], path: str, paper: str | None, as_json: bool) -> int:
    """Which claims the runs of a sweep test, and how many of them each."""
    start()
    from ..sweeps import parse_sweep

    # The claims that `measure` names may be ones for which the sweep would be refused.
    sweep = parse_sweep({key: value for key, value in data.items() if key != "measure"})
    configs = [point.config for point in sweep.points]
    rows = []
    for check in _select(paper):
        # Whether a claim applies depends on settings alone, not on the seed.
        runs = len(sweep.seeds) * sum(check.refuses(config) is None for config in configs)
        row = {"id": check.id, "statement": check.statement, "runs": runs}
        rows.append(row | {"reason": None if runs else check.refuses_all(configs)})
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    from ._tables import count_of

    tested = [row for row in rows if row["runs"]]
    count = count_of(len(tested), "claim")
    print(f"The {count_of(len(sweep), 'run')} of {path} test {count} {_of_how_many(paper)}:")
    width = max((len(row["id"]) for row in tested), default=0)
    for row in tested:
        print(f"{row['id']:<{width}}  {count_of(row['runs'], 'run')}")
    for row in rows:
        if not row["runs"]:
            print(f"– {row['id']} {row['reason']}")
    return 0


def _select(paper: str | None):
    """The claims on single runs: all, or those of a paper."""
    from ..papers import claims_on_runs

    return [check for check in claims_on_runs() if paper in (None, check.paper)]


def _of_how_many(paper: str | None) -> str:
    """How many claims are on single runs, and how many there are."""
    from ..papers import all_claims

    total = sum(paper in (None, claim.paper) for claim in all_claims())
    return f"of the {len(_select(paper))} on single runs ({total} claims in all)"

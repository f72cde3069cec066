"""`iclflow claims`: the registry, and what it says about the runs of a config or a sweep."""

import json
from collections.abc import Sequence
from typing import Any

from ._errors import Parser, add_json
from ._kinds import check_kind
from ._start import start

PAPERS = ("linear", "softmax", "multitask")


def main(arguments: Sequence[str]) -> int:
    """Lists the claims, in words or as JSON."""
    parser = Parser("claims", "Lists every claim: what it says, where it is from, its tier.")
    parser.add_argument("--paper", choices=PAPERS, help="those of one paper")
    parser.add_argument(
        "--on",
        metavar="FILE",
        help="those that a run of this config tests, or the runs of this sweep, and why others "
        "that speak of single runs say nothing about it",
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    if options.on is not None:
        return _on(options.on, options.paper, options.json)
    from ..claims import all_claims

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


def _on(path: str, paper: str | None, as_json: bool) -> int:
    """Which claims the run of a config tests, or the runs of a sweep."""
    from ..config import named, parse_config, read_toml

    check_kind(path, "file of a run", "file of a sweep")
    data = named(read_toml(path), path)
    if "base" in data:
        return _on_sweep(data, path, paper, as_json)
    config = parse_config(data, stored=True)  # nothing is computed
    start()
    checks = _chosen(paper)
    reasons = {check: check.refuses(config) for check in checks}
    if as_json:
        rows = [
            {"id": c.id, "statement": c.claim.statement, "tests": r is None, "reason": r}
            for c, r in reasons.items()
        ]
        print(json.dumps(rows, indent=2))
        return 0
    from ._tables import counted, print_claims

    tested = tuple(check.claim for check, reason in reasons.items() if reason is None)
    print(f"A run of {path} tests {counted(len(tested), 'claim')} {_of_how_many(paper)}:")
    print_claims(tested)
    for check, reason in reasons.items():
        if reason is not None:
            print(f"– {check.id} {reason}")
    return 0


def _on_sweep(data: dict[str, Any], path: str, paper: str | None, as_json: bool) -> int:
    """Which claims the runs of a sweep test, and how many of them each."""
    start()
    from ..sweep import parse_sweep

    # Who asks for claims may have named some that the sweep would be refused for.
    sweep = parse_sweep({key: value for key, value in data.items() if key != "measure"})
    configs = [point.config for point in sweep.points]
    rows = []
    for check in _chosen(paper):
        # Needs are about settings: all seeds of a point are alike.
        runs = len(sweep.seeds) * sum(check.refuses(config) is None for config in configs)
        row = {"id": check.id, "statement": check.claim.statement, "runs": runs}
        rows.append(row | {"reason": None if runs else check.refuses_all(configs)})
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    from ._tables import counted

    tested = [row for row in rows if row["runs"]]
    count = counted(len(tested), "claim")
    print(f"The {counted(len(sweep), 'run')} of {path} test {count} {_of_how_many(paper)}:")
    width = max((len(row["id"]) for row in tested), default=0)
    for row in tested:
        print(f"{row['id']:<{width}}  {counted(row['runs'], 'run')}")
    for row in rows:
        if not row["runs"]:
            print(f"– {row['id']} {row['reason']}")
    return 0


def _chosen(paper: str | None):
    """The claims that speak of runs: all, or those of a paper."""
    from ..claims import all_run_checks

    return [check for check in all_run_checks() if paper in (None, check.claim.paper)]


def _of_how_many(paper: str | None) -> str:
    """How many claims speak of single runs, and how many there are."""
    from ..claims import all_claims

    total = sum(paper in (None, claim.paper) for claim in all_claims())
    return f"of the {len(_chosen(paper))} that speak of single runs ({total} in all)"

"""`iclflow claims`: the registry, and what it says about the run of a config."""

import json
from collections.abc import Sequence

from ._errors import Parser, add_json
from ._start import start

PAPERS = ("linear", "softmax", "multitask")


def main(arguments: Sequence[str]) -> int:
    """Lists the claims, in words or as JSON."""
    parser = Parser("claims", "Lists every claim: what it says, where it is from, its tier.")
    parser.add_argument("--paper", choices=PAPERS, help="those of one paper")
    parser.add_argument(
        "--on",
        metavar="FILE",
        help="those that a run of this config tests, and why the others say nothing about it",
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
    """Which claims a run of the config tests."""
    from ..config import load_config

    config = load_config(path)
    start()
    from ..claims import all_run_checks

    checks = [check for check in all_run_checks() if paper in (None, check.claim.paper)]
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
    print(f"A run of {path} tests {counted(len(tested), 'claim')} of {len(checks)}:")
    print_claims(tested)
    for check, reason in reasons.items():
        if reason is not None:
            print(f"– {check.id} {reason}")
    return 0

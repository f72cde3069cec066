"""`iclflow claims`: the claims, and which of them a config or a sweep tests."""

from collections.abc import Sequence
from typing import Any

from ..config import Config, parse_config
from ..runtime import start
from ..studies import PAPERS, read_settings
from ._arguments import Parser, check_kind
from ._streams import print_json, say


def main(arguments: Sequence[str]) -> int:
    """Lists the claims, in words or as JSON."""
    parser = Parser("claims", "Lists every claim: its statement, its source, its tier.")
    parser.flag("--paper", "only claims of one paper", choices=PAPERS)
    parser.flag(
        "--on",
        "only claims that a run of this config or study tests, or the runs of this sweep, and why "
        "other claims on single runs do not apply",
        "FILE|STUDY",
    )
    parser.add_json()
    options = parser.parse_args(arguments)
    if options.on is not None:
        return _list_tested(options.on, options.paper, options.json)
    from ..papers import listed_claims

    chosen = tuple(c for c in listed_claims() if options.paper in (None, c.paper))
    if options.json:
        keys = (
            "id",
            "paper",
            "statement",
            "source",
            "tier",
            "misstated",
            "overread",
            "corrected_by",
        )
        print_json([{key: getattr(c, key) for key in keys} for c in chosen])
    elif not chosen:
        print(f"There is no claim of the paper `{options.paper}` yet.")
    else:
        from ._tables import print_claims

        print_claims(chosen)
    return 0


def _list_tested(path: str, paper: str | None, as_json: bool) -> int:
    """Lists the claims that the runs of a config or a sweep test, and why others do not apply."""
    from ..papers import all_claims, claims_on_runs

    check_kind(path, "file of a run", "file of a sweep")
    data = read_settings(path)
    is_sweep = "base" in data
    # Nothing is computed: `stored` accepts configs that this machine could not run.
    configs, seeds = _parse_sweep(data) if is_sweep else ([parse_config(data, stored=True)], 1)
    start()
    checks = [check for check in claims_on_runs() if paper in (None, check.paper)]
    reasons = {check: check.refuses_all(configs) for check in checks}
    # Whether a claim applies depends on settings alone, not on the seed.
    runs = {c: seeds * sum(c.refuses(config) is None for config in configs) for c in checks}
    if as_json:
        rows = []
        for c in checks:
            tests = {"runs": runs[c]} if is_sweep else {"tests": reasons[c] is None}
            rows.append({"id": c.id, "statement": c.statement, **tests, "reason": reasons[c]})
        print_json(rows)
        return 0
    from ..report import count_of
    from ._tables import print_claims

    tested = tuple(check for check, reason in reasons.items() if reason is None)
    total = sum(paper in (None, claim.paper) for claim in all_claims())
    count = f"{count_of(len(tested), 'claim')} of the {len(checks)} on single runs"
    many = f"The {count_of(seeds * len(configs), 'run')} of {path} test"
    say(f"{many if is_sweep else f'A run of {path} tests'} {count} ({total} claims in all):")
    if is_sweep:
        width = max((len(check.id) for check in tested), default=0)
        for check in tested:
            print(f"{check.id:<{width}}  {count_of(runs[check], 'run')}")
    else:
        print_claims(tested)
    for check, reason in reasons.items():
        if reason is not None:
            say(f"– {check.id} {reason}", 2)
    return 0


def _parse_sweep(data: dict[str, Any]) -> tuple[list[Config], int]:
    """The configs of a sweep, and how many seeds each runs with."""
    start()
    from ..sweeps import parse_sweep

    # The claims that `measure` names may be ones for which the sweep would be refused.
    sweep = parse_sweep({key: value for key, value in data.items() if key != "measure"})
    return [point.config for point in sweep.points], len(sweep.seeds)

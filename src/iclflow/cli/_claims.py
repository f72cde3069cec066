"""`iclflow claims`: the registry."""

import json
from collections.abc import Sequence

from ._errors import Parser, add_json

PAPERS = ("linear", "softmax", "multitask")


def main(arguments: Sequence[str]) -> int:
    """Lists the claims, in words or as JSON."""
    parser = Parser("claims", "Lists every claim: what it says, where it is from, its tier.")
    parser.add_argument("--paper", choices=PAPERS, help="those of one paper")
    add_json(parser)
    options = parser.parse_args(arguments)
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

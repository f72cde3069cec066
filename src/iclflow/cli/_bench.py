"""`iclflow bench [NAME]`: speed, measured here and now."""

import contextlib
import importlib.util
import json
import sys
from collections.abc import Sequence

from ..config import InputError
from ._activity import Activity, alone
from ._errors import Parser, add_json
from ._start import start

SUITES = ("training", "linear", "softmax", "sweeps", "scale")
_INSTALL = "To install it from a clone: pip install -c constraints.txt -e '.[bench]'."


def main(arguments: Sequence[str]) -> int:
    """Runs one suite and prints what it measured."""
    parser = Parser("bench", "Measures speed against plain training loops, side by side.")
    names = f"{', '.join(SUITES)} (default: training, which is linear and softmax)"
    parser.add_argument(
        "name", nargs="?", default=SUITES[0], choices=SUITES, metavar="NAME", help=names
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see what is measured")
    add_json(parser)
    options = parser.parse_args(arguments)
    start()
    from .. import bench

    if importlib.util.find_spec("torch") is None:
        print(f"PyTorch is not installed: rows beside it stay empty. {_INSTALL}", file=sys.stderr)

    with contextlib.ExitStack() as shown:
        if options.json:  # else the suite prints its own table
            shown.enter_context(Activity(f"measuring {options.name}"))
            shown.enter_context(alone())
        try:
            results = bench.main(options.name, quiet=options.json, quick=options.quick)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "iclflow":
                raise
            raise InputError(f"`bench {options.name}` needs {error.name}. {_INSTALL}") from None
    if options.json:
        print(json.dumps(results, indent=2))
    return 0

"""`python -m benchmarks [NAME]`: speed, measured here and now."""

import argparse
import contextlib
import importlib.util
import json
import sys
from collections.abc import Sequence

from iclflow.runtime import Activity, hide_progress, start

from . import SUITES
from . import main as run

_INSTALL = "To install it from a clone: pip install -c constraints.txt -e '.[bench]'."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one suite and prints what it measured."""
    parser = argparse.ArgumentParser(
        prog="benchmarks",
        description="Measures speed against plain training loops, side by side.",
        allow_abbrev=False,
    )
    names = f"{', '.join(SUITES)} (default: training, which is linear and softmax)"
    parser.add_argument(
        "name", nargs="?", default=SUITES[0], choices=SUITES, metavar="NAME", help=names
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see what is measured")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    start()
    if importlib.util.find_spec("torch") is None:
        print(f"PyTorch is not installed: rows beside it stay empty. {_INSTALL}", file=sys.stderr)
    with contextlib.ExitStack() as shown:
        if options.json:  # else the suite prints its own table
            shown.enter_context(Activity(f"measuring {options.name}"))
            shown.enter_context(hide_progress())
        try:
            results = run(options.name, quiet=options.json, quick=options.quick)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] in ("iclflow", "benchmarks"):
                raise
            parser.error(f"{options.name} needs {error.name}. {_INSTALL}")
    if options.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

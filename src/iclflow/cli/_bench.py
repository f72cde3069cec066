"""`iclflow bench NAME`: speed, measured here and now."""

import importlib
import json
from collections.abc import Sequence

from ..config import InputError
from ._errors import Parser, add_json
from ._start import start

BENCHES = ("linear",)


def main(arguments: Sequence[str]) -> int:
    """Runs one benchmark and prints what it measured."""
    parser = Parser("bench", "Measures speed against plain training loops, side by side.")
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    add_json(parser)
    options = parser.parse_args(arguments)
    start()
    try:
        bench = importlib.import_module(f"...bench.{options.name}", __name__)
        results = bench.main(quiet=options.json)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "iclflow":
            raise
        raise InputError(
            f"`bench {options.name}` needs {error.name}: install `iclflow[bench]`."
        ) from None
    if options.json:
        print(json.dumps(results, indent=2))
    return 0

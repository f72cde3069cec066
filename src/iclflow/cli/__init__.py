"""The command line: `iclflow COMMAND …`.

Nothing heavy is imported here: a command loads what it needs when it is called.
"""

import importlib
import sys
from collections.abc import Sequence

from ._streams import note, open_streams, silence_output

COMMANDS = {
    "run": "run one experiment of your own from a TOML file",
    "runs": "list, check and tidy the runs on disk",
    "show": "show one of them again",
    "sweep": "run many at once, with settings that vary, into one table",
    "query": "ask the table of a sweep in SQL",
    "plot": "draw curves and phase diagrams of a sweep",
    "claims": "list the claims of the papers",
    "verify": "compute the claims and write a report",
    "reproduce": "draw one figure of a paper, with its data and its settings",
    "explore": "change settings in the browser and watch attention learn",
    "inspect": "say what the heads of a trained model do, and which algorithm they are",
    "bench": "measure speed against a plain training loop",
}

_HELP = f"""\
usage: iclflow COMMAND …

How does attention learn to learn in context? Exact risks, training dynamics, theory, and every
claim of the papers as a check that can fail.

commands:
{chr(10).join(f"  {name:<11}{words}" for name, words in COMMANDS.items())}

`iclflow COMMAND --help` says more about each.
exit codes: 0 done, 1 a claim fails or a run does not reach its end, 2 bad input or a limit,
130 interrupted (a run keeps what it has)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    open_streams()
    try:
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments), arguments is None)
        finally:
            sys.stdout.flush()
    except OSError as error:
        # Whoever read our output has had enough (`| head`): that is no error.
        if isinstance(error, BrokenPipeError) and silence_output():
            return 0
        note(f"{error.strerror or error}.")
        silence_output()
        return 2


def _main(words: list[str], alone: bool) -> int:
    """Runs a command; `alone` says that the process ends with it."""
    if not words or words[0] in ("-h", "--help"):
        print(_HELP)
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"iclflow {version('iclflow')}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        note(f"{name!r} is not a command: must be one of {_names()}.")
        return 2
    from ._interrupts import Interrupts

    # A signal after the last word of a program changes nothing.
    with Interrupts(at_once=True, last=alone):
        from ._errors import guarded

        command = importlib.import_module(f"._{name}", __package__)
        return guarded(lambda: command.main(rest))


def _names() -> str:
    return ", ".join(COMMANDS)

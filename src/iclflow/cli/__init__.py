"""The command line: `iclflow COMMAND …`.

Nothing heavy is imported here: a command loads what it needs when it is called.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from ._streams import note, open_streams, silence_output

COMMANDS = {
    "run": "run one experiment: a TOML file, or a study of a paper by name",
    "examples": "list the studies and sweeps of the papers, and copy their files",
    "runs": "list, check and clean up the runs on disk",
    "show": "show a run on disk",
    "sweep": "run many experiments, with settings that vary, into one table",
    "query": "query the table of a sweep, or a watched training, in SQL",
    "plot": "draw curves and phase diagrams of a sweep",
    "claims": "list the claims of the papers",
    "cite": "print the BibTeX behind a claim, a study, a figure or a function",
    "verify": "compute the claims and write a report",
    "reproduce": "draw one figure of a paper, with its data and its settings",
    "explore": "change settings in the browser and watch attention learn",
    "inspect": "show what the heads of a trained model do, and its algorithm",
}

_HELP = f"""\
usage: iclflow COMMAND …

How does attention learn to learn in context? Exact risks, training dynamics,
theory, and claims of the papers as checks that can fail.

commands:
{chr(10).join(f"  {name:<11}{words}" for name, words in COMMANDS.items())}

`iclflow COMMAND --help` describes each.
exit codes: 0 done, 1 a claim fails or a run does not reach its end, 2 bad input
or a limit, 130 interrupted (a run keeps what it has)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. A program that was interrupted exits here."""
    code = _guard_output(arguments)
    if arguments is not None or code == 0:
        return code
    from ._interrupts import INTERRUPTED

    if code == INTERRUPTED:
        # A thread may still be compiling: if Python took down what it uses, the process would end
        # in a segmentation fault.
        sys.stderr.flush()
        os._exit(code)
    return code


def _guard_output(arguments: Sequence[str] | None) -> int:
    """Runs a command. Output that cannot be written is reported without a traceback."""
    open_streams()
    try:
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments), arguments is None)
        finally:
            sys.stdout.flush()
    except OSError as error:
        # The reader of our output, such as `| head`, has closed it on purpose.
        if isinstance(error, BrokenPipeError) and silence_output():
            return 0
        note(f"{error.strerror or error}.")
        silence_output()
        return 2


def _main(words: list[str], alone: bool) -> int:
    """Runs a command; `alone` if the process ends with it."""
    if not words or words[0] in ("-h", "--help"):
        print(_HELP)
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"iclflow {version('iclflow')}")
        return 0
    name, *rest = words
    if name == "bench":
        note("`bench` is not part of the package: in a clone, `make bench` measures speed.")
        return 2
    if name not in COMMANDS:
        note(f"{name!r} is not a command: must be one of {', '.join(COMMANDS)}.")
        return 2
    from ._interrupts import Interrupts

    # Until the command has its own handler, nothing has begun: an interrupt may end the process. A
    # signal after the last output of a program changes nothing.
    with Interrupts(at_once=True, last=alone):
        from ._errors import report_errors

        command = importlib.import_module(f"._{name}", __package__)
        return report_errors(lambda: command.main(rest))

"""From errors to exit codes: one sentence on standard error, never a traceback for bad input."""

import argparse
import io
import sys
import warnings
from collections.abc import Callable, Sequence

from ..config import InputError, out_of_memory
from ..files import FileError
from ._interrupts import INTERRUPTED, Interrupted
from ._streams import note

# What to do about a file of somebody else where a command would write its own.
OTHER_FOLDER = "move it away, or choose another folder with --out"


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command, with bad input reported in one sentence."""
    warnings.showwarning = _warned
    # A name that is not UTF-8, or a terminal that knows no such letter, is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = command()
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, Interrupted) as stop:
        # What was kept knows the command alone.
        note(f"interrupted; {stop}." if str(stop) else "interrupted.")
        return INTERRUPTED
    except (InputError, FileError, OSError, SystemExit) as error:
        return _answered(error)
    except Exception as error:
        sentence = out_of_memory(error)
        if sentence is None:
            raise
        note(sentence)
        return 2


def _warned(message, category, filename, lineno, file=None, line=None) -> None:
    """Shows a warning of ours as the sentence that it is; others with the place they come from."""
    text = f"iclflow: {message}\n"
    if category is not UserWarning:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)


def _answered(error: BaseException) -> int:
    """The exit code for what can go wrong without anything being wrong with the program."""
    if isinstance(error, SystemExit):
        if not isinstance(error.__context__, BrokenPipeError):
            raise error
        return 0  # what rich makes of a broken pipe
    if isinstance(error, BrokenPipeError):
        raise error  # `main` knows whose
    text = str(error)
    if isinstance(error, OSError):
        place = f"`{error.filename}`: " if error.filename else ""
        text = out_of_memory(error) or f"{place}{error.strerror or error}."
    note(text)
    return 2


class Parser(argparse.ArgumentParser):
    """Arguments of one command; what is wrong with them becomes an `InputError`."""

    def __init__(self, command: str, words: str, **options):
        super().__init__(
            prog=f"iclflow {command}", description=words, allow_abbrev=False, **options
        )

    def error(self, message: str):
        # Whoever prints it says that it comes from iclflow.
        command = self.prog.removeprefix("iclflow ")
        raise InputError(f"{command}: {message.rstrip('.')}; `{self.prog} --help` says more.")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The flag that every command with results has."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def add_lasting(parser: argparse.ArgumentParser) -> None:
    """The flags of commands whose work is kept, and taken up where it stood."""
    parser.add_argument("--fresh", action="store_true", help="compute it again if it is there")
    parser.add_argument(
        "--checkpoint-every", type=float, default=10.0, metavar="SECONDS",
        help="how often to write how far it is (default: 10)",
    )  # fmt: skip


def lasting_options(
    parser: Parser, arguments: Sequence[str]
) -> tuple[str, argparse.Namespace, list[str]]:
    """FILE, the options after it, and the flags that are none of these but settings of the file."""
    file, *rest = arguments
    if file.startswith("-"):
        raise InputError(f"`FILE` comes first, before {file}: give the path of a TOML file.")
    options, flags = parser.parse_known_args(rest)
    if {"-h", "--help"} & set(flags):
        parser.print_help()  # the settings of the file follow
    if not options.checkpoint_every >= 0:
        every = options.checkpoint_every
        raise InputError(f"`--checkpoint-every` = {every:g}: must not be negative.")
    return file, options, flags

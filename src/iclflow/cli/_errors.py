"""From errors to exit codes: one sentence on standard error, no traceback for bad input."""

import argparse
import io
import sys
import warnings
from collections.abc import Callable, Sequence

from ..config import InputError, out_of_memory
from ..files import FileError
from ._interrupts import INTERRUPTED, Interrupted
from ._streams import note


def report_errors(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit code; bad input is reported in one sentence."""
    warnings.showwarning = _show_warning
    # A name that is not UTF-8, or a terminal without that letter, is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = command()
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, Interrupted) as stop:
        # Only the command knows what it has kept: it says so in the text.
        note(f"interrupted; {stop}." if str(stop) else "interrupted.")
        return INTERRUPTED
    except (InputError, FileError, OSError, SystemExit) as error:
        return _exit_code_for(error)
    except Exception as error:
        sentence = out_of_memory(error)
        if sentence is None:
            raise
        note(sentence)
        return 2


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    """Shows our own warnings as plain sentences, others with the place they come from."""
    text = f"iclflow: {message}\n"
    if category is not UserWarning:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)


def _exit_code_for(error: BaseException) -> int:
    """The exit code for errors that are not bugs."""
    if isinstance(error, SystemExit):
        if not isinstance(error.__context__, BrokenPipeError):
            raise error
        return 0  # rich turns a broken pipe into this
    if isinstance(error, BrokenPipeError):
        raise error  # `main` knows which pipe it was
    text = str(error)
    if isinstance(error, OSError):
        place = f"`{error.filename}`: " if error.filename else ""
        text = out_of_memory(error) or f"{place}{error.strerror or error}."
    note(text)
    return 2


class Parser(argparse.ArgumentParser):
    """The arguments of one command; errors in them become an `InputError`."""

    def __init__(self, command: str, words: str, **options):
        super().__init__(
            prog=f"iclflow {command}", description=words, allow_abbrev=False, **options
        )

    def error(self, message: str):
        # The line that is printed begins with "iclflow:" already.
        command = self.prog.removeprefix("iclflow ")
        raise InputError(f"{command}: {message.rstrip('.')}; `{self.prog} --help` says more.")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that every command with results has."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def add_resume_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of commands that can resume."""
    parser.add_argument("--fresh", action="store_true", help="compute it even if it is complete")
    parser.add_argument(
        "--checkpoint-every", type=float, default=10.0, metavar="SECONDS",
        help="seconds between two checkpoints (default: 10)",
    )  # fmt: skip


def parse_resumable(
    parser: Parser, arguments: Sequence[str]
) -> tuple[str, argparse.Namespace, list[str]]:
    """Parses FILE, the options after it, and the flags that override settings of the file."""
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

"""From errors to exit codes: one sentence on standard error, no traceback for bad input."""

import io
import sys
import warnings
from collections.abc import Callable

from ..config import InputError, out_of_memory
from ..files import FileError
from ._interrupts import INTERRUPTED, Interrupted
from ._streams import note


def report_errors(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit code; bad input is reported in one sentence."""
    warnings.showwarning = _show_warning
    # Output must not fail at a file name that is not UTF-8, or a terminal without some letter.
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

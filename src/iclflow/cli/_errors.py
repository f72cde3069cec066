"""From errors to exit codes: one sentence on standard error, never a traceback for bad input."""

import argparse
import os
import sys
from collections.abc import Callable

from ..config import InputError

INTERRUPTED = 130


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command, with bad input reported in one sentence."""
    try:
        return command()
    except InputError as error:
        print(f"iclflow: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("iclflow: interrupted; nothing was kept.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough (`| head`): leave without another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f"`{error.filename}`: " if error.filename else ""
        print(f"iclflow: {place}{error.strerror or error}.", file=sys.stderr)
        return 2
    except MemoryError:
        print("iclflow: this needs more memory than the machine has.", file=sys.stderr)
        return 2


class Parser(argparse.ArgumentParser):
    """Arguments of one command; what is wrong with them becomes an `InputError`."""

    def __init__(self, command: str, words: str, **options):
        super().__init__(
            prog=f"iclflow {command}", description=words, allow_abbrev=False, **options
        )

    def error(self, message: str):
        raise InputError(f"{self.prog}: {message.rstrip('.')}; `{self.prog} --help` says more.")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The flag that every command with results has."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON")

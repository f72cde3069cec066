"""Standard output and standard error, which may be closed early or from the start."""

import json
import os
import select
import sys
from typing import Any


def open_streams() -> None:
    """Opens the null device for a stream that was closed at the start (`>&-`)."""
    # Output first: it gets the lowest free descriptor, that of the missing stream.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def note(text: str) -> None:
    """Prints a line on standard error; if nobody reads it, the work goes on."""
    try:
        print(f"iclflow: {text}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def print_json(data: Any) -> None:
    """Prints results as JSON on standard output."""
    print(json.dumps(data, indent=2))


def note_waiting(what: str) -> None:
    """Says that another process computes the same run or sweep; on a terminal the progress line
    does."""
    if not sys.stderr.isatty():
        note(f"waiting for another process that computes this {what}.")


def silence_output() -> bool:
    """Whether standard output was closed by its reader. From then on it goes to the null device,
    so that nothing fails until the process ends."""
    left = True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        left = bool(poll.poll(0))
    _silence(sys.stdout)
    return left


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

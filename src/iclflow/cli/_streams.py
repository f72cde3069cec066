"""Standard output and error, whose readers may leave early or never have been there."""

import os
import select
import sys
from typing import Any


def open_streams() -> None:
    """Gives a program that was started without output or error (`>&-`) ones that nobody reads."""
    # Output first: it gets the lowest free number, that of the stream that is missing.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def note(text: str) -> None:
    """Says something on standard error; where nobody reads it, the work goes on."""
    try:
        print(f"iclflow: {text}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def silence_output() -> bool:
    """Whether standard output leads nowhere any more; after this nothing fails at it, up to the
    end of the process."""
    left = True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        left = bool(poll.poll(0))
    _silence(sys.stdout)
    return left


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

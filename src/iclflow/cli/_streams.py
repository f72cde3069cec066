"""Standard output and standard error, which may be closed early or from the start."""

import json
import os
import select
import shutil
import sys
import textwrap
from typing import Any


def open_streams() -> None:
    """Opens the null device for a stream that was closed at the start (`>&-`)."""
    # Output first: `open` takes the lowest free descriptor, which is that of the missing stream.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def note(text: str) -> None:
    """Prints a line on standard error; if that is closed, the work goes on."""
    try:
        print(f"iclflow: {text}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def print_json(data: Any) -> None:
    """Prints results as JSON on standard output."""
    print(json.dumps(data, indent=2))


def wrap(text: str, indent: int = 0) -> str:
    """Text broken between words where the terminal is narrower, later lines indented. Without a
    terminal it stays one line, which programs can read."""
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, indent + 20)
    later = " " * indent
    lines = (
        textwrap.fill(line, width, subsequent_indent=later, break_long_words=False,
                      break_on_hyphens=False) if len(line) > width else line
        for line in text.split("\n")
    )  # fmt: skip
    return "\n".join(lines)


def say(text: str = "", indent: int = 0) -> None:
    """Prints text, broken as by `wrap`."""
    print(wrap(text, indent))


def note_waiting(what: str) -> None:
    """Notes that another process computes the same run or sweep; on a terminal the progress line
    says so already."""
    if not sys.stderr.isatty():
        note(f"waiting for another process that computes this {what}.")


def silence_output() -> bool:
    """Whether standard output was closed by its reader. From then on it goes to the null device,
    so that nothing fails until the process ends."""
    left = True  # the usual reason for a broken pipe, where the system cannot say
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        left = bool(poll.poll(0))
    _silence(sys.stdout)
    return left


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

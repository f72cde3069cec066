"""Ctrl-C and requests to end: heard wherever they come."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

INTERRUPTED = 130
# Ctrl-C, and what a time limit or a scheduler sends: both want the end, and what there is kept.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Python drops what is raised in finalisers, of which JAX's is often the first to run after a long
# computation: an interrupt there comes back so many seconds later.
_DEAF = ("_xla_gc_callback", "__del__")
# Compiled modules that are being loaded make errors of their own of it, or crash.
_LOADING = "_find_and_load"
_AGAIN = 0.05


class Interrupted(BaseException):
    """Ctrl-C as the end of a command; the text says what was kept.

    A flow keeps what it has at a `KeyboardInterrupt` and returns: right for one run, not for a
    command that makes many.
    """


class Interrupts:
    """Says what Ctrl-C does while a command runs.

    **Arguments:**

    - `kept`: the command ends, and this was kept; None for the `KeyboardInterrupt` that flows
      know.
    - `at_once`: while modules are loaded, the process ends there and then: nothing has been begun.
      Otherwise the interrupt waits until they are.
    - `last`: the process ends with this block: signals mean nothing after it.
    """

    def __init__(self, kept: str | None = None, at_once: bool = False, last: bool = False):
        self._kept = kept
        self._at_once = at_once
        self._last = last
        self._before: dict[int, Any] = {}
        self._pressed = False

    def __enter__(self) -> "Interrupts":
        # Only the main thread may say what a signal does.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._last else before)

    def check(self) -> None:
        """Stops if Ctrl-C was pressed and something on the way made another error of it."""
        if self._pressed:
            self._stop()

    def _heard(self, _: int, frame: FrameType | None) -> None:
        self._pressed = True
        names = _names(frame)
        if self._at_once and _LOADING in names:
            os.write(2, b"iclflow: interrupted before anything was begun.\n")
            os._exit(INTERRUPTED)
        if not names.isdisjoint((*_DEAF, _LOADING)):
            again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            self._stop()

    def _stop(self) -> None:
        raise KeyboardInterrupt if self._kept is None else Interrupted(self._kept)


@contextlib.contextmanager
def report_kept(folder: Path) -> Iterator[None]:
    """Ends a command that computes into a folder, and goes on there if it is called again, by an
    `Interrupted` that says what is there."""
    try:
        yield
    except KeyboardInterrupt:
        from ..store import CHECKPOINT, MANIFEST, PARTS

        # One of these is there if it can be taken up, or is over.
        if any(any(folder.glob(name)) for name in (MANIFEST, CHECKPOINT, f"{PARTS}/*")):
            kept = f"what was computed is in {folder}, and the same command goes on"
        else:
            kept = "nothing was kept"
        raise Interrupted(kept) from None


def ignore_signals() -> None:
    """From here on nothing ends the command early: all is computed and written, and only to be
    told. (Who calls `main` hears signals again when it returns.)"""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _names(frame: FrameType | None) -> set[str]:
    """Of the functions that are running."""
    found = set()
    while frame is not None:
        found.add(frame.f_code.co_name)
        frame = frame.f_back
    return found

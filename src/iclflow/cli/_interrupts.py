"""Ctrl-C and SIGTERM: handled at any moment of a command."""

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

INTERRUPTED = 130
# Ctrl-C, and what a time limit or a scheduler sends: both end the command and keep its work.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Python drops exceptions in finalisers, and JAX's is often the first function to run after a long
# computation: an interrupt there is sent again after a moment.
_FINALISERS = ("_xla_gc_callback", "__del__")
# Compiled modules turn an interrupt while they are loaded into other errors, or crash.
_LOADING = "_find_and_load"
_RETRY_SECONDS = 0.05  # shorter than users notice, longer than a finaliser runs


class Interrupted(BaseException):
    """Ctrl-C as the end of a command; the text says what was kept.

    A flow catches `KeyboardInterrupt` and returns what it has: right for one run, wrong for a
    command that makes many.
    """


class Interrupts:
    """Decides what Ctrl-C does while a command runs.

    **Arguments:**

    - `kept`: the command ends with this text on what was kept; None raises `KeyboardInterrupt`,
      which flows catch.
    - `at_once`: an interrupt while modules are loaded ends the process immediately: nothing has
      begun. Otherwise it waits until they are loaded.
    - `last`: the process ends with this block: later signals are ignored.
    """

    def __init__(self, kept: str | None = None, at_once: bool = False, last: bool = False):
        self._kept = kept
        self._at_once = at_once
        self._last = last
        self._before: dict[int, Any] = {}
        self._pressed = False

    def __enter__(self) -> "Interrupts":
        # Only the main thread may set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._last else before)

    def check(self) -> None:
        """Stops if Ctrl-C was pressed and some library turned it into another error."""
        if self._pressed:
            self._stop()

    def _handle(self, _: int, frame: FrameType | None) -> None:
        self._pressed = True
        names = _functions_on_stack(frame)
        if self._at_once and _LOADING in names:
            os.write(2, b"iclflow: interrupted before anything began.\n")
            os._exit(INTERRUPTED)
        if not names.isdisjoint((*_FINALISERS, _LOADING)):
            again = threading.Timer(_RETRY_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            self._stop()

    def _stop(self) -> None:
        raise KeyboardInterrupt if self._kept is None else Interrupted(self._kept)


@contextlib.contextmanager
def report_kept(folder: Path, config_hash: str | None = None) -> Iterator[None]:
    """Turns Ctrl-C in a command that computes into a folder into an `Interrupted` that says what is
    in the folder, and which command resumes.

    **Arguments:**

    - `config_hash`: of the run; None for a sweep.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if str(stop):  # the library has said what is kept
            raise Interrupted(str(stop)) from None
        from ..store import CHECKPOINT, MANIFEST, PARTS

        # One of these exists if the work can resume, or is complete.
        if any(any(folder.glob(name)) for name in (MANIFEST, CHECKPOINT, f"{PARTS}/*")):
            kept = f"what was computed is in {folder}; {_resuming(folder, config_hash)} resumes"
        else:
            kept = "nothing was kept"
        raise Interrupted(kept) from None


def _resuming(folder: Path, config_hash: str | None) -> str:
    """The command that resumes what is in a folder."""
    from ..config import InputError, parse_config, read_toml
    from ..store import CONFIG, MANIFEST, SWEEP

    command, name = ("sweep", SWEEP) if config_hash is None else ("run", CONFIG)
    with contextlib.suppress(InputError, OSError):
        # A folder with a complete run keeps the config of that run, not of the one under way.
        ours = config_hash is None or (
            not (folder / MANIFEST).exists()
            and parse_config(read_toml(folder / name), stored=True).hash == config_hash
        )
        if ours:
            file, place = (shlex.quote(str(path)) for path in (folder / name, folder))
            return f"`iclflow {command} {file} --out {place}`"
    return "the same command"


def ignore_signals() -> None:
    """Ignores signals from here on: everything is computed and written, and only has to be printed.
    (The handlers of the caller of `main` are restored when it returns.)"""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _functions_on_stack(frame: FrameType | None) -> set[str]:
    found = set()
    while frame is not None:
        found.add(frame.f_code.co_name)
        frame = frame.f_back
    return found

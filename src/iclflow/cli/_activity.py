"""A line that moves while something is computed, on terminals only."""

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from typing import Any


class Activity:
    """Shows what is being done and for how long, with a bar where the end is known.

    It is drawn from a thread of its own, so that it moves while a program compiles too. Off a
    terminal it does nothing.
    """

    def __init__(self, title: str):
        self._title = title
        self._bar: Any = None
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def __enter__(self) -> "Activity":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[state]}"),
                console=Console(file=sys.stderr),
                transient=True,
                refresh_per_second=4,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None, state="")
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, title: str, fraction: float | None = None, state: str = "") -> None:
        if self._bar is not None:
            total = None if fraction is None else 1.0
            self._bar.update(
                self._task, description=title, completed=fraction or 0.0, total=total, state=state
            )

    def line(self, text: str) -> None:
        """Prints a line that stays, above the moving one."""
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.console.file.flush()
            self._bar.stop()
            print(text, flush=True)
            self._bar.start()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keeps the library's own bars away while one of ours is shown."""
    real = sys.stderr
    sys.stderr = _NoTerminal(real)
    try:
        yield
    finally:
        sys.stderr = real


class _NoTerminal(io.TextIOBase):
    """A stream that says that it is no terminal."""

    def __init__(self, stream):
        self._stream = stream

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

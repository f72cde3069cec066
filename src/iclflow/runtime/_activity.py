"""A progress line on the terminal."""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ._bar import progress_bar


class Activity:
    """Shows what is being done and for how long, with a bar where the end is known.

    It is drawn by its own thread, so that it also moves while a program compiles.

    **Arguments:**

    - `title`: its first text.
    - `show`: whether to show anything; None: on a terminal.

    **Example:**

    ```pycon
    >>> with icl.runtime.Activity("reading", show=False) as activity:
    ...     activity.update("computing", 0.5)
    ```
    """

    def __init__(self, title: str, show: bool | None = None):
        self._title = title
        self._show = sys.stderr.isatty() if show is None else show
        self._bar: Any = None
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def __enter__(self) -> "Activity":
        if self._show:
            self._bar = progress_bar()
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
        """Prints a permanent line above the progress line."""
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.console.file.flush()
            self._bar.stop()
            print(text, flush=True)
            self._bar.start()


@contextlib.contextmanager
def hide_progress() -> Iterator[None]:
    """Hides progress bars of the library while the caller shows its own.

    **Example:**

    ```pycon
    >>> with icl.runtime.hide_progress():
    ...     with icl.runtime.show_progress("reading", None) as report:
    ...         report("reading", 0.5, "")
    ```
    """
    real = sys.stderr
    sys.stderr = _NoTerminal(real)
    try:
        yield
    finally:
        sys.stderr = real


class _NoTerminal(io.TextIOBase):
    """A stream that claims not to be a terminal, so that no bar is drawn on it."""

    def __init__(self, stream):
        self._stream = stream

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


# How `icl.run`, `icl.sweep` and `icl.verify` report progress: what they do, the share that is done
# (None where the end is not known), and some numbers as text.
Progress = Callable[[str, float | None, str], None]
"""Called with what is being done, the finished share (None: not known) and further words.

**Example:**

```pycon
>>> report: icl.runtime.Progress = lambda doing, share, words: print(doing, share, words)
>>> report("computing", 0.5, "32 of 64 runs")
computing 0.5 32 of 64 runs
```
"""


@contextlib.contextmanager
def show_progress(title: str, progress: Progress | bool | None) -> Iterator[Progress]:
    """The function to report progress to.

    **Arguments:**

    - `title`: the first text of the bar.
    - `progress`: a function of the caller; or whether to show a bar (None: on a terminal).

    **Example:**

    ```pycon
    >>> with icl.runtime.show_progress("computing", progress=False) as report:
    ...     report("computing", 0.5, "32 of 64 runs")
    ```
    """
    if callable(progress):
        yield progress
    elif progress is False:
        yield lambda title, fraction=None, state="": None
    else:
        with Activity(title, show=progress) as activity:
            yield activity.update

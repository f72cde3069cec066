"""Progress bars and cancelling, between the chunks of a long computation."""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from ..runtime import progress_bar
from ..trajectory import Trajectory

# Seconds before a bar appears: short computations show none.
_PATIENCE = 2


class Status(NamedTuple):
    """The present state of a run, for a callback.

    **Fields:**

    - `clock`, `loss`, `steps`: the time (or step), the loss and the number of steps so far.
    - `fraction`: the share of the run that is done; None if it is not known.
    - `so_far`: returns the run up to here, as if it were cancelled now; for an ensemble its first
      run. The last point is included, whether it will be kept or not.
    - `words`: the text beside the bar; by default that of a flow: time, steps and loss.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> seen = []
    >>> run = icl.gradient_flow(model, icl.risk(task, model), callback=seen.append)
    >>> seen[-1].steps > 0, seen[-1].text[:3]
    (True, 't =')
    ```
    """

    clock: float
    loss: float
    steps: int
    fraction: float | None
    so_far: Callable[[], Trajectory] | None = None
    words: str | None = None

    @property
    def text(self) -> str:
        """The text beside the bar: where the run is, and its loss."""
        flow = f"t = {self.clock:.4g}, {self.steps:,} steps of the solver, loss {self.loss:.5g}"
        return flow if self.words is None else self.words


class Monitor:
    """Shows a bar after two seconds, and calls the callback.

    **Arguments:**

    - `title`: the text before the bar.
    - `show`: whether to show it; None for "if standard error is a terminal".
    - `callback`: called with a `Status` after every chunk; the run is cancelled when it returns
      False.
    """

    def __init__(
        self,
        title: str,
        show: bool | None = None,
        callback: Callable[[Status], bool | None] | None = None,
    ):
        self._title = title
        self._show = sys.stderr.isatty() if show is None else show
        self._callback = callback
        self._start = time.perf_counter()
        self._bar = None

    def add(self, seconds: float) -> None:
        """Adds the seconds that a resumed run took before."""
        self._start -= seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def update(self, status: Status) -> bool:
        """Shows the status, and calls the callback; False cancels the run."""
        self.show(status)
        return self._callback is None or self._callback(status) is not False

    def show(self, status: Status) -> None:
        """Moves the bar without calling the callback, for work before the first step."""
        if self._show and self.seconds > _PATIENCE:
            self._draw(status)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _draw(self, status: Status) -> None:
        if self._bar is None:
            self._bar = progress_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0, state="")
        total = None if status.fraction is None else 1.0
        self._bar.update(
            self._task, completed=status.fraction or 0.0, total=total, state=status.text
        )

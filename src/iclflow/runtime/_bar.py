"""The one progress bar of all that takes long."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.text import Text


def progress_bar() -> "Progress":
    """A bar on standard error: what is done, its share, and how long it took and will take.

    Its tasks have a field `state`, the text beside the bar. While the end is not known the bar
    moves to and fro, and no time is promised.

    **Example:**

    ```pycon
    >>> bar = icl.runtime.progress_bar()
    >>> task = bar.add_task("training", total=1.0, state="")
    >>> bar.update(task, completed=0.5, state="loss 0.2")
    >>> bar.tasks[0].percentage
    50.0
    ```
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: "Task") -> "Text":
            found = super().render(task)
            return found.append(" left") if found.plain.strip("-:") else found

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeLeft(),
        TextColumn("{task.fields[state]}"),
        console=Console(file=sys.stderr),
        transient=True,
        refresh_per_second=4,
        # Chunks take seconds: the speed is that of the last minute.
        speed_estimate_period=60,
    )

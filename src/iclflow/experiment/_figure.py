"""The loss of a run with its theory, as PNG and PDF."""

import contextlib
import io
import threading
import warnings

import numpy as np

from ..drawing.loss import framed_legend
from ..trajectory import Result, Trajectory
from ._prediction import Overlay

# The last time and the largest loss that Matplotlib can draw without overflow.
_LATEST = 1e200
_LARGEST = 1e150


def load_early() -> None:
    """Loads what a figure takes beside a computation, most of which is compiling and no Python."""
    threading.Thread(target=_load, name="iclflow figures", daemon=True).start()


def _load() -> None:
    # Errors are for the thread that draws, which imports it again.
    with contextlib.suppress(Exception):
        import matplotlib.pyplot  # noqa: F401
        from matplotlib.backends import backend_agg, backend_pdf  # noqa: F401


def loss_figure(
    run: Trajectory, predicted: Overlay | None, floor: float | None, title: str
) -> dict[str, bytes]:
    """The files `loss.png` and `loss.pdf`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> sorted(icl.experiment.loss_figure(run, None, None, "merged"))
    ['loss.pdf', 'loss.png']
    ```
    """
    import matplotlib.pyplot as plt

    # A stationary run may end at a time that no axis can show.
    run = run.between(0.0, _LATEST)
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Runs that overflow are drawn too: the title says so.
        warnings.simplefilter("ignore")
        return _draw(figure, ax, run, predicted, floor, title)


def _draw(figure, ax, run, predicted, floor, title) -> dict[str, bytes]:
    import matplotlib.pyplot as plt

    try:
        run.plot(ax, None if predicted is None else predicted.for_plot(run.times), _needs_log(run))
        if floor is not None and np.isfinite(floor):
            ax.axhline(floor, color="C2", lw=1.0, ls="-.", label="smallest reachable loss")
        low, high = float(run.losses.min()), float(run.losses.max())
        if run.result is Result.diverged and 0 < low < high:
            # Matplotlib's own margins and ticks would overflow.
            ax.set(yscale="log", ylim=(low / 100, min(high, _LARGEST) * 100))
        plain = run.result.ok and run.result is not Result.stationary
        ax.set_title(title if plain else f"{title}\n{run.result.value}", fontsize="medium")
        framed_legend(ax, fontsize="small")
        png = _render(figure, "png")
        figure.set_layout_engine("none")  # it is laid out now
        return {"loss.png": png, "loss.pdf": _render(figure, "pdf")}
    finally:
        plt.close(figure)


def _needs_log(run: Trajectory) -> bool:
    """Whether the loss has moved before a linear axis would show it."""
    finite = run.losses[np.isfinite(run.losses)]
    if len(run) < 3 or finite.size < 3 or finite[-1] >= finite[0]:
        return False
    half = (finite.max() + finite.min()) / 2
    return bool(run.times[np.argmax(run.losses <= half)] < 0.05 * run.times[-1])


def _render(figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    # No creation date: equal runs give equal files.
    metadata = {"CreationDate": None} if kind == "pdf" else None
    figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()

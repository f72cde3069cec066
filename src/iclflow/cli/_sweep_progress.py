"""Computing the batches of a sweep that are missing, with a bar; shared by all that sweep."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from ._activity import Activity
from ._interrupts import Interrupted

# Seconds between two checkpoints of a batch that is under way.
EVERY = 10.0
# Where the libraries that NumPy is built with read how many threads they may use.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def use_one_thread() -> None:
    """Keeps NumPy's linear algebra to one thread, if it is not loaded yet: it rounds otherwise with
    more, and rows must not depend on how many cores a machine has."""
    os.environ.update(dict.fromkeys(THREADS, "1"))


def completed(
    sweep,
    batches: Sequence,
    folder,
    engine,
    activity: Activity,
    every: float = EVERY,
    statistics: Callable[[], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """The manifest of a sweep: of the folder if it is complete, else what is missing is computed.

    **Arguments:**

    - `folder`: the `SweepFolder`, locked.
    - `engine`: computes the batches.
    - `activity`: shows how far the whole sweep is.
    - `every`: seconds between checkpoints.
    - `statistics`: what else goes into those of the manifest, asked for at the end.
    """
    found = folder.manifest
    if found is not None:
        folder.tidy()
        return found
    parts = folder.done()
    left = [batch for batch in batches if batch.number not in parts]
    shares = {number: 1.0 for number in parts}

    def progress(number: int, share: float) -> None:
        shares[number] = share
        done = sum(len(batch.runs) * shares.get(batch.number, 0.0) for batch in batches)
        handed = len(shares.keys() - parts.keys())
        state = f"{len(parts)} of {len(batches)} batches, {handed} handed out"
        activity.update(sweep.name, done / len(sweep), state)

    finished = engine.compute(sweep, left, folder.parts, every, progress)
    try:
        with contextlib.closing(finished):
            for each in finished:
                parts[each.batch.number] = folder.keep(each)
                progress(each.batch.number, 1.0)
    except KeyboardInterrupt:
        parts = folder.done()  # it may have come between the writing of a part and our noting it
        kept = sum(len(batch.runs) for batch in batches if batch.number in parts)
        raise Interrupted(
            f"{kept} of {len(sweep)} runs are in {folder.path}, and the same command goes on"
        ) from None
    activity.update(f"{sweep.name}: joining the results")
    found = {"seconds": activity.seconds, **statistics()}
    return folder.complete([parts[number] for number in sorted(parts)], found)

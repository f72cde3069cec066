"""A record as SQL tables: one row per look, per estimator, per context length and per head."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..sweeps import Table, encode_part
from ._columns import Plain
from ._files import read_about, read_lines

_NONE = (None, None)
_LOSSES = {"loss": "DOUBLE", "loss_error": "DOUBLE", "excess": "DOUBLE", "excess_error": "DOUBLE"}


def open_tables(folder: Path, timeout: float | None = None, memory: int | None = None) -> Table:
    """The looks in a folder as tables: `results` (one row per look), `distances` (per look, label
    and estimator), `lengths` (per look and context length) and `heads`.

    Arguments: as of `Table`.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> folder = tempfile.mkdtemp() + "/record"
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, out=folder)
    >>> look = watch(0)
    >>> watch.close()
    >>> tables = watching.open_tables(pathlib.Path(folder))
    >>> tables.ask("SELECT step, nearest FROM results")
    (['step', 'nearest'], [(0, 'zero')])
    ```
    """
    read_about(folder)  # refuses a folder without a record
    with tempfile.TemporaryDirectory() as temporary:
        place, looks = Path(temporary), list(read_lines(folder, _rows))
        files = {}
        for name, (schema, _) in _TABLES.items():
            files[name] = place / f"{name}.parquet"
            found = [row for look in looks for row in look[name]]
            files[name].write_bytes(encode_part(schema, found, place))
        main = files.pop("results")
        return Table([main], timeout, memory, {name: [file] for name, file in files.items()})


def _rows(look: Plain) -> dict[str, list[Plain]]:
    return {name: list(rows(look)) for name, (_, rows) in _TABLES.items()}


def _result(look: Plain) -> Iterator[Plain]:
    nearest = look["distances"][0][0] if look["distances"] else {}
    yield {
        **{"step": look["step"], "seconds": look["seconds"]},
        **_losses(look["loss"], look["excess"]),
        **{"nearest": nearest.get("name"), "distance": nearest.get("distance")},
        "closeness": next(iter(look["closeness"]), None),
    }


def _distances(look: Plain) -> Iterator[Plain]:
    for label, each in enumerate(look["distances"], 1):
        for place, one in enumerate(each, 1):
            yield {
                **{"step": look["step"], "label": label, "place": place, "estimator": one["name"]},
                **{"distance": one["distance"], "distance_error": one["error"]},
                "step_size": one["step_size"],
            }


def _lengths(look: Plain) -> Iterator[Plain]:
    excesses = look["excesses"] or [None] * len(look["lengths"])
    for length, loss, excess in zip(look["lengths"], look["losses"], excesses):
        yield {"step": look["step"], "length": length, **_losses(loss, excess)}


def _heads(look: Plain) -> Iterator[Plain]:
    for layer in look.get("layers") or ():
        for head, role in enumerate(layer["roles"], 1):
            yield {"step": look["step"], "layer": layer["name"], "head": head, "role": role}


def _losses(loss: Any, excess: Any) -> Plain:
    return dict(zip(_LOSSES, (*loss, *(excess or _NONE))))


_STEP = {"step": "BIGINT"}
# The columns of each table, and the rows of one look in it.
_TABLES: dict[str, tuple[dict[str, str], Callable[[Plain], Iterator[Plain]]]] = {
    "results": (
        {
            **{**_STEP, "seconds": "DOUBLE", **_LOSSES},
            **{"nearest": "VARCHAR", "distance": "DOUBLE", "closeness": "VARCHAR"},
        },
        _result,
    ),
    "distances": (
        {
            **{**_STEP, "label": "BIGINT", "place": "BIGINT", "estimator": "VARCHAR"},
            **{"distance": "DOUBLE", "distance_error": "DOUBLE", "step_size": "DOUBLE"},
        },
        _distances,
    ),
    "lengths": ({**_STEP, "length": "BIGINT", **_LOSSES}, _lengths),
    "heads": ({**_STEP, "layer": "VARCHAR", "head": "BIGINT", "role": "VARCHAR"}, _heads),
}

"""The files of a watched training, and what is said when they cannot be read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..config import InputError
from ..files import read_sealed

_T = TypeVar("_T")
# What is watched and planned; one line per look, and one per problem, appended; the verdicts of
# claims, and a folder of weights, one file per look, where claims are checked.
ABOUT, LOOKS, PROBLEMS = "watch.json", "looks.jsonl", "problems.jsonl"
# Keys of what is watched that may differ from one process of a training to the next.
PLANS = ("schedule", "steps", "bayes_loss")
VERDICTS, WEIGHTS = "verdicts.json", "weights"
# Looks that a repeated step has taken back: nothing that was measured is lost.
TAKEN_BACK = "taken_back.jsonl"


def is_watched(folder: Path) -> bool:
    """Whether a folder holds the record of a watched training.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> watching.is_watched(pathlib.Path(tempfile.mkdtemp()))
    False
    ```
    """
    return (folder / ABOUT).is_file()


def read_about(folder: Path) -> dict[str, Any]:
    """What is watched in a folder; an `InputError` if it holds no record.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> folder = tempfile.mkdtemp() + "/record"
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, out=folder)
    >>> isinstance(watching.read_about(pathlib.Path(folder)), dict)
    True
    >>> watch.close()
    ```
    """
    try:
        found = read_sealed(folder / ABOUT)
        return {key: value for key, value in found.items() if key != "hash"}
    except OSError as error:
        raise InputError(f"`{folder}` holds no watched training: {error.strerror}.") from None
    except ValueError as error:
        raise InputError(f"`{folder / ABOUT}` {error}: it is damaged.") from None


def _check_plain(look: Any) -> dict[str, Any]:
    if not isinstance(look, dict):
        raise TypeError("no look")
    return look


def read_lines(folder: Path, read: Callable[[Any], _T] = _check_plain) -> Iterator[_T]:
    """The looks in a folder: what `read` makes of each, which is plain data. A last line that was
    cut off when the process died is left out."""
    try:
        lines = (folder / LOOKS).read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line break is cut off
        yield read_line(line, number, folder, read)


def read_line(line: bytes, number: int, folder: Path, read: Callable[[Any], _T]) -> _T:
    """What `read` makes of a line of looks; the sentence of `damage` if it is none."""
    try:
        return read(json.loads(line.decode()))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise damage(folder / LOOKS, number) from None


def damage(path: Path, number: int) -> InputError:
    """That a line of a record cannot be read."""
    return InputError(f"`{path}`, line {number}: it is damaged.")

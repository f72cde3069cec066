"""The checkpoints of one training in a folder, in the order of their steps."""

import re
from pathlib import Path
from typing import NamedTuple

from ..files import FileError, parse_json, read_regular
from ._torch_file import TORCH_SUFFIXES

# {"file": step, …}, for names that do not say the step.
MANIFEST = "checkpoints.json"
_LARGEST_MANIFEST = 2**24
_SUFFIXES = (".safetensors", *TORCH_SUFFIXES)
# What training libraries save beside the weights.
_OTHER = ("optimizer", "scheduler", "rng_state", "training_args", "scaler")
# Large models are saved in several files.
_SHARD = re.compile(r"-\d+-of-\d+$")
# What `icl.watch` writes: its record, and a folder.
_WATCHED, _WEIGHTS_OF_LOOKS = "watch.json", "weights"


class Checkpoint(NamedTuple):
    """The weights of a training at one step.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> for step in (100, 20):
    ...     icl.save_model(model, f"{folder}/step_{step}.safetensors")
    >>> [found.step for found in checkpoints.list_checkpoints(folder).found]
    [20, 100]
    ```
    """

    step: int
    path: Path


class Checkpoints(NamedTuple):
    """The checkpoints of a folder.

    **Fields:**

    - `found`: by step.
    - `left_out`: files whose names say no step.
    """

    found: tuple[Checkpoint, ...]
    left_out: tuple[Path, ...]


def list_checkpoints(folder: Path | str) -> Checkpoints:
    """The files of weights in a folder, and in folders in it such as `checkpoint-500`.

    The step is what `checkpoints.json` says, else the number after "step" in the name of the file,
    or in that of its folder, else the last number: in the name of a folder such as
    `checkpoint-500`, of the file, or of any folder.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> icl.save_model(model, f"{folder}/step_7.safetensors")
    >>> checkpoints.list_checkpoints(folder).found[0].step
    7
    ```
    """
    folder = Path(folder)
    stated = _read_manifest(folder)
    if stated is not None:
        found, left_out = [Checkpoint(step, folder / name) for name, step in stated.items()], []
    else:
        steps = {path: _step(path.relative_to(folder)) for path in _weights(folder)}
        found = [Checkpoint(step, path) for path, step in steps.items() if step is not None]
        left_out = [path for path, step in steps.items() if step is None]
    if not found:
        raise FileError(
            f"`{folder}` holds neither a run nor checkpoints: must have files of weights "
            f"({', '.join(_SUFFIXES)}) with the step in their names, or a `{MANIFEST}` with the "
            "step of each."
        )
    found.sort()
    twice = [a for a, b in zip(found, found[1:]) if a.step == b.step]
    if twice:
        same = ", ".join(f"`{each.path}`" for each in found if each.step == twice[0].step)
        raise FileError(
            f"{same} are all of step {twice[0].step}: give each its own in `{folder / MANIFEST}`."
        )
    return Checkpoints(tuple(found), tuple(left_out))


def _weights(folder: Path) -> list[Path]:
    inside = [each for each in sorted(folder.iterdir()) if each.is_dir()]
    if (folder / _WATCHED).is_file():  # has the weights at its own looks beside those of a trainer
        inside = [each for each in inside if each.name != _WEIGHTS_OF_LOOKS]
    places = [folder, *inside]
    found = [
        path
        for place in places
        for path in sorted(place.iterdir())
        if path.suffix in _SUFFIXES and path.is_file() and not path.stem.startswith(_OTHER)
    ]
    for path in found:
        if _SHARD.search(path.stem):
            raise FileError(
                f"`{path}` holds a part of the weights of a checkpoint: all of them must be in one "
                "file."
            )
    return found


def _step(path: Path) -> int | None:
    """The step in the name of a file, or of its folder."""
    names = [path.stem, *reversed(path.parent.parts)]
    # As trainers name folders; a file in one may have the number of a version in its name.
    numbered = [name for name in names[1:] if re.search(r"checkpoint-\d+$", name)]
    for pattern, places in ((r"step\D?(\d+)", names), (r"\d+", [*numbered, *names])):
        for name in places:
            if numbers := re.findall(pattern, name, re.IGNORECASE):
                return int(numbers[-1])
    return None


def has_checkpoints(folder: Path | str) -> bool:
    """Whether there are weights in a folder, or a list of them.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> import tempfile
    >>> checkpoints.has_checkpoints(tempfile.mkdtemp())
    False
    ```
    """
    return (Path(folder) / MANIFEST).is_file() or bool(_weights(Path(folder)))


def _read_manifest(folder: Path) -> dict[str, int] | None:
    path = folder / MANIFEST
    try:
        found = parse_json(read_regular(path, _LARGEST_MANIFEST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(f"`{path}` {error}.") from None
    good = isinstance(found, dict) and all(
        isinstance(step, int) and not isinstance(step, bool) for step in found.values()
    )
    if not good:
        raise FileError(f'`{path}` must be a JSON object such as {{"model.safetensors": 100}}.')
    return found

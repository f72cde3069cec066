"""`iclflow inspect` of models of several layers, and of the checkpoints of one training."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ._streams import say

# Characters where no terminal has a width: enough for names of estimators and roles of some heads.
_WIDTH = 140


def inspect_series(options: Any, how: dict[str, Any]) -> dict[str, Any]:
    """What is found in each checkpoint of a folder, as plain data."""
    from ..checkpoints import list_checkpoints
    from ..experiment import inspect_checkpoints

    if options.out:
        raise InputError(f"`--out` = {options.out}: only a model of one layer is drawn.")
    listed = list_checkpoints(options.file)
    return {
        "folder": str(options.file),
        "checkpoints": list(inspect_checkpoints(listed.found, **how)),
        "left_out": [str(path) for path in listed.left_out],
    }


def print_series(found: dict[str, Any]) -> None:
    """Prints one row for each checkpoint, then the hash of each file."""
    from rich.console import Console

    from ._tables import plain_table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    rows = found["checkpoints"]
    judged = any("loss" in row for row in rows)
    names = ("loss", "nearest estimator", "distance", "step size") if judged else ()
    table = plain_table("step", *names, "roles of heads")
    for row in rows:
        table.add_row(str(row["step"]), *(_algorithm(row) if judged else ()), _roles(row))
    console.print(table)
    missing = {row["missing"] for row in rows if "missing" in row}
    for words in sorted(missing):
        say(f"{words}.")
    say("sha256 of each file:")
    for row in rows:
        say(f"{row['sha256']}  {_short(Path(row['file']), found['folder'])}")
    if found["left_out"]:
        say(f"left out, for want of a step in their names: {', '.join(found['left_out'])}")


def _short(path: Path, folder: str) -> Path:
    """A path in a folder without it; a list of checkpoints may name others."""
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _algorithm(row: dict[str, Any]) -> Sequence[str]:
    """Loss, nearest estimator, distance and step size of each label."""
    best = [label["matches"][0] for label in row.get("labels", ()) if "matches" in label]
    several = lambda words: " / ".join(words) or "–"
    known = [label["known"] for label in row.get("labels", ()) if "matches" in label]
    return (
        f"{row['loss']:.5g}" if "loss" in row else "–",
        several(each["name"] if near else f"none (nearest: {each['name']})"
                for each, near in zip(best, known)),
        several(f"{100 * each['distance']:.3g} ± {100 * each['standard_error']:.1g} %"
                for each in best),
        several("–" if each["step_size"] is None else f"{each['step_size']:.4g}" for each in best),
    )  # fmt: skip


def _roles(row: dict[str, Any]) -> str:
    """The roles of the heads, layer by layer."""
    if "layers" in row:
        return "; ".join(_names(layer["labels"]) for layer in row["layers"])
    return ", ".join(row["roles"]) if row["roles"] is not None else _names(row["labels"]) or "–"


def _names(labels: Sequence[dict[str, Any]]) -> str:
    """The roles of the heads of a layer on its first label."""
    return ", ".join(head["role"] for head in labels[0].get("heads", ()))


def print_layers(found: dict[str, Any]) -> None:
    """Prints the heads of every layer of a model."""
    from rich.console import Console

    from ..report import count_of
    from ._inspect import LEGEND, heads_table

    console = Console(highlight=False)
    tokens = f"{count_of(found['dim'], 'input')} and {count_of(found['outputs'], 'label')}"
    say(f"{count_of(len(found['layers']), 'layer')} of attention; tokens of {tokens}")
    say(f"{found['missing']}.")
    for layer in found["layers"]:
        heads = count_of(layer["heads"], "head")
        say(f"\n{layer['name']}: {heads} of width {layer['width']}")
        for number, label in enumerate(layer["labels"], 1):
            if len(layer["labels"]) > 1:
                say(f"label {number}")
            console.print(heads_table(label["heads"]))
    say(f"\n{LEGEND}")
    say(f"sha256 {found['sha256']}")

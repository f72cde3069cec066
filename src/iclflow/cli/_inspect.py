"""`iclflow inspect FILE`: what the heads of a trained model do, and which algorithm it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..errors import shorten
from ..files import OTHER_FOLDER, OwnFiles
from ..runtime import Activity, start
from ._arguments import Parser, check_kind
from ._print_inspection import print_inspection
from ._streams import print_json

# Flags that override settings of the task on which a model is judged.
_OF_THE_TASK = ("context", "noise", "eigenvalues")
# As in a config: JAX makes no keys from larger seeds.
_LARGEST_SEED = 2**32 - 1


def main(arguments: Sequence[str]) -> int:
    """Reads a model, inspects it, and prints what was found."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.sequences < 2:
        raise InputError(f"`--sequences` = {shorten(options.sequences)}: must be at least 2.")
    if not 0 <= options.seed <= _LARGEST_SEED:
        value = shorten(options.seed)
        raise InputError(f"`--seed` = {value}: must lie between 0 and {_LARGEST_SEED}.")
    check_kind(options.file, "folder of a run")
    start()
    with Activity(f"reading {options.file}") as activity:
        with parser.name_flags("task."):
            found, model, task = _inspect(options, activity)
        if options.out:
            found["files"] = _draw(model, task, options)
    if options.json:
        print_json(found)
    else:
        print_inspection(found)
    return 0


def _inspect(options, activity: Activity) -> tuple[dict[str, Any], Any, Any]:
    """What was found, the model, and the task that it was judged on."""
    from ..analysis import has_circuits
    from ..checkpoints import load_model
    from ..experiment import inspect, task_to_inspect

    model = load_model(options.file, options.heads, options.labels)
    if options.out and not has_circuits(model):
        raise InputError(
            f"`--out` = {options.out}: {type(model).__name__} has no circuits to draw."
        )
    if options.out:  # checked before the long computation
        OwnFiles(options.out, remedy=OTHER_FOLDER).check(("heads.pdf", "heads.png"))
    given = {name: getattr(options, name) for name in _OF_THE_TASK}
    settings = {name: value for name, value in given.items() if value is not None}
    task = task_to_inspect(options.file, model, settings)
    found = inspect(
        model, task, seed=options.seed, sequences=options.sequences, progress=activity.update
    )
    return {"file": str(options.file), **found}, model, task


def _parser() -> Parser:
    parser = Parser(
        "inspect",
        "Shows what each head of a trained attention layer does, and which known estimator its "
        "predictions match.",
    )
    parser.flag(
        "file",
        "the folder of a run, a model file of iclflow, or a PyTorch state dict with q_proj, "
        "k_proj, v_proj and o_proj (.safetensors, .pth)",
        "FILE",
    )
    words = "number of heads of a state dict; required unless the file states it"
    parser.flag("--heads", words, type=int)
    parser.flag(
        "--labels",
        "number of labels of a state dict, the last entries of a token (default: the number of "
        "outputs, or 1 if every entry has one)",
        type=int,
    )
    words = "context length of the sequences to compare on (default: that of the run, else 8 D)"
    parser.flag("--context", words, "L", type=int)
    words = "of their labels (default: that of the run, else 0.1)"
    parser.flag("--noise", words, "VARIANCE", type=float)
    words = "of the input covariance (default: those of the run, else all 1)"
    parser.flag("--eigenvalues", words, "λ", type=float, nargs="+")
    words = "number of sequences to compare on (default: 20000)"
    parser.flag("--sequences", words, type=int, default=20_000)
    parser.flag("--seed", "of these sequences (default: 0)", type=int, default=0)
    parser.flag("--out", "draw the circuits into this folder", "DIR")
    parser.add_json()
    return parser


def _draw(model: Any, task: Any, options) -> list[str]:
    from ..analysis import circuits
    from ..drawing import save_figure
    from ..drawing.heads import heads_figure
    from ..drawing.style import style
    from ..store import result_folder

    folder = Path(options.out)
    with result_folder(folder), style():
        # In the coordinates of the task, as they are measured.
        figure = heads_figure(circuits(model, task), Path(options.file).name)
        return [str(path) for path in save_figure(figure, folder, "heads")]

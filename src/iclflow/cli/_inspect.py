"""`iclflow inspect FILE`: what the heads of a trained model do, and which algorithm it is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..errors import shorten
from ..files import OTHER_FOLDER, OwnFiles
from ..runtime import Activity, start
from ._errors import Parser, add_json
from ._kinds import check_kind
from ._print_inspection import print_inspection

# Flags that override settings of the task on which a model is judged.
_OF_THE_TASK = ("context", "noise", "eigenvalues")
# As in a config: JAX makes no keys from larger seeds.
_LARGEST_SEED = 2**32 - 1


def main(arguments: Sequence[str]) -> int:
    """Reads a model, inspects it, and prints what was found."""
    options = _parser().parse_args(arguments)
    if options.sequences < 2:
        raise InputError(f"`--sequences` = {shorten(options.sequences)}: must be at least 2.")
    if not 0 <= options.seed <= _LARGEST_SEED:
        value = shorten(options.seed)
        raise InputError(f"`--seed` = {value}: must lie between 0 and {_LARGEST_SEED}.")
    check_kind(options.file, "folder of a run")
    start()
    with Activity(f"reading {options.file}") as activity:
        try:
            found, model, task = _inspect(options, activity)
        except (ValueError, TypeError) as error:
            raise _name_flag(error) from None
        if options.out:
            found["files"] = _draw(model, task, options)
    if options.json:
        print(json.dumps(found, indent=2))
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
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the folder of a run, a model file of iclflow, or a PyTorch state dict with q_proj, "
        "k_proj, v_proj and o_proj (.safetensors, .pth)",
    )
    parser.add_argument("--heads", type=int, help="number of heads of a state dict; "
                        "required unless the file states it")  # fmt: skip
    parser.add_argument("--labels", type=int, help="number of labels of a state dict, the last "
                        "entries of a token (default: the number of outputs, or 1 if every "
                        "entry has one)")  # fmt: skip
    parser.add_argument("--context", type=int, metavar="L", help="context length of the sequences "
                        "to compare on (default: that of the run, else 8 D)")  # fmt: skip
    parser.add_argument("--noise", type=float, metavar="VARIANCE", help="of their labels (default: "
                        "that of the run, else 0.1)")  # fmt: skip
    parser.add_argument("--eigenvalues", type=float, nargs="+", metavar="λ", help="of the input "
                        "covariance (default: those of the run, else all 1)")  # fmt: skip
    parser.add_argument("--sequences", type=int, default=20_000, help="number of sequences to "
                        "compare on (default: 20000)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of these sequences (default: 0)")
    parser.add_argument("--out", metavar="DIR", help="draw the circuits into this folder")
    add_json(parser)
    return parser


def _name_flag(error: Exception) -> InputError:
    """An error about an argument of the library, or a setting of a config, as one about a flag."""
    if not isinstance(error, InputError):
        return InputError(" ".join(str(error).split()))
    name = (error.field or "").removeprefix("task.")
    is_flag = name.partition("[")[0] in ("heads", "labels", *_OF_THE_TASK)
    return error.renamed(f"--{name}") if is_flag else error


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

"""`iclflow inspect FILE|DIR`: what the heads of trained models do, and which algorithm they are."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..errors import shorten
from ..files import OTHER_FOLDER, OwnFiles
from ..runtime import Activity, start
from ._arguments import WATCHED, Parser, check_kind
from ._inspect_series import inspect_series, print_layers, print_series
from ._streams import print_json, say

# Flags that override settings of the task on which a model is judged.
_OF_THE_TASK = ("context", "noise", "eigenvalues")
# As in a config: JAX makes no keys from larger seeds.
_LARGEST_SEED = 2**32 - 1
LEGEND = """\
ω: attention to similar inputs, the mean of the diagonal of key-query over the
inputs that the label depends on; μ: weight of the label in output-value. Shares
of the norms: diagonal (1: nothing beside it), homogeneous (1: the diagonal is
constant), last entry (1: nothing but the label is read)."""


def main(arguments: Sequence[str]) -> int:
    """Reads a model, inspects it, and prints what was found."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.sequences < 2:
        raise InputError(f"`--sequences` = {shorten(options.sequences)}: must be at least 2.")
    if not 0 <= options.seed <= _LARGEST_SEED:
        value = shorten(options.seed)
        raise InputError(f"`--seed` = {value}: must lie between 0 and {_LARGEST_SEED}.")
    series = _is_series(Path(options.file))
    if not series:
        check_kind(options.file, "folder of a run")
    start()
    with Activity(f"reading {options.file}") as activity, parser.name_flags(arguments, "task."):
        if series:
            found = inspect_series(options, how(options, activity))
        else:
            found = _inspect(options, activity)
    if options.json:
        print_json(found)
    elif "checkpoints" in found:
        print_series(found)
    elif "layers" in found:
        print_layers(found)
    else:
        _print_inspection(found)
    return 0


def _is_series(path: Path) -> bool:
    """Whether a path is a folder of checkpoints, rather than that of a run."""
    from ..checkpoints import has_checkpoints
    from ..store import has_own_config

    of_ours = ("trajectory.safetensors", "sweep.toml")
    is_ours = any((path / name).exists() for name in of_ours)
    if is_ours or not path.is_dir() or has_own_config(path):
        return False
    # A trainer may write files of these names, too, and `icl.watch` into the same folder.
    others = ("config.toml", "manifest.json", WATCHED)
    return has_checkpoints(path) or not any((path / name).exists() for name in others)


def how(options: Any, activity: Activity) -> dict[str, Any]:
    """How files are read and judged, from the flags."""
    given = {name: getattr(options, name) for name in _OF_THE_TASK}
    return {
        "heads": options.heads,
        "labels": options.labels,
        "read_in": how_read(options),
        "settings": {name: value for name, value in given.items() if value is not None},
        "seed": options.seed,
        "sequences": options.sequences,
        "progress": activity.update,
    }


def how_read(options: Any) -> Any:
    """How tokens become what layers read, from the flags."""
    from ..checkpoints import ReadIn

    return ReadIn(options.embed, options.unembed, options.interleaved)


def _inspect(options, activity: Activity) -> dict[str, Any]:
    """What was found in one file or run, drawn if that is asked for."""
    from ..experiment import inspect_file

    if options.out:  # checked before the long computation
        _check_drawing(options)
    found, model, task = inspect_file(options.file, **how(options, activity))
    return {**found, "files": _draw(model, task, options)} if options.out else found


def _check_drawing(options) -> None:
    from ..analysis import has_circuits
    from ..checkpoints import load_layers, load_model

    if load_layers(options.file, options.heads, options.labels, how_read(options)) is not None:
        raise InputError(f"`--out` = {options.out}: only a model of one layer is drawn.")
    model = load_model(options.file, options.heads, options.labels)
    if not has_circuits(model):
        raise InputError(
            f"`--out` = {options.out}: {type(model).__name__} has no circuits to draw."
        )
    OwnFiles(options.out, remedy=OTHER_FOLDER).check(("heads.pdf", "heads.png"))


def _parser() -> Parser:
    parser = Parser(
        "inspect",
        "Shows what each head of a trained model does, and which known estimator its predictions "
        "match; of a folder of checkpoints, how that changed over the training.",
    )
    parser.flag(
        "file",
        "the folder of a run, a model file of iclflow, a PyTorch state dict (.safetensors, .pth) "
        "with q_proj, k_proj, v_proj and o_proj, or of MultiheadAttention, GPT-2 or "
        "HookedTransformer; or a folder of such files, with the step in their names",
        "FILE|DIR",
    )
    words = "number of heads of a state dict; required unless the file states it"
    parser.flag("--heads", words, type=int)
    parser.flag(
        "--labels",
        "number of labels of a state dict, the last entries of a token (default: the number of "
        "outputs, or 1 if every entry has one)",
        type=int,
    )
    parser.flag(
        "--embed",
        "linear layer of the state dict through which tokens (x; y) enter its layers (default: "
        "layers read tokens themselves)",
        "NAME",
    )
    parser.flag("--unembed", "linear layer of the state dict that reads the labels", "NAME")
    parser.switch(
        "--interleaved",
        "inputs and labels are tokens of their own, labels padded with zeros (with --embed)",
    )
    words = "context length of the sequences to compare on (default: that of the run, else 8 D)"
    parser.flag("--context", words, "L", type=int)
    words = "variance of their label noise (default: that of the run, else 0.1)"
    parser.flag("--noise", words, "VARIANCE", type=float)
    words = "variances of their inputs (default: those of the run, else all 1)"
    parser.flag("--eigenvalues", words, "λ", type=float, nargs="+")
    words = "number of sequences to compare on (default: 20000)"
    parser.flag("--sequences", words, type=int, default=20_000)
    parser.flag("--seed", "seed of these sequences (default: 0)", type=int, default=0)
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


def _print_inspection(found: dict[str, Any]) -> None:
    """Prints the heads, the loss and the algorithm of a model."""
    from rich.console import Console

    console = Console(highlight=False)
    say(_opening(found))
    if "loss" in found:
        context = ", ".join(map(str, found["context"]))
        say(f"loss {_loss(found)} at context {context}, noise {found['noise']}")
    if "missing" in found:
        say(f"{found['missing']}.")
    several = len(found["labels"]) > 1
    for i, label in enumerate(found["labels"]):
        if several:
            say(f"\nlabel {i + 1}")
        if "heads" in label:
            console.print(heads_table(label["heads"]))
            say(f"step Σμω          {label['step_size']:.4g}")
            say(f"|Σμ| / Σ|μ|       {label['zero_sum']:.4f}")
            say(f"spread of |ω|     {label['magnitude_spread']:.4f}")
        if "algorithm" in label:
            say(f"algorithm         {label['algorithm']}", 18)
    if several and found["roles"] is not None:
        words = (f"{h + 1} {role}" for h, role in enumerate(found["roles"]))
        say(f"\nwhat the heads do: {'; '.join(words)}")
    if "superposed_heads" in found:
        say(f"\nheads that serve several labels: {found['superposed_heads']}")
    if "owners" in found:
        _say_division(found)
    if found["heads"] is not None:
        say(f"\n{LEGEND}")
    say(f"sha256 {found['sha256']}")
    for file in found.get("files", ()):
        say(f"written to {file}")


def _say_division(found: dict[str, Any]) -> None:
    """Prints which head has which task, and the regime of its softmax."""
    owners = [
        f"{i + 1} none" if owner < 0 else f"{i + 1} head {owner + 1} ({100 * share:.3g} %)"
        for i, (owner, share) in enumerate(zip(found["owners"], found["own_shares"]))
    ]
    one = "" if found["one_task_a_head"] else "; not one task per head"
    say(f"heads of the labels: {', '.join(owners)}{one}")
    worst = max(found["defects"], key=lambda name: found["defects"][name])
    say(f"decomposable to {found['defects'][worst]:.2g} (largest: {worst})")
    if "regimes" in found:
        heads = zip(found["regimes"], found["score_deviations"], found["attended_tokens"])
        words = [
            f"{h + 1} {regime} (scores ± {deviation:.3g}, {tokens:.3g} tokens attended)"
            for h, (regime, deviation, tokens) in enumerate(heads)
        ]
        say(f"softmax of the heads: {', '.join(words)}")


def _opening(found: dict[str, Any]) -> str:
    """Model, heads and tokens: how the weights were read."""
    from ..report import count_of

    heads = ""
    if found["heads"] is not None:
        heads = f" {count_of(found['heads'], 'head')}"
        if found["width"] is not None:
            heads += f" of width {found['width']} (scores are divided by √{found['width']})"
        heads += ";"
    tokens = f"{count_of(found['dim'], 'input')} and {count_of(found['outputs'], 'label')}"
    return f"{found['model']}:{heads} tokens of {tokens}"


def _loss(found: dict[str, Any]) -> str:
    """The loss to as many digits as its standard error allows."""
    value, error = found["loss"], found["loss_standard_error"]
    if error == 0:
        return f"{value:.6g} ({found['loss_kind']})"
    places = max(1 - math.floor(math.log10(error)), 0)  # two digits of the error
    return f"{value:.{places}f} ± {error:.{places}f} ({found['loss_kind']})"


def heads_table(heads: Sequence[dict[str, Any]]):
    from ._tables import plain_table

    table = plain_table("head", "role", "ω", "μ", "diagonal", "homogeneous", "last entry")
    for h, head in enumerate(heads):
        numbers = (head[k] for k in ("diagonal_share", "homogeneity", "last_entry_share"))
        table.add_row(
            str(h + 1), head["role"], f"{head['omega']:.4g}", f"{head['mu']:.4g}",
            *(f"{number:.4f}" for number in numbers),
        )  # fmt: skip
    return table

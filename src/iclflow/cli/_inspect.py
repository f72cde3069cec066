"""`iclflow inspect FILE`: what the heads of a trained model do, and which algorithm they are."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ._activity import Activity
from ._errors import Parser, add_json
from ._start import start


def main(arguments: Sequence[str]) -> int:
    """Reads a model, measures its circuits and its predictions, and prints both."""
    options = _parser().parse_args(arguments)
    if options.sequences < 2:
        raise InputError(f"`--sequences` = {options.sequences}: must be at least 2.")
    start()
    with Activity(f"reading {options.file}") as activity:
        try:
            from ..checkpoints import load_model

            model = load_model(options.file, options.heads, options.labels)
            task = _task(options, model)
            activity.update("comparing predictions with known estimators")
            found = _measured(model, task, options)
        except (ValueError, TypeError) as error:
            raise InputError(" ".join(str(error).split())) from None
        if options.out:
            found["files"] = _draw(model, options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "inspect",
        "Says what each head of a trained attention layer does and which known estimator its "
        "predictions equal.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the folder of a run, a model file of ours, or a PyTorch state dict with q_proj, "
        "k_proj, v_proj and o_proj (.safetensors, .pth)",
    )
    parser.add_argument("--heads", type=int, help="of a state dict whose heads are not as wide as "
                        "a token")  # fmt: skip
    parser.add_argument("--labels", type=int, help="of a state dict: how many token entries are "
                        "labels (default: the number of outputs)")  # fmt: skip
    parser.add_argument("--context", type=int, metavar="L", help="length of the sequences to "
                        "compare on (default: the run's own, else 8 D)")  # fmt: skip
    parser.add_argument("--noise", type=float, metavar="VARIANCE", help="of their labels (default: "
                        "the run's own, else 0.1)")  # fmt: skip
    parser.add_argument("--eigenvalues", type=float, nargs="+", metavar="λ", help="of the input "
                        "covariance (default: the run's own, else all 1)")  # fmt: skip
    parser.add_argument("--sequences", type=int, default=20_000, help="how many to compare on "
                        "(default: 20000)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of these sequences (default: 0)")
    parser.add_argument("--out", metavar="DIR", help="draw the circuits into this folder")
    add_json(parser)
    return parser


def _task(options, model) -> Any:
    """The task that a model is judged on: that of its run, or in-context linear regression with a
    task vector of mean squared length 1."""
    import numpy as np

    from ..experiment import build_task
    from ..tasks import LinearRegression
    from ._run import read_config

    folder = Path(options.file)
    folder = folder.parent if folder.name == "trajectory.safetensors" else folder
    given = (options.context, options.noise, options.eigenvalues)
    if (folder / "config.toml").is_file() and given == (None, None, None):
        return build_task(read_config(str(folder / "config.toml")))
    attention, values = model.kq(), model.ov()
    dim = attention.shape[2]
    if values.ndim == 3:
        raise InputError(
            f"`{options.file}` predicts {values.shape[1]} labels, and which inputs each depends on "
            "is not in the file: give the folder of its run."
        )
    if options.eigenvalues and len(options.eigenvalues) != dim:
        raise InputError(
            f"`--eigenvalues` has {len(options.eigenvalues)} numbers: must have {dim}."
        )
    return LinearRegression(
        options.eigenvalues or np.ones(dim),
        8 * dim if options.context is None else options.context,
        noise=0.1 if options.noise is None else options.noise,
        prior_covariance=np.eye(dim) / dim,
    )


def _measured(model: Any, task: Any, options) -> dict[str, Any]:
    import jax.random as jr
    import numpy as np

    from ..analysis import patterns, superposition, which_algorithm
    from ..risks import SampledRisk
    from ..tasks import LinearRegression, MultiTaskRegression

    if model.kq().shape[2] != task.dim:
        raise InputError(
            f"`{options.file}` has inputs of dimension {model.kq().shape[2]}: the task has "
            f"{task.dim}."
        )
    key = jr.key(options.seed)
    several = task.labels if isinstance(task, MultiTaskRegression) else 0
    basis = None
    if isinstance(task, LinearRegression):
        covariance = np.asarray(task.covariance)
        if np.any(covariance != np.diag(np.diagonal(covariance))):
            basis = np.linalg.eigh(covariance)[1]
    labels = []
    for label in range(several or 1):
        algorithm = which_algorithm(model, task, key, options.sequences, label=label)
        labels.append(
            {
                **dataclasses.asdict(patterns(model, label, basis)),
                "algorithm": str(algorithm),
                "matches": [
                    {
                        "name": match.name,
                        "distance": match.distance,
                        "standard_error": match.standard_error,
                        "step_size": match.step_size,
                    }
                    for match in algorithm.matches
                ],
            }
        )
    loss = SampledRisk(task).estimate(model, jr.fold_in(key, 2), options.sequences)
    found = {
        "file": str(options.file),
        "model": type(model).__name__,
        "dim": task.dim,
        "context": list(getattr(task, "contexts", (task.max_context,))),
        "noise": np.asarray(getattr(task, "noise", 0.0)).tolist(),
        "loss": float(loss.value),
        "loss_standard_error": float(loss.standard_error),
        "labels": labels,
    }
    if isinstance(task, MultiTaskRegression):
        shared = superposition(model, task)
        found["shares"] = shared.shares.tolist()
        found["tasks_per_head"] = shared.tasks_per_head.tolist()
        found["superposed_heads"] = shared.superposed
    return found


def _draw(model, options) -> list[str]:
    from ..experiment import result_folder
    from ..figures import save_figure
    from ..figures._heads import heads_figure
    from ..figures._style import style

    folder = Path(options.out)
    with result_folder(folder), style():
        figure = heads_figure(model, Path(options.file).name)
        return [str(path) for path in save_figure(figure, folder, "heads")]


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    from ._tables import plain_table

    console = Console(highlight=False)
    several = len(found["labels"]) > 1
    console.print(
        f"{found['model']}, inputs of dimension {found['dim']}; loss {found['loss']:.5g} ± "
        f"{found['loss_standard_error']:.1g} at context {', '.join(map(str, found['context']))}, "
        f"noise {found['noise']}"
    )
    for i, label in enumerate(found["labels"]):
        if several:
            console.print(f"\nlabel {i + 1}")
        table = plain_table("head", "role", "ω", "μ", "diagonal", "homogeneous", "last entry")
        for h, head in enumerate(label["heads"]):
            numbers = (head[k] for k in ("diagonal_share", "homogeneity", "last_entry_share"))
            table.add_row(
                str(h + 1), head["role"], f"{head['omega']:.4g}", f"{head['mu']:.4g}",
                *(f"{number:.4f}" for number in numbers),
            )  # fmt: skip
        console.print(table)
        console.print(f"step Σμω          {label['step_size']:.4g}")
        console.print(f"|Σμ| / Σ|μ|       {label['zero_sum']:.3g}")
        console.print(f"spread of |ω|     {label['magnitude_spread']:.3g}")
        console.print(f"algorithm         {label['algorithm']}")
    if several:
        console.print(f"\nheads that serve several labels: {found['superposed_heads']}")
    for file in found.get("files", ()):
        console.print(f"written to {file}")

"""`iclflow inspect FILE`: what the heads of a trained model do, and which algorithm they are."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import BASE, GIB, InputError, memory_here, shown
from ..files import OwnFiles
from ._activity import Activity
from ._errors import OTHER_FOLDER, Parser, add_json
from ._inspected import print_inspected
from ._kinds import check_kind
from ._start import start

# Flags that change the task which a model is judged on.
_OF_THE_TASK = ("context", "noise", "eigenvalues")
# As in a config: JAX makes keys of no larger ones.
_LARGEST_SEED = 2**32 - 1


def main(arguments: Sequence[str]) -> int:
    """Reads a model, measures its circuits and its predictions, and prints both."""
    options = _parser().parse_args(arguments)
    if options.sequences < 2:
        raise InputError(f"`--sequences` = {shown(options.sequences)}: must be at least 2.")
    if not 0 <= options.seed <= _LARGEST_SEED:
        value = shown(options.seed)
        raise InputError(f"`--seed` = {value}: must lie between 0 and {_LARGEST_SEED}.")
    check_kind(options.file, "folder of a run")
    start()
    with Activity(f"reading {options.file}") as activity:
        try:
            from ..analysis import has_circuits
            from ..checkpoints import load_model

            model = load_model(options.file, options.heads, options.labels)
            if options.out and not has_circuits(model):
                raise InputError(
                    f"`--out` = {options.out}: {type(model).__name__} has no circuits to draw."
                )
            if options.out:  # before what takes long
                OwnFiles(options.out, remedy=OTHER_FOLDER).check(("heads.pdf", "heads.png"))
            task = _task(options, model)
            _check_memory(options, model, task)
            found = _measured(model, task, options, activity)
        except (ValueError, TypeError) as error:
            raise InputError(_naming_flags(" ".join(str(error).split()))) from None
        if options.out:
            found["files"] = _draw(model, task, options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print_inspected(found)
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
    parser.add_argument("--heads", type=int, help="of a state dict: how many; needed "
                        "unless the file says it")  # fmt: skip
    parser.add_argument("--labels", type=int, help="of a state dict: how many token entries, the "
                        "last ones, are labels (default: the number of outputs, or 1 if every "
                        "entry has one)")  # fmt: skip
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
    """The task that a model is judged on: that of its run, with what flags say put over it; or
    in-context linear regression with a task vector of mean squared length 1. None if the model
    has several labels and nothing says which inputs they depend on."""
    import numpy as np

    from ..config import named, parse_config, read_toml
    from ..experiment import build_task
    from ..models import count_inputs
    from ..tasks import LinearRegression

    folder = Path(options.file)
    folder = folder.parent if folder.name == "trajectory.safetensors" else folder
    given = {name: getattr(options, name) for name in _OF_THE_TASK}
    given = {name: value for name, value in given.items() if value is not None}
    dim = count_inputs(model)
    if len(given.get("eigenvalues", ())) not in (0, dim):
        raise InputError(
            f"`--eigenvalues` has {len(options.eigenvalues)} numbers: must have {dim}."
        )
    file = folder / "config.toml"
    if file.is_file():
        data = named(read_toml(str(file)), str(file))
        task = {**data.get("task", {}), **given}
        return build_task(parse_config({**data, "task": task}, stored=True))
    if model.labels is not None:
        if given:
            name, value = next(iter(given.items()))
            raise InputError(
                f"`--{name}` = {value}: `{options.file}` predicts {model.labels} labels, and which "
                "inputs each depends on is not in it, so that no sequences can be drawn; give the "
                "folder of its run."
            )
        return None
    return LinearRegression(
        given.get("eigenvalues", np.ones(dim)),
        given.get("context", 8 * dim),
        noise=given.get("noise", 0.1),
        prior_covariance=np.eye(dim) / dim,
    )


def _check_memory(options, model: Any, task: Any) -> None:
    """Refuses sequences that do not fit into memory before one is drawn."""
    from ..analysis import MOST_PREDICTED_AT_ONCE

    if task is None:
        return
    heads = model.kq().shape[0] if hasattr(model, "kq") else 1
    entries = (task.max_context + 1) * (task.dim + (task.labels or 1) + 2 * heads)
    # So many copies of each batch while it is drawn and predicted, and a prediction of each
    # estimator for every sequence: PCR and its relatives are as many as there are inputs.
    needed = {
        "context": 8.0 * 10 * min(options.sequences, MOST_PREDICTED_AT_ONCE) * entries,
        "sequences": 8.0 * options.sequences * (3 * task.dim + 16) * (task.labels or 1),
    }
    here, total = memory_here(), BASE + sum(needed.values())
    if total > here.usable:
        name = max(needed, key=lambda name: needed[name])
        value = task.max_context if name == "context" else options.sequences
        raise InputError(
            f"`--{name}` = {value} is too large: the comparison would need about "
            f"{total / GIB:.3g} GiB of memory, and may take {here.sentence}."
        )


def _measured(model: Any, task: Any, options, activity: Activity) -> dict[str, Any]:
    import jax.random as jr
    import numpy as np

    from ..analysis import circuits, compare, has_circuits, roles, superposition
    from ..models import count_inputs
    from ..tasks import MultiTaskRegression

    count = model.labels or 1
    found: dict[str, Any] = {
        "file": str(options.file),
        "model": type(model).__name__,
        "dim": count_inputs(model),
        "outputs": count,
        "heads": circuits(model, task).attention.shape[0] if has_circuits(model) else None,
        # Scores are divided by the square root of the width of a head, where it has one.
        "width": _width(model),
        "roles": None if task is None else roles(model, task),
        "labels": [_label(model, task, label) for label in range(count)],
    }
    if not has_circuits(model):
        found["missing"] = (
            f"{found['model']} is not one layer of attention: there are no circuits to show, and "
            "its predictions alone are judged"
        )
    if task is None:
        found["missing"] = (
            f"which inputs each of the {count} labels depends on is not in the file: no loss and "
            "no algorithm, and ω is the mean over all inputs; the folder of a run says it"
        )
        return found
    activity.update("comparing predictions with known estimators")
    compared = compare(model, task, jr.key(options.seed), options.sequences)
    for label, algorithm in zip(found["labels"], compared.algorithms):
        label |= _algorithm(algorithm)
    activity.update("computing the loss")
    found |= {
        "context": list(getattr(task, "contexts", (task.max_context,))),
        "noise": np.asarray(getattr(task, "noise", 0.0)).tolist(),
        **_loss(model, task, compared.loss),
    }
    if isinstance(task, MultiTaskRegression) and has_circuits(model):
        shared = superposition(model, task)
        found["shares"] = shared.shares.tolist()
        found["tasks_per_head"] = shared.tasks_per_head.tolist()
        found["superposed_heads"] = shared.superposed
        found |= _division(model, task)
    return found


def _division(model: Any, task: Any) -> dict[str, Any]:
    """Which head has which task, how far the heads are from decomposable, and their regimes."""
    import jax.random as jr

    from ..analysis import allocation, decomposition, softmax_regimes

    if not task.disjoint:
        return {}
    owned = allocation(model, task)
    found: dict[str, Any] = {
        "owners": list(owned.owners),
        "own_shares": owned.own_share.tolist(),
        "one_task_a_head": owned.one_task_a_head,
        "defects": dict(decomposition(model, task).defects),
    }
    if model.activation == "softmax":
        regimes = softmax_regimes(model, task, key=jr.key(0))
        found["regimes"] = list(regimes.regimes)
        found["score_deviations"] = regimes.deviation.tolist()
        found["attended_tokens"] = regimes.attended.tolist()
    return found


def _width(model: Any) -> int | None:
    """E, where scores are divided by its square root."""
    from ..models import AbstractSpectral, BlindFactored, FactoredAttention, MultiFactored

    if isinstance(model, FactoredAttention | MultiFactored | BlindFactored):
        return model.K.shape[1]
    return model.width if isinstance(model, AbstractSpectral) else None


def _label(model: Any, task: Any, label: int) -> dict[str, Any]:
    """What the heads do for one label."""
    from ..analysis import has_circuits, patterns, roles

    if not has_circuits(model):
        return {}
    measured = patterns(model, label, task=task)
    found = dataclasses.asdict(measured)
    names: Any = [head.name for head in measured.heads]
    if task is not None and model.labels is None:
        names = roles(model, task)
    for numbers, name in zip(found["heads"], names):
        numbers["role"] = name
    return found


def _algorithm(algorithm: Any) -> dict[str, Any]:
    """Which estimator the predictions of one label are."""
    names = ("name", "distance", "standard_error", "step_size")
    matches = [{n: getattr(match, n) for n in names} for match in algorithm.matches]
    return {"algorithm": str(algorithm), "known": algorithm.known, "matches": matches}


def _loss(model: Any, task: Any, sampled: Any) -> dict[str, Any]:
    """The loss: exact where it can be, else as it was on the sequences that were compared on."""
    import equinox as eqx

    from ..risks import available_kinds, risk

    exact = "exact" in available_kinds(task, model)
    value = eqx.filter_jit(risk(task, model, "exact"))(model) if exact else sampled.value
    return {
        "loss": float(value),
        "loss_standard_error": 0.0 if exact else float(sampled.standard_error),
        "loss_kind": "exact" if exact else "sampled",
    }


def _naming_flags(text: str) -> str:
    """A sentence that names arguments of the library, or settings of a config, as flags."""
    names = "|".join(("heads", "labels", *_OF_THE_TASK))
    return re.sub(rf"`(?:task\.)?({names})`", r"`--\1`", text)


def _draw(model: Any, task: Any, options) -> list[str]:
    import jax.numpy as jnp

    from ..analysis import circuits
    from ..figures import save_figure
    from ..figures._heads import heads_figure
    from ..figures._style import style
    from ..models import FullMergedKQ, MultiMergedKQ
    from ..store import result_folder

    # Drawn as they are measured: in the coordinates of the task.
    attention, values, _ = map(jnp.asarray, circuits(model, task))
    if model.labels is None:
        drawn: Any = FullMergedKQ(value=values[:, 0], key_query=attention, activation="softmax")
    else:
        drawn = MultiMergedKQ(value=values, key_query=attention)
    folder = Path(options.out)
    with result_folder(folder), style():
        figure = heads_figure(drawn, Path(options.file).name)
        return [str(path) for path in save_figure(figure, folder, "heads")]

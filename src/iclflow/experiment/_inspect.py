"""Inspects a trained model: its circuits, its loss, and the estimator that it implements."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from ..analysis import (
    MOST_PREDICTED_AT_ONCE,
    Algorithm,
    allocation,
    circuits,
    compare,
    decomposition,
    has_circuits,
    named_patterns,
    roles,
    softmax_regimes,
    superposition,
)
from ..config import BASE, GIB, InputError, memory_here, named, parse_config, read_toml
from ..models import AbstractModel, count_inputs, name_of
from ..risks import available_kinds, risk
from ..tasks import AbstractTask, Estimate, LinearRegression, MultiTaskRegression
from ._build import build_task

# The default task for a file that names none: contexts of eight pairs per input and some label
# noise, as in the experiments of arXiv 2503.12734.
_CONTEXT_PER_INPUT, _NOISE = 8, 0.1
# Copies of a batch of sequences in memory while it is drawn and predicted (measured).
_COPIES = 10
# Predictions kept per sequence: PCR and its relatives are three per input, the others 16 in all.
_PREDICTIONS_PER_INPUT, _OTHER_PREDICTIONS = 3, 16
_BYTES = 8.0  # of a float64


def task_to_inspect(
    file: Path | str, model: AbstractModel, settings: Mapping[str, Any]
) -> AbstractTask | None:
    """The task on which `inspect` should judge the model in a file.

    That is the task of its run, if the file belongs to one; else in-context linear regression with
    task vectors of mean squared length 1. None if the model has several labels and nothing says
    which inputs they depend on.

    **Arguments:**

    - `file`: the folder of a run, its trajectory, or any file with a model.
    - `settings`: override `context`, `noise` and `eigenvalues` of the task.

    **Example:**

    ```pycon
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> task = icl.experiment.task_to_inspect("missing.safetensors", pair, {"context": 40})
    >>> task.max_context
    40
    ```
    """
    folder = Path(file)
    folder = folder.parent if folder.name == "trajectory.safetensors" else folder
    dim = count_inputs(model)
    count = len(settings.get("eigenvalues", ()))
    if count not in (0, dim):
        problem = f"has {count} numbers"
        raise InputError("eigenvalues", problem=problem, allowed=f"must have {dim}")
    config = folder / "config.toml"
    if config.is_file():
        data = named(read_toml(str(config)), str(config))
        task = {**data.get("task", {}), **settings}
        return build_task(parse_config({**data, "task": task}, stored=True))
    if model.labels > 1:
        for name, value in settings.items():
            raise InputError(
                name,
                value,
                f"`{file}` predicts {model.labels} labels, and does not say which inputs each "
                "depends on, so no sequences can be drawn; give the folder of its run",
            )
        return None
    return LinearRegression(
        settings.get("eigenvalues", np.ones(dim)),
        settings.get("context", _CONTEXT_PER_INPUT * dim),
        noise=settings.get("noise", _NOISE),
        prior_covariance=np.eye(dim) / dim,
    )


def inspect(
    model: AbstractModel,
    task: AbstractTask | None,
    *,
    seed: int = 0,
    sequences: int = 20_000,
    progress: Callable[[str], None] = lambda doing: None,
) -> dict[str, Any]:
    """What the heads of a model do and which known estimator its predictions equal, as plain data.

    **Arguments:**

    - `task`: where sequences come from; None leaves out all that needs some, such as the loss.
    - `seed`, `sequences`: of the fresh sequences that predictions are compared on, and how many.
    - `progress`: called with what is computed next.

    **Returns:** `model`, `dim`, `outputs`, `heads`, `width` and `roles`; `labels`, for each label
    what its heads do, and its nearest estimators; with a task `context`, `noise` and the `loss`,
    exact where that exists; with several tasks how the heads divide them. `missing` says what is
    left out and why.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.experiment.inspect(pair, task, sequences=500)
    >>> sorted(found)[:3]
    ['context', 'dim', 'heads']
    ```
    """
    if task is not None:
        _check_memory(model, task, sequences)
    one_layer = has_circuits(model)
    found: dict[str, Any] = {
        "model": name_of(model),
        "dim": count_inputs(model),
        "outputs": model.labels,
        "heads": circuits(model, task).attention.shape[0] if one_layer else None,
        # Scores are divided by the square root of the width of a head, where it has one.
        "width": getattr(getattr(model, "circuits", None), "width", None),
        "roles": None if task is None else roles(model, task),
        "labels": [describe_heads(model, task, label) for label in range(model.labels)],
    }
    if not one_layer:
        found["missing"] = (
            f"{found['model']} is not one layer of attention: it has no circuits to show, and is "
            "judged by its predictions alone"
        )
    if task is None:
        found["missing"] = (
            f"the file does not say which inputs each of the {model.labels} labels depends on: no "
            "loss and no algorithm, and ω is the mean over all inputs; the folder of a run has them"
        )
        return found
    progress("comparing predictions with known estimators")
    compared = compare(model, task, jr.key(seed), sequences)
    for label, algorithm in zip(found["labels"], compared.algorithms):
        label |= _describe_algorithm(algorithm)
    progress("computing the loss")
    found |= {
        "context": list(getattr(task, "contexts", (task.max_context,))),
        "noise": np.asarray(getattr(task, "noise", 0.0)).tolist(),
        **_compute_loss(model, task, compared.loss),
    }
    if isinstance(task, MultiTaskRegression) and one_layer:
        found |= _describe_division(model, task)
    return found


def _check_memory(model: AbstractModel, task: AbstractTask, sequences: int) -> None:
    """Refuses sequences that do not fit into memory before any are drawn."""
    heads = getattr(model, "kq")().shape[0] if hasattr(model, "kq") else 1
    entries = (task.max_context + 1) * (task.dim + task.labels + 2 * heads)
    predictions = (_PREDICTIONS_PER_INPUT * task.dim + _OTHER_PREDICTIONS) * task.labels
    needed = {
        "context": _BYTES * _COPIES * min(sequences, MOST_PREDICTED_AT_ONCE) * entries,
        "sequences": _BYTES * sequences * predictions,
    }
    here, total = memory_here(), BASE + sum(needed.values())
    if total > here.usable:
        name = max(needed, key=lambda name: needed[name])
        value = task.max_context if name == "context" else sequences
        allowed = (
            f"the comparison would need about {total / GIB:.3g} GiB of memory, and may take "
            f"{here.sentence}"
        )
        raise InputError(name, value, allowed, "is too large")


def describe_heads(
    model: Any, task: AbstractTask | None, label: int, whole: bool = True
) -> dict[str, Any]:
    """Measures the heads for one label."""
    if not has_circuits(model):
        return {}
    measured, names = named_patterns(model, task, label, whole)
    found = dataclasses.asdict(measured)
    for numbers, name in zip(found["heads"], names):
        numbers["role"] = name
    return found


def _describe_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """Which estimator the predictions of one label are."""
    names = ("name", "distance", "standard_error", "step_size")
    matches = [{n: getattr(match, n) for n in names} for match in algorithm.matches]
    return {"algorithm": str(algorithm), "known": algorithm.known, "matches": matches}


def _compute_loss(model: AbstractModel, task: AbstractTask, sampled: Estimate) -> dict[str, Any]:
    """The loss: exact where that exists, else on the sequences that were compared on."""
    exact = "exact" in available_kinds(task, model)
    value = eqx.filter_jit(risk(task, model, "exact"))(model) if exact else sampled.value
    return {
        "loss": float(value),
        "loss_standard_error": 0.0 if exact else float(sampled.standard_error),
        "loss_kind": "exact" if exact else "sampled",
    }


def _describe_division(model: Any, task: MultiTaskRegression) -> dict[str, Any]:
    """Which head serves which task, how far the heads are from decomposable, and their regimes."""
    shared = superposition(model, task)
    found: dict[str, Any] = {
        "shares": shared.shares.tolist(),
        "tasks_per_head": shared.tasks_per_head.tolist(),
        "superposed_heads": shared.superposed,
    }
    if not task.disjoint:  # the other measurements need tasks on disjoint coordinates
        return found
    owned = allocation(model, task)
    found |= {
        "owners": list(owned.owners),
        "own_shares": owned.own_share.tolist(),
        "one_task_a_head": owned.one_task_a_head,
        "defects": dict(decomposition(model, task).defects),
    }
    if model.activation == "softmax":
        regimes = softmax_regimes(model, task, key=jr.key(0))
        found |= {
            "regimes": list(regimes.regimes),
            "score_deviations": regimes.deviation.tolist(),
            "attended_tokens": regimes.attended.tolist(),
        }
    return found

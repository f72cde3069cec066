"""Many initialisations of linear attention trained together: time an initialisation and step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from iclflow.flows import (
    SaveEvenly,
    descend_ensemble,
    gradient_descent,
    gradient_flow_ensemble,
    init_many,
    sgd_rule,
)
from iclflow.models import AbstractModel, Attention
from iclflow.risks import AbstractRisk, dataset_risk, risk
from iclflow.tasks import LinearRegression

from ._finite_data import LEARNING_RATE
from ._loops import QueryPosition, time_loop
from ._machine import missing_torch
from ._row import Bar, Row, Timing, measure

PEER = "PyTorch at the query position, one initialisation"


class Setting(NamedTuple):
    """How much to compute.

    **Fields:**

    - `members`, `steps`: initialisations, and steps of descent of each.
    - `end`: of gradient flows.
    - `sequences`: P, of the data set.
    - `peer_seconds`: for which the peer is timed.
    - `judged`: whether these are the sizes that the bars are about.
    """

    members: int = 256
    steps: int = 2000
    end: float = 300.0
    sequences: int = 5000
    peer_seconds: float = 3.0
    repeats: int = 5
    judged: bool = True


QUICK = Setting(3, 60, 3.0, 20, 0.0, 1, judged=False)


def linear_ensemble_rows(quick: bool = False) -> list[Row]:
    """Descents by sufficient statistics and on the exact risk, and exact flows, each together.

    D = 4, N = 31, eight heads, all blocks trainable: the setting of `Problem`.
    """
    setting = QUICK if quick else Setting()
    group = f"{setting.members} initialisations of linear attention together: D = 4, N = 31"
    task = LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)
    sequences = jax.tree.map(np.asarray, task.sample(jr.key(10), setting.sequences))
    full, reduced = (
        _models(kind, setting.members)
        for kind in (partial(Attention.merged, blind=False), Attention.merged)
    )
    data, exact = dataset_risk(sequences, _first(full)), risk(task, _first(full))
    rows, bar = [], Bar(2.0) if setting.judged else None
    timed = {}
    contestants = (
        ("eight heads, all blocks, by sufficient statistics", full, data),
        ("eight heads, all blocks, exact risk", full, exact),
        ("eight heads, reduced, exact risk", reduced, risk(task, _first(reduced))),
    )
    for name, models, target in contestants[: 1 if quick else None]:
        timed[name] = _descents(models, target, setting)
        note = f"gradient descent, float64, {setting.steps} steps"
        rows.append(timed[name].row(group, f"{name}: an init-step", "µs", bar=bar, note=note))
        rows.append(_flow_row(group, name, models, target, setting))
    alone = _alone(full, data, setting)
    rows += [
        alone.row(group, "by sufficient statistics, one initialisation: a step", "µs"),
        _agreement(group, full, data, setting),
    ]
    missing = missing_torch()
    if missing is not None:
        return [*rows, Row(group, PEER, None, note=missing)]
    peer = QueryPosition(sequences, _first(full), LEARNING_RATE, "float64")
    theirs = time_loop(peer, setting.peer_seconds, setting.steps)
    ours = next(iter(timed))
    return [
        *rows,
        theirs.timing.row(group, f"{PEER}: a step", "µs", note=f"float64, {theirs.words}"),
        theirs.timing.ratio_row(group, f"{PEER} ÷ ours: {ours}", timed[ours]),
    ]


def _models(init: Callable[..., Any], count: int) -> Any:
    keys = jr.split(jr.key(0), count)
    return init_many(init, keys, dim=4, heads=8, scale=1e-2, normaliser="context")


def _first(models: Any) -> Any:
    return jax.tree.map(lambda x: x[0], models)


def _descents(models: AbstractModel, target: AbstractRisk, setting: Setting) -> Timing:
    run = lambda: descend_ensemble(
        models, target, sgd_rule(LEARNING_RATE), setting.steps, save=SaveEvenly(3), progress=False
    )
    run()  # compiles
    return measure(run, setting.repeats).times(1 / (setting.members * setting.steps))


def _flow_row(group: str, name: str, models, target: AbstractRisk, setting: Setting) -> Row:
    counts = []

    def run() -> None:
        runs = gradient_flow_ensemble(
            models, target, end=setting.end, save=SaveEvenly(3), solver="explicit", progress=False
        )
        counts.append(sum(each.statistics["steps"] for each in runs))

    run()  # compiles
    timing = measure(run, setting.repeats).times(1 / counts[0])
    note = f"gradient flow to t = {setting.end:g}, six gradients a step"
    return timing.row(group, f"{name}: an accepted step of a flow", "µs", note=note)


def _alone(models, target: AbstractRisk, setting: Setting) -> Timing:
    run = lambda: _single(models, target, setting)
    run()  # compiles
    return measure(run, setting.repeats).times(1 / setting.steps)


def _single(models, target: AbstractRisk, setting: Setting):
    return gradient_descent(
        _first(models), target, LEARNING_RATE, setting.steps, save=SaveEvenly(3), progress=False
    )


def _agreement(group: str, models, target: AbstractRisk, setting: Setting) -> Row:
    """How far the first run of the ensemble is from the same run alone."""
    together = descend_ensemble(
        models, target, sgd_rule(LEARNING_RATE), setting.steps, save=SaveEvenly(3), progress=False
    )[0]
    alone = _single(models, target, setting)
    difference = float(np.max(np.abs(together.losses / alone.losses - 1)))
    return Row(
        group,
        "losses together and alone: largest relative difference",
        difference,
        bar=Bar(1e-12) if setting.judged else None,
    )

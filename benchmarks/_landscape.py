"""Exact losses of softmax attention on a map of weights: one table against point by point."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from iclflow.flows import SaveEvenly, gradient_flow_ensemble, init_many, landscape
from iclflow.models import Attention, Diagonal
from iclflow.risks import ExactSoftmaxRisk, exact_softmax_risk
from iclflow.tasks import isotropic

from ._row import Bar, Row, measure

GROUP = "exact softmax losses on a map: d = 5, L = 40, two heads"
DIM, CONTEXT, NOISE = 5, 40, 0.1
LARGEST_OMEGA, LARGEST_MU = 0.8, 10.0


class Setting(NamedTuple):
    """How much to compute.

    **Fields:**

    - `side`: points along each axis of the map.
    - `peer`: points on which the risk is timed one by one.
    - `flows`, `end`: how many exact gradient flows, and up to which time.
    - `digits`: of precision.
    - `judged`: whether these are the sizes that the bars are about.
    """

    side: int = 100
    peer: int = 64
    flows: int = 1000
    end: float = 1e4
    digits: int = 10
    repeats: int = 3
    judged: bool = True


QUICK = Setting(side=17, peer=4, flows=4, end=10.0, digits=6, repeats=1, judged=False)


def landscape_rows(quick: bool = False) -> list[Row]:
    """The map of an opposite pair, as many points of heads of their own, and exact flows."""
    setting = QUICK if quick else Setting()
    risk = exact_softmax_risk(isotropic(DIM, CONTEXT, NOISE), setting.digits)
    rows = []
    for name, models in (("opposite pair", _pair(setting.side)), ("own ω and μ", _own(setting))):
        rows += _map_rows(name, models, risk, setting)
    return rows + _flow_rows(risk, setting)


def _map_rows(name: str, models: Attention, risk: ExactSoftmaxRisk, setting: Setting) -> list[Row]:
    count = len(models.circuits.omega)
    compute = lambda: landscape(models, risk, progress=False)
    jax.clear_caches()
    first = measure(compute, 1)
    again = measure(compute, setting.repeats)
    picked = np.random.default_rng(0).permutation(count)[: setting.peer]
    some = jax.tree.map(lambda x: x[picked], models)
    each = eqx.filter_jit(eqx.filter_vmap(risk))
    losses = np.asarray(each(some))
    one_by_one = measure(lambda: each(some).block_until_ready(), setting.repeats)
    whole = one_by_one.times(count / len(picked))
    difference = float(np.max(np.abs(compute().losses[picked] / losses - 1)))
    bar = lambda limit: Bar(limit) if setting.judged else None
    note = f"{count} points, {setting.digits} digits"
    peer = f"{name}: point by point"
    return [
        first.row(GROUP, f"{name}: first call, with compilation", bar=bar(20), note=note),
        again.row(GROUP, f"{name}: compiled", bar=bar(20), note=note),
        whole.row(GROUP, peer, note=f"compiled; {len(picked)} points timed, {count} extrapolated"),
        whole.ratio_row(GROUP, f"{peer} ÷ ours, compiled", again),
        Row(
            GROUP,
            f"{name}: largest relative difference from point by point",
            difference,
            bar=bar(1e-9),
            note=f"on {len(picked)} random points",
        ),
    ]


def _flow_rows(risk: ExactSoftmaxRisk, setting: Setting) -> list[Row]:
    """Exact gradient flows of random heads on one table."""
    make = lambda: risk.tabulate(1.5)
    table, made = make(), measure(make, setting.repeats)
    keys = jr.split(jr.key(0), setting.flows)
    models = init_many(Attention.diagonal, keys, dim=DIM, heads=2, scale=0.1)
    tried = []

    def flow() -> None:
        runs = gradient_flow_ensemble(
            models, table, end=setting.end, save=SaveEvenly(3), progress=False
        )
        steps = [run.statistics["steps"] + run.statistics["rejected"] for run in runs]
        tried.append(sum(steps))

    first, again = measure(flow, 1), measure(flow, setting.repeats)
    note = f"random heads to t = {setting.end:g}, {tried[-1]} tried steps"
    name = f"{setting.flows} exact gradient flows"
    return [
        made.row(GROUP, f"{name}: their table, compiled"),
        first.row(GROUP, f"{name}: first call, with compilation", note=note),
        again.row(GROUP, f"{name}: compiled", note=note),
        again.times(1 / tried[-1]).row(GROUP, f"{name}: a tried step", "µs"),
    ]


def _pair(side: int) -> Attention:
    """A map over ω and μ of the heads (ω, μ) and (−ω, −μ)."""
    axes = np.geomspace(0.02, LARGEST_OMEGA, side), np.geomspace(0.08, LARGEST_MU, side)
    omega, mu = (axis.ravel() for axis in np.meshgrid(*axes))
    return _stacked(*(np.stack([x, -x], 1) for x in (omega, mu)))


def _own(setting: Setting) -> Attention:
    """As many models whose heads have nothing in common."""
    random, count = np.random.default_rng(1), setting.side**2
    omega = random.uniform(-LARGEST_OMEGA, LARGEST_OMEGA, (count, 2))
    # As large as they are at the optimum for such ω.
    return _stacked(omega, random.normal(0, 1 / math.sqrt(0.05), (count, 2)))


def _stacked(omega: np.ndarray, mu: np.ndarray) -> Attention:
    make = lambda o, m: Attention(Diagonal(o, m, DIM))
    return eqx.filter_vmap(make)(jnp.asarray(omega), jnp.asarray(mu))

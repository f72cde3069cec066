"""The members of a batch: models, risks and keys."""

import collections
import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from ..config import Config
from ..experiment import Experiment, Keys, build_model, keys_of, prepare
from ..models import AbstractModel
from ._batches import risk_of, seeded

# Experiments that are kept for the next batch.
_KEPT = 512


class ExperimentCache:
    """Builds tasks, risks and smallest losses once for all runs that share them."""

    def __init__(self):
        self._built: collections.OrderedDict[str, Experiment] = collections.OrderedDict()
        self._floors: dict[str, float | None] = {}
        self._lock = threading.Lock()

    def experiment(self, config: Config) -> Experiment:
        """An experiment with the task and the risk of this config. Its weights, its random stream
        and, for random runs, its monitor may belong to another seed."""
        name = _name(config)
        with self._lock:
            if name not in self._built:
                self._built[name] = prepare(config)
            self._built.move_to_end(name)
            # Every run has its own data set, which is large: only the last one is kept.
            while len(self._built) > (1 if seeded(config) else _KEPT):
                self._built.popitem(last=False)
            return self._built[name]

    def floor(self, config: Config, experiment: Experiment) -> float | None:
        """The smallest loss that the weights can reach, where it is known."""
        name = _name(config)
        if name not in self._floors:
            self._floors[name] = experiment.floor()
        return self._floors[name]


def _name(config: Config) -> str:
    return f"{risk_of(config)} {config.seed if seeded(config) else ''}"


def step_keys(configs: Sequence[Config]) -> Key[Array, " members"]:
    """The keys of the random streams of the steps."""
    return _keys(configs).steps


def first_models(configs: Sequence[Config]) -> AbstractModel:
    """The models of configs of one shape, each array with a leading axis over them."""
    keys = _keys(configs).weights
    # A default scale depends on the scheme, and is left to the config.
    scales = [getattr(config.model, "scale", None) for config in configs]
    traced = None if None in scales else np.asarray(scales, float)
    points = [(id(config.task), id(config.model)) for config in configs]
    starts = {p: _start(c, traced is not None) for p, c in dict(zip(points, configs)).items()}
    kinds = [starts[point] for point in points]
    found: dict[_Start, AbstractModel] = {}
    for kind in kinds:
        if kind not in found:  # for all keys: one program, however many members need it
            found[kind] = _initialiser(kind)(keys, traced)
    if len(found) == 1:
        return found[kinds[0]]
    order = list(found)
    rows = np.asarray([order.index(kind) for kind in kinds]), np.arange(len(kinds))
    return jax.tree.map(lambda *leaves: np.stack(leaves)[rows], *found.values())


@dataclasses.dataclass(frozen=True)
class _Start:
    """How initial weights are drawn, up to their scale, with any config that draws them so."""

    name: str
    config: Config = dataclasses.field(compare=False)


def _start(config: Config, traced: bool) -> _Start:
    given = config.given()
    model = {k: v for k, v in given["model"].items() if not (traced and k == "scale")}
    # Decomposable heads are drawn in the coordinates of their task.
    sizes = given["task"] if model["kind"] == "multi_spectral" else None
    name = [model, sizes, config.task.dim, config.task.labels, traced]
    return _Start(json.dumps(name, sort_keys=True), config)


@functools.lru_cache(maxsize=64)
def _initialiser(start: _Start) -> Callable[..., AbstractModel]:
    config = start.config

    def one(key, scale):
        model = config.model
        if scale is not None:
            model = model.model_copy(update={"scale": scale})
        return build_model(config.model_copy(update={"model": model}), key)[0]

    return eqx.filter_jit(eqx.filter_vmap(one))


def _keys(configs: Sequence[Config]) -> Keys:
    """The keys of many runs, each with a leading axis over them."""
    return _many_keys(np.asarray([config.seed for config in configs], np.uint32))


_many_keys = jax.jit(jax.vmap(keys_of))

"""How much memory a run needs, so that one that cannot run is refused before it starts.

Every part is counted that grows with a setting. The constants were found by measuring the peaks of
runs near a GiB: `tools/memory_estimates.py` measures them again.
"""

import importlib.util
from typing import TYPE_CHECKING, NamedTuple

from ..limits import (
    FLOW_LANES,
    FLOW_TRIES,
    JACOBIAN_NUMBERS,
    MAX_IMPLICIT,
    TEST_LOOKS,
    feature_count,
)
from ._held_out_size import (
    ALONE,
    COMPARED,
    HeldOutSize,
    in_lanes,
    posterior_numbers,
    predicted_numbers,
    product_numbers,
    stored_numbers,
    stored_predicted_numbers,
)
from ._task import LinearRegressionTask, MultiTask
from ._training import (
    DatasetRisk,
    GradientFlow,
    MinibatchRisk,
    SampledRisk,
    SaveDrops,
    SaveExplicit,
)

if TYPE_CHECKING:
    from ._config import Config

_DOUBLE, _SINGLE = 8, 4
# Python, JAX, matplotlib, and what compiling takes.
BASE = 600 * 2**20
# What more of it programs take that are long: a layer of a stack, quadratures, a fused pass, and
# for each input a term of the sums that are written out where labels are drawn.
_LAYER, _QUADRATURE, _FUSED, _TERM = 100 * 2**20, 400 * 2**20, 200 * 2**20, 2**20
# The name that `memory_needed` gives it: that of no setting.
PROGRAM = ""
# Numbers for every entry of a covariance: of inputs and prior, their roots and eigenvectors.
_COVARIANCES = 20
# Copies of the weights that the stages of a solver hold, and those that a descent does.
_FLOW_COPIES, _DESCENT_COPIES = 30, 8
# Bytes of what is recorded of one chunk of steps, with the chunk that is under way beside it.
_RECORD = 3 * 2**25
# Copies of what is kept of a run while it is joined and written.
_KEPT_COPIES = 4
# Points of a run that keeps what moves: of a flow, and of a descent that looks at its exact loss.
_DROPS, _LOOKS = 1000, 3000
# Square matrices with a row for every feature that moments, their root and its factors take.
_MOMENTS = 9
# Square matrices with a row for every head, of risks that are sums over pairs of heads.
_PAIRS = 2
# Drawing takes so many times what is drawn, beside it: random words, halves of them, normals; and
# where a task draws its sequences itself.
_DRAWING, _SAMPLING = 3, 5
# Square matrices with a row for every weight: a Jacobian, what is factorised, its factors.
_JACOBIANS = 3
# Arrays of `JACOBIAN_NUMBERS` that there are at a time.
_COLUMN_ARRAYS = 3


class _Sizes(NamedTuple):
    """What the memory of a run depends on."""

    weights: int
    stored: int
    gradient: int
    circuits: int
    points: int

    @staticmethod
    def of(config: "Config") -> "_Sizes":
        task, model = config.task, config.model
        return _Sizes(
            weights=model.weight_count(task.dim, task.labels),
            stored=stored_numbers(config),
            gradient=_gradient_numbers(config),
            circuits=model.heads * (task.dim + task.labels) * task.dim,
            points=_points(config),
        )


def memory_needed(config: "Config", lanes: int = 1) -> dict[str, float]:
    """About how many bytes a run needs, by the setting that makes it so many; the program itself
    has the name `PROGRAM`.

    **Arguments:**

    - `lanes`: how many runs of a sweep are one program; then it is what all of them need.
    """
    size, largest = _Sizes.of(config), _largest(config)
    flow = isinstance(config.flow, GradientFlow)
    beside = min(lanes, FLOW_LANES) if flow else lanes
    needed = {PROGRAM: float(BASE + _long_programs(config))}

    def add(name: str, count: float) -> None:
        needed[name] = needed.get(name, 0.0) + count

    dim = config.task.dim
    inputs = "task.inputs" if getattr(config.task, "inputs", None) else "task"
    add(inputs, _DOUBLE * (_COVARIANCES + 2 * config.task.labels) * dim**2)
    tries = FLOW_TRIES if flow else 3 * size.points
    copies = _FLOW_COPIES if flow else _DESCENT_COPIES
    record = min(_RECORD, _DOUBLE * tries * size.weights)
    add(largest, _DOUBLE * beside * copies * size.weights + record)
    save = "save" if isinstance(config.save, SaveExplicit) else "save.count"
    kept = _DOUBLE * lanes * _KEPT_COPIES * size.points * (size.weights + 2)
    add(largest if isinstance(config.save, SaveDrops) else save, kept)
    for name, count in _stored(config, size, lanes).items():
        add(name, count)
    # One after the other: what the largest of them needs.
    passing = _passing(config, size, beside)
    if passing:
        name = max(passing, key=lambda name: passing[name])
        add(name, passing[name])
    return needed


def largest_setting(needed: dict[str, float]) -> str:
    """The setting that takes most of what `memory_needed` says."""
    settings = {name: size for name, size in needed.items() if name != PROGRAM}
    return max(settings, key=lambda name: settings[name])


def _long_programs(config: "Config") -> float:
    """What compiling takes beyond the usual."""
    model = config.model
    exact = config.exact and (model.structured or model.spectral)
    context = getattr(config.risk, "integrate", "") == "context"
    terms = config.task.dim if config.sampled and in_lanes(config) and not model.label_blind else 0
    long = _LAYER * model.layers + _QUADRATURE * (exact or context) + _TERM * terms
    return long + _FUSED * _fused(config)


def _stored(config: "Config", size: _Sizes, lanes: int) -> dict[str, float]:
    """Sequences that stay in memory, by the setting that makes them so many."""
    risk = config.risk
    if isinstance(risk, DatasetRisk | MinibatchRisk):
        sets = (
            2 if isinstance(risk, MinibatchRisk) else 1
        )  # steps pick from one, losses are another
        statistics = sets == 1 and (config.model.bilinear or config.model.cubic)
        alive = 1 if statistics else sets * lanes
        return {"risk.sequences": _DOUBLE * alive * risk.sequences * size.stored}
    if tests := _tests(config):
        return {_longest(config): _SINGLE * tests.count * size.stored}
    return {}


def _passing(config: "Config", size: _Sizes, lanes: int) -> dict[str, float]:
    """What is needed for a while: to draw sequences, to take a step, to look at the loss."""
    risk, model, found = config.risk, config.model, {}
    if isinstance(risk, DatasetRisk | MinibatchRisk):
        drawing = risk.sequences * (_SAMPLING * size.stored + config.task.function_size)
        # Of linear attention a data set is known by its moments.
        statistics = model.bilinear or model.cubic
        if isinstance(risk, MinibatchRisk):
            looking = 0 if statistics else risk.sequences * stored_predicted_numbers(config)
            step = lanes * risk.batch * size.gradient
        else:
            looking, step = 0, 0 if statistics else lanes * risk.sequences * size.gradient
        found["risk.sequences"] = float(_DOUBLE * max(drawing, looking, step))
    elif config.sampled:
        sampled = risk if isinstance(risk, SampledRisk) else SampledRisk()
        batch = sampled.batch
        bytes_each = _SINGLE if sampled.precision == "float32" else _DOUBLE
        # Where sequences lie side by side, what draws them makes room for what is computed on them.
        each = (_DRAWING if in_lanes(config) else 1 + _SAMPLING) * size.stored
        each += config.task.function_size + size.gradient
        step = 0 if _fused(config) else bytes_each * lanes * batch * each
        name = "risk.batch" if batch > size.stored else _longest(config)
        found[name] = float(step)
    if tests := _tests(config):
        drawn = tests.count if tests.blocks == 1 else tests.at_once
        times = _DRAWING if isinstance(config.task, LinearRegressionTask) else _SAMPLING
        drawing = drawn * (times * size.stored + config.task.function_size)
        # A piece is taken out, and may get a token more.
        looking = tests.at_once * (predicted_numbers(config) + 2 * size.stored)
        name = _longest(config)
        found[name] = max(found.get(name, 0.0), _SINGLE * max(drawing, looking))
    if risk.kind in ("large_context", "first_order"):  # numbers for every pair of heads
        found["model.heads"] = _DOUBLE * lanes * _PAIRS * model.heads**2
    if config.exact and model.cubic:
        found["task"] = _DOUBLE * _MOMENTS * feature_count("cubic", config.task.dim) ** 2
    if isinstance(config.flow, GradientFlow):
        jacobian, rest = _jacobian(config, size, lanes), found.pop("risk.sequences", 0.0)
        found["flow.solver" if jacobian > rest else "risk.sequences"] = jacobian + rest
    return found


def _jacobian(config: "Config", size: _Sizes, lanes: int) -> float:
    """What the implicit solver needs, in all lanes; nothing where it is never taken."""
    solver = getattr(config.flow, "solver")
    small = size.weights <= MAX_IMPLICIT
    if solver == "explicit" or (solver == "auto" and not small):
        return 0.0
    sequences = getattr(config.risk, "sequences", 0)
    statistics = config.model.bilinear or config.model.cubic
    way = max(size.weights, size.circuits, 0 if statistics else sequences * size.gradient // 4)
    columns = min(lanes * size.weights * way, max(JACOBIAN_NUMBERS, lanes * way))
    # By itself it is taken where a flow is slow, or where gradients are all that counts.
    taken = solver == "implicit" or (config.exact and config.model.structured)
    return _DOUBLE * (
        _JACOBIANS * lanes * size.weights**2 + (_COLUMN_ARRAYS * columns if taken else 0)
    )


def _tests(config: "Config") -> HeldOutSize | None:
    """The test set of a run on fresh sequences whose exact loss is not known."""
    if not config.sampled or config.exact_exists:
        return None
    compared = isinstance(config.task, LinearRegressionTask | MultiTask)
    return HeldOutSize.of(config, COMPARED if compared else ALONE)


def _gradient_numbers(config: "Config") -> int:
    """About how many numbers one sequence takes while the gradient on it is computed."""
    task, model = config.task, config.model
    tokens = task.longest_context + 1
    if model.layers:
        drawn = posterior_numbers(config) if config.sampled else 0
        return 3 * model.layers * model.heads * tokens**2 + drawn
    if not config.sampled:
        return stored_predicted_numbers(config) + 2 * model.heads * tokens * task.labels
    if in_lanes(config):  # linear attention is done with the posterior before its products
        parts = product_numbers(config), posterior_numbers(config)
        scores = stored_numbers(config) + 3 * model.heads * tokens
        return scores + sum(parts) if model.softmax else max(parts)
    return predicted_numbers(config) + 2 * model.heads * tokens * task.labels


def _fused(config: "Config") -> bool:
    """Whether steps store no sequence: there is a fused pass for them."""
    risk, model = config.risk, config.model
    if not isinstance(risk, SampledRisk) or risk.precision != "float32":
        return False
    alone = model.softmax and not getattr(model, "self_attention", False) and not model.layers
    linear = isinstance(config.task, LinearRegressionTask | MultiTask)
    offered = alone and linear and risk.integrate not in ("posterior", "context")
    return offered and importlib.util.find_spec("numba") is not None


def _points(config: "Config") -> int:
    """How many points of a run are kept."""
    save = config.save
    steps = getattr(config.flow, "steps", None)
    if isinstance(save, SaveExplicit):
        return len(save.times)
    if not isinstance(save, SaveDrops):
        return save.count if steps is None else min(save.count, steps)
    if steps is None:
        return _DROPS
    return min(steps, TEST_LOOKS if _tests(config) else _LOOKS)


def _largest(config: "Config") -> str:
    """The setting that makes the weights so many."""
    names = ("heads", "rank", "width")
    sizes = {f"model.{name}": getattr(config.model, name, None) for name in names}
    return _name_of_largest(sizes | _task_sizes(config))


def _longest(config: "Config") -> str:
    """The setting that makes sequences so long, or what is computed on them so much."""
    context = {"task.context": config.task.longest_context + 1}
    return _name_of_largest(context | _task_sizes(config) | {"model.heads": config.model.heads})


def _name_of_largest(sizes: dict[str, int | None]) -> str:
    known = {name: size for name, size in sizes.items() if size is not None}
    return max(known, key=lambda name: known[name])


def _task_sizes(config: "Config") -> dict[str, int | None]:
    return {f"task.{name}": getattr(config.task, name, None) for name in ("inputs", "hidden")}

"""How much memory a run needs, so that one that does not fit is refused before it starts.

Every part that grows with a setting is counted. The constants were fitted to measured peaks of runs
near a GiB: `tools/memory_estimates.py` measures them again.
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
"""The bytes that the program itself takes, with its libraries.

**Example:**

```pycon
>>> icl.config.BASE // 2**20
600
```
"""
# Long programs take more to compile: per layer of a stack, for quadratures, for a fused pass, and
# per input for the sums that are written out term by term where labels are drawn.
_LAYER, _QUADRATURE, _FUSED, _TERM = 100 * 2**20, 400 * 2**20, 200 * 2**20, 2**20
# Key of `memory_needed` for the program itself: the name of no setting.
PROGRAM = ""
# Numbers per entry of a covariance: those of inputs and prior, their roots and eigenvectors.
_COVARIANCES = 20
# Copies of the weights in the stages of a solver, and in a descent.
_FLOW_COPIES, _DESCENT_COPIES = 30, 8
# Bytes recorded of one chunk of steps, together with the chunk under way.
_RECORD = 3 * 2**25
# Copies of the saved points of a run while they are joined and written.
_KEPT_COPIES = 4
# Points saved at drops: by a flow, and by a descent with an exact loss.
_DROPS, _LOOKS = 1000, 3000
# Square matrices with one row per feature: the moments, their root and its factors.
_MOMENTS = 9
# Square matrices with one row per head, in risks that are sums over pairs of heads.
_PAIRS = 2
# Extra memory while sequences are drawn, as a multiple of theirs: random words, halves of them,
# normals. The second is for tasks that draw their sequences themselves.
_DRAWING, _SAMPLING = 3, 5
# Square matrices with one row per weight: a Jacobian, what is factorised, its factors.
_JACOBIANS = 3
# Arrays of `JACOBIAN_NUMBERS` numbers at a time.
_COLUMN_ARRAYS = 3


class _Sizes(NamedTuple):
    """The sizes that decide the memory of a run."""

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
    """The estimated bytes that a run needs, by the setting that causes them; those of the program
    itself are under `PROGRAM`.

    **Arguments:**

    - `lanes`: how many runs of a sweep are one program; the estimate is for all of them.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase")
    >>> needed = icl.config.memory_needed(config)
    >>> icl.config.largest_setting(needed)
    'model.heads'
    ```
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
    # These follow one after the other: only the largest counts.
    passing = _passing(config, size, beside)
    if passing:
        name = max(passing, key=lambda name: passing[name])
        add(name, passing[name])
    return needed


def largest_setting(needed: dict[str, float]) -> str:
    """The setting that causes most of what `memory_needed` estimates.

    **Example:**

    ```pycon
    >>> icl.config.largest_setting({"model.heads": 1e9, "task.context": 2e9})
    'task.context'
    ```
    """
    settings = {name: size for name, size in needed.items() if name != PROGRAM}
    return max(settings, key=lambda name: settings[name])


def _long_programs(config: "Config") -> float:
    """Bytes that compiling takes beyond the usual."""
    model = config.model
    exact = config.exact and (model.structured or model.spectral)
    context = getattr(config.risk, "integrate", "") == "context"
    terms = config.task.dim if config.sampled and in_lanes(config) and not model.label_blind else 0
    long = _LAYER * model.layers + _QUADRATURE * (exact or context) + _TERM * terms
    return long + _FUSED * _fused(config)


def _stored(config: "Config", size: _Sizes, lanes: int) -> dict[str, float]:
    """Bytes of sequences that stay in memory, by the setting that causes them."""
    risk = config.risk
    if isinstance(risk, DatasetRisk | MinibatchRisk):
        # Steps pick from one set, and losses are measured on another.
        sets = 2 if isinstance(risk, MinibatchRisk) else 1
        statistics = sets == 1 and (config.model.bilinear or config.model.cubic)
        alive = 1 if statistics else sets * lanes
        return {"risk.sequences": _DOUBLE * alive * risk.sequences * size.stored}
    if tests := _tests(config):
        return {_longest(config): _SINGLE * tests.count * size.stored}
    return {}


def _passing(config: "Config", size: _Sizes, lanes: int) -> dict[str, float]:
    """Bytes that are needed for a while: to draw sequences, to take a step, to measure the loss."""
    risk, model, found = config.risk, config.model, {}
    if isinstance(risk, DatasetRisk | MinibatchRisk):
        drawing = risk.sequences * (_SAMPLING * size.stored + config.task.function_size)
        # For linear attention the moments of a data set are enough.
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
        # In lanes, the memory for drawing is free again when predictions are computed.
        each = (_DRAWING if in_lanes(config) else 1 + _SAMPLING) * size.stored
        each += config.task.function_size + size.gradient
        step = 0 if _fused(config) else bytes_each * lanes * batch * each
        name = "risk.batch" if batch > size.stored else _longest(config)
        found[name] = float(step)
    if tests := _tests(config):
        drawn = tests.count if tests.blocks == 1 else tests.at_once
        times = _DRAWING if isinstance(config.task, LinearRegressionTask) else _SAMPLING
        drawing = drawn * (times * size.stored + config.task.function_size)
        # A part is copied, and may get one more token.
        looking = tests.at_once * (predicted_numbers(config) + 2 * size.stored)
        name = _longest(config)
        found[name] = max(found.get(name, 0.0), _SINGLE * max(drawing, looking))
    if risk.kind in ("large_context", "first_order"):  # one number per pair of heads
        found["model.heads"] = _DOUBLE * lanes * _PAIRS * model.heads**2
    if config.exact and model.cubic:
        found["task"] = _DOUBLE * _MOMENTS * feature_count("cubic", config.task.dim) ** 2
    if isinstance(config.flow, GradientFlow):
        jacobian, rest = _jacobian(config, size, lanes), found.pop("risk.sequences", 0.0)
        found["flow.solver" if jacobian > rest else "risk.sequences"] = jacobian + rest
    return found


def _jacobian(config: "Config", size: _Sizes, lanes: int) -> float:
    """Bytes that the implicit solver needs, in all lanes; 0 where it is never used."""
    solver = getattr(config.flow, "solver")
    small = size.weights <= MAX_IMPLICIT
    if solver == "explicit" or (solver == "auto" and not small):
        return 0.0
    sequences = getattr(config.risk, "sequences", 0)
    statistics = config.model.bilinear or config.model.cubic
    way = max(size.weights, size.circuits, 0 if statistics else sequences * size.gradient // 4)
    columns = min(lanes * size.weights * way, max(JACOBIAN_NUMBERS, lanes * way))
    # "auto" uses it where a flow is slow, or where gradients take nearly all of the time.
    taken = solver == "implicit" or (config.exact and config.model.structured)
    return _DOUBLE * (
        _JACOBIANS * lanes * size.weights**2 + (_COLUMN_ARRAYS * columns if taken else 0)
    )


def _tests(config: "Config") -> HeldOutSize | None:
    """The size of the test set of a run on fresh sequences without an exact loss; else None."""
    if not config.sampled or config.exact_exists:
        return None
    compared = isinstance(config.task, LinearRegressionTask | MultiTask)
    return HeldOutSize.of(config, COMPARED if compared else ALONE)


def _gradient_numbers(config: "Config") -> int:
    """The estimated numbers in memory for one sequence while its gradient is computed."""
    task, model = config.task, config.model
    tokens = task.longest_context + 1
    if model.layers:
        drawn = posterior_numbers(config) if config.sampled else 0
        return 3 * model.layers * model.heads * tokens**2 + drawn
    if not config.sampled:
        return stored_predicted_numbers(config) + 2 * model.heads * tokens * task.labels
    if in_lanes(config):  # linear attention needs the posterior before its products
        parts = product_numbers(config), posterior_numbers(config)
        scores = stored_numbers(config) + 3 * model.heads * tokens
        return scores + sum(parts) if model.softmax else max(parts)
    return predicted_numbers(config) + 2 * model.heads * tokens * task.labels


def _fused(config: "Config") -> bool:
    """Whether steps use a fused pass, which stores no sequences."""
    risk, model = config.risk, config.model
    if not isinstance(risk, SampledRisk) or risk.precision != "float32":
        return False
    alone = model.softmax and not getattr(model, "self_attention", False) and not model.layers
    linear = isinstance(config.task, LinearRegressionTask | MultiTask)
    offered = alone and linear and risk.integrate not in ("posterior", "context")
    return offered and importlib.util.find_spec("numba") is not None


def _points(config: "Config") -> int:
    """How many points of a run are saved."""
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
    """The setting that contributes most to the number of weights."""
    names = ("heads", "rank", "width")
    sizes = {f"model.{name}": getattr(config.model, name, None) for name in names}
    return _name_of_largest(sizes | _task_sizes(config))


def _longest(config: "Config") -> str:
    """The setting that contributes most to the memory per sequence."""
    context = {"task.context": config.task.longest_context + 1}
    return _name_of_largest(context | _task_sizes(config) | {"model.heads": config.model.heads})


def _name_of_largest(sizes: dict[str, int | None]) -> str:
    known = {name: size for name, size in sizes.items() if size is not None}
    return max(known, key=lambda name: known[name])


def _task_sizes(config: "Config") -> dict[str, int | None]:
    return {f"task.{name}": getattr(config.task, name, None) for name in ("inputs", "hidden")}

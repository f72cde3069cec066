"""Which settings go together: kinds of risk, sizes, flows, memory. Each error is one sentence."""

from typing import TYPE_CHECKING

from ..errors import InputError
from ..limits import MAX_FEATURES, RiskFacts, StackFacts, feature_count, find_kinds
from ._kinds import ModelSettings, TaskSettings
from ._limits import GIB, memory_here
from ._memory import PROGRAM, largest_setting, memory_needed
from ._model import MultiSpectralModel
from ._model_linear_stack import LinearStackModel
from ._task import (
    LinearRegressionTask,
    MultiTask,
    RegressionTask,
    SparseTask,
)
from ._task_finite import FiniteTasksTask
from ._training import (
    DatasetRisk,
    GradientDescent,
    GradientFlow,
    MinibatchRisk,
    SampledRisk,
    SaveExplicit,
    SaveLinear,
    SaveLog,
)

if TYPE_CHECKING:
    from ._config import Config


def risk_kinds(task: TaskSettings, model: ModelSettings) -> tuple[str, ...]:
    """The kinds that exist, best first."""
    one_number = model.structured and not getattr(model, "per_coordinate", True)
    blocks = isinstance(task, MultiTask) and task.disjoint and not task.rotated
    facts = RiskFacts(
        form="bilinear" if model.bilinear else "cubic" if model.cubic else "general",
        dim=task.dim,
        moments=task.linear,
        regression=isinstance(task, LinearRegressionTask | FiniteTasksTask | MultiTask),
        blind=model.label_blind,
        scalar=one_number and not model.multi and task.isotropic,
        blocks=model.spectral and blocks,
        stack=stack_facts(task, model),
    )
    return find_kinds(facts)


def stack_facts(task: TaskSettings, model: ModelSettings) -> StackFacts | None:
    """The facts that decide which exact risk a stack of linear attention has."""
    if not isinstance(model, LinearStackModel):
        return None
    return StackFacts(
        weights=model.matrix_shape,
        depth=model.depth,
        moving=model.moving,
        attended=model.self_attention,
        regression=isinstance(task, LinearRegressionTask),
        white=task.white_inputs,
        diagonal=task.diagonal_inputs,
    )


def check(config: "Config") -> None:
    """Refuses settings that do not go together."""
    _check_sizes(config)
    _check_risk(config)
    _check_flow(config)
    _check_save(config)


def _check_sizes(config: "Config") -> None:
    task, model = config.task, config.model
    if isinstance(task, RegressionTask):
        _check_regression(task)
    if isinstance(task, FiniteTasksTask):
        _check_finite(task)
    if isinstance(task, SparseTask) and task.sparsity > task.inputs:
        raise InputError(
            "task.sparsity", task.sparsity, f"must not exceed `task.inputs` = {task.inputs}"
        )
    if isinstance(task, MultiTask):
        last = max(max(read) for read in task.coordinates)
        if last >= task.dim:
            raise InputError(
                "task.inputs",
                task.inputs,
                f"must be at least {last + 1}, because `task.coordinates` go up to {last}",
            )
    if model.multi != isinstance(task, MultiTask):
        several = 'one of "multi_merged", "multi_factored", "multi_structured", "multi_blind" and '
        several += '"multi_spectral"'
        wanted = several if isinstance(task, MultiTask) else "a kind with one label"
        raise InputError(
            "model.kind",
            problem=f'= "{model.kind}" does not fit `task.kind` = "{task.kind}"',
            allowed=f"must be {wanted}",
        )
    if isinstance(model, LinearStackModel):
        _check_stack(model)
    if isinstance(model, MultiSpectralModel) and isinstance(task, MultiTask):
        _check_spectral(task, model)
    if model.widest_rank > task.dim:
        raise InputError(
            "model.rank", model.widest_rank, f"must not exceed the input dimension, {task.dim}"
        )


def _check_spectral(task: MultiTask, model: MultiSpectralModel) -> None:
    if not task.disjoint:
        raise InputError(
            "model.kind",
            problem='= "multi_spectral" needs tasks on coordinates of their own',
            allowed="those of `task.coordinates` must not overlap",
        )
    matrices = model.weights in ("matrices", "tokens")
    if task.rotated and not matrices:
        raise InputError(
            "model.weights",
            problem=f'= "{model.weights}" on a rotated task',
            allowed='must be "matrices" or "tokens", or the task be without its rotation, which '
            "changes no loss",
        )
    if model.weights == "balanced" and (model.key_imbalance or model.value_imbalance):
        name = "key_imbalance" if model.key_imbalance else "value_imbalance"
        allowed = 'must be 0 for `model.weights` = "balanced"'
        raise InputError(f"model.{name}", getattr(model, name), allowed)
    needed = max(task.dim, task.labels)
    if matrices and model.width is not None and model.width < needed:
        raise InputError(
            "model.width",
            model.width,
            f"must be at least {needed}, the number of inputs and of labels, for "
            "matrices with given singular values",
        )


def _check_stack(model: LinearStackModel) -> None:
    """Refuses settings that the weights of a stack do not have: they would be ignored."""
    for name, kinds in (("heads", ("merged", "separate")), ("rank", ("separate",))):
        value = getattr(model, name)
        if value != 1 and model.weights not in kinds:
            allowed = f"must be 1 unless `model.weights` is {_list_choices(kinds)}"
            raise InputError(f"model.{name}", value, allowed)
    if model.moving and model.by_heads:
        allowed = f'must be false for `model.weights` = "{model.weights}"'
        raise InputError("model.moving", True, allowed)
    if model.tied and model.spread:
        allowed = "must be 0 in a loop, which has one set of weights"
        raise InputError("model.spread", model.spread, allowed)
    if model.scheme == "gaussian" and model.spread and not model.by_heads:
        allowed = 'must be 0 unless `model.scheme` is "small_identity": it would be ignored'
        raise InputError("model.spread", model.spread, allowed)
    schemes = {
        "merged": ("gaussian", "small_identity", "balanced", "identity", "paper"),
        "separate": ("gaussian", "balanced", "identity", "paper"),
    }.get(model.weights, ("gaussian", "small_identity"))
    if model.scheme not in schemes:
        allowed = f'must be {_list_choices(schemes)} for `model.weights` = "{model.weights}"'
        raise InputError("model.scheme", model.scheme, allowed)


def _check_exactly_one(task: RegressionTask, first: str, second: str) -> None:
    """Refuses both of two settings, and neither."""
    given = [getattr(task, name) is not None for name in (first, second)]
    if sum(given) != 1:
        found = "both are" if all(given) else "neither is"
        raise InputError(
            f"task.{first}",
            problem=f"and `task.{second}`",
            allowed=f"{found} given, must be exactly one",
        )


def _check_regression(task: RegressionTask) -> None:
    _check_exactly_one(task, "eigenvalues", "covariance")
    if task.prior_covariance is not None and task.prior_variance is not None:
        raise InputError(
            "task.prior_covariance",
            problem="and `task.prior_variance`",
            allowed="both are given, must be at most one",
        )


def _check_finite(task: FiniteTasksTask) -> None:
    _check_exactly_one(task, "tasks", "vectors")
    widths = {len(row) for row in task.vectors or ()}
    if widths - {task.dim}:
        raise InputError(
            "task.vectors",
            problem=f"has rows of {_list_lengths(widths)} numbers",
            allowed=f"must have {task.dim}, one per input",
        )
    if task.tasks is not None and task.clusters is not None and task.clusters > task.tasks:
        raise InputError(
            "task.clusters", task.clusters, f"must not exceed `task.tasks` = {task.tasks}"
        )
    for name in ("clusters", "law", "task_seed", "spread"):
        if (
            task.vectors is not None
            and getattr(task, name) != type(task).model_fields[name].default
        ):
            raise InputError(
                f"task.{name}",
                getattr(task, name),
                "must not be given: `task.vectors` are given, so none are drawn",
            )
    if task.test_covariance is not None and task.test_variance is not None:
        raise InputError(
            "task.test_covariance",
            problem="and `task.test_variance`",
            allowed="both are given, must be at most one",
        )


def _list_lengths(lengths: set[int]) -> str:
    return " and ".join(map(str, sorted(lengths)))


def _check_risk(config: "Config") -> None:
    task, model, kind = config.task, config.model, config.risk.kind
    if task.linear and model.cubic and kind in ("best", "exact"):
        _check_features(config)
    kinds = risk_kinds(task, model)
    if kind not in ("best", *kinds):
        raise InputError(
            "risk.kind",
            problem=f'= "{kind}" does not exist for {_describe_pair(task, model, kind)}',
            allowed=f"must be {_list_choices(kinds)}",
        )
    if isinstance(config.risk, SampledRisk) and config.risk.integrate == "posterior":
        if not task.bayes_known:
            raise InputError(
                "risk.integrate",
                problem='= "posterior" needs the Bayes predictor, which is not known for this '
                f'`task.kind` = "{task.kind}"',
                allowed='must be "auto" or "none"',
            )
    if isinstance(config.risk, DatasetRisk) and config.risk.ridge and not model.bilinear:
        raise InputError(
            "risk.ridge",
            config.risk.ridge,
            f'must be 0 for `model.kind` = "{model.kind}", unless that is reduced linear attention',
        )
    if isinstance(config.risk, MinibatchRisk) and config.risk.batch > config.risk.sequences:
        raise InputError(
            "risk.batch",
            config.risk.batch,
            f"must not exceed `risk.sequences` = {config.risk.sequences}",
        )


def _describe_pair(task: TaskSettings, model: ModelSettings, kind: str) -> str:
    """The model and the task, for a sentence that says which kind of risk they lack."""
    if model.layers:
        return "stacks of attention"
    facts = stack_facts(task, model)
    if facts is not None and facts.regression:
        return facts.words
    if model.spectral:
        return "decomposable attention on a rotated task"
    if model.multi and not model.label_blind:
        return "attention with several labels whose weights depend on them"
    if model.multi:
        return "attention with several labels"
    if not model.softmax:
        return f'linear attention on `task.kind` = "{task.kind}"'
    if model.kind == "structured" and kind == "large_context":
        return "structured attention unless it attends to the context alone, on linear regression"
    if model.kind == "structured":
        return (
            "structured attention unless the covariances of inputs and prior are multiples of the "
            "identity, the prior mean is 0, and there is one ω per head and no self-attention"
        )
    return "softmax attention"


def _list_choices(kinds: tuple[str, ...]) -> str:
    """Kinds as a choice in a sentence: "a", "b" or "c"."""
    quoted = [f'"{kind}"' for kind in kinds]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _check_features(config: "Config") -> None:
    """Refuses linear attention with too many features for an exact risk; other risks still
    exist."""
    model, dim = config.model, config.task.dim
    features = feature_count("cubic", dim)
    if features > MAX_FEATURES:
        name, value = ("kind", "factored") if model.kind == "factored" else ("form", "full")
        raise InputError(
            f"model.{name}",
            problem=f'= "{value}" at input dimension {dim} has {features} features',
            allowed=f"an exact risk exists for {MAX_FEATURES} at most, so `risk.kind` must be "
            '"sampled"',
        )


def _check_flow(config: "Config") -> None:
    if isinstance(config.flow, GradientFlow):
        if config.stochastic:
            raise InputError(
                "flow.kind",
                problem='= "gradient_flow" needs a risk without randomness',
                allowed=f'`risk.kind` must be {_deterministic(config)}, or `flow.kind` "sgd" or '
                '"adam"',
            )
        if config.flow.end is None and not _has_known_end(config):
            name = "softmax" if config.model.softmax else "such"
            raise InputError(
                "flow.end",
                problem="is missing",
                allowed=f"{name} attention has no known smallest loss, so the run must be told "
                "when to end",
            )
    elif isinstance(config.flow, GradientDescent) and config.stochastic:
        raise InputError(
            "flow.kind",
            problem='= "gradient_descent" needs a risk without randomness',
            allowed='with random sequences at every step it must be "sgd" or "adam"',
        )


def _has_known_end(config: "Config") -> bool:
    """Whether the smallest loss that the weights can reach is known."""
    model, task = config.model, config.task
    if not isinstance(model, LinearStackModel):
        return model.bilinear or model.cubic
    facts = stack_facts(task, model)
    exact = facts is not None and facts.regression and facts.method == "spectrum"
    quiet = isinstance(task, LinearRegressionTask) and (task.noise == 0 or model.depth == 1)
    return exact and quiet and not model.moving and config.risk.kind in ("best", "exact")


def _deterministic(config: "Config") -> str:
    kinds = risk_kinds(config.task, config.model)
    return _list_choices(tuple(kind for kind in kinds if kind not in ("minibatch", "sampled")))


def _check_save(config: "Config") -> None:
    save, flow = config.save, config.flow
    end = flow.end if isinstance(flow, GradientFlow) else float(flow.steps)
    if isinstance(save, SaveLinear | SaveLog) and end is None:
        raise InputError(
            "save.kind",
            problem=f'= "{save.kind}" needs a run with a known end',
            allowed='give `flow.end`, or use "drops"',
        )
    if isinstance(save, SaveLog) and end is not None and save.first >= end:
        raise InputError("save.first", save.first, f"must lie before the end, {end:g}")
    if isinstance(save, SaveExplicit):
        times = save.times
        if any(later <= earlier for earlier, later in zip(times, times[1:])):
            raise InputError("save.times", times, "must increase strictly")
        if end is not None and times[-1] > end:
            raise InputError(
                "save.times",
                problem=f"ends at {times[-1]:g}",
                allowed=f"must lie within the run, which ends at {end:g}",
            )


def check_memory(config: "Config") -> None:
    """Refuses a run that would need more memory than this process may take."""
    needed, here = memory_needed(config), memory_here()
    total = sum(needed.values())
    if total <= here.usable:
        return
    words = f"would need about {total / GIB:.3g} GiB of memory, and may take {here.sentence}"
    if needed[PROGRAM] > here.usable:
        raise InputError(f"There is too little memory for any run: one {words}.")
    name = largest_setting(needed)
    section, _, key = name.partition(".")
    value = getattr(getattr(config, section), key) if key else None
    value = ... if value is None else value
    raise InputError(name, value, f"the run {words}", _why(config, name))


def _why(config: "Config", name: str) -> str:
    if name != "flow.solver":
        return "is too large"
    weights = config.model.weight_count(config.task.dim, config.task.labels)
    return f"factorises a matrix with a row for each of {weights} weights"

"""Which kinds of risk exist for a task and a model, without building either."""

from ..limits import RiskFacts, find_kinds
from ._model import ModelSettings
from ._task import LinearRegressionTask, MultiTask, TaskSettings


def risk_kinds(task: TaskSettings, model: ModelSettings) -> tuple[str, ...]:
    """The kinds that exist, best first."""
    one_number = model.structured and not getattr(model, "per_coordinate", True)
    blocks = isinstance(task, MultiTask) and task.disjoint and not task.rotated
    facts = RiskFacts(
        form="bilinear" if model.bilinear else "cubic" if model.cubic else "general",
        dim=task.dim,
        moments=task.linear,
        regression=isinstance(task, LinearRegressionTask | MultiTask),
        blind=model.label_blind,
        scalar=one_number and not model.multi and task.isotropic,
        blocks=model.spectral and blocks,
    )
    return find_kinds(facts)


def describe_pair(task: TaskSettings, model: ModelSettings, kind: str) -> str:
    """The model and the task, as a sentence names them that says which kind of risk they lack."""
    if model.layers:
        return "stacks of attention"
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


def list_choices(kinds: tuple[str, ...]) -> str:
    """Kinds as a choice in a sentence: "a", "b" or "c"."""
    quoted = [f'"{kind}"' for kind in kinds]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)

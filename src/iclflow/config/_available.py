"""Which kinds of risk exist for a task and a model, without building either."""

from ._model import ModelSettings
from ._task import LinearRegressionTask, MultiTask, TaskSettings

ALWAYS = ("dataset", "minibatch", "sampled")


def risk_kinds(task: TaskSettings, model: ModelSettings) -> tuple[str, ...]:
    """The kinds that exist, best first."""
    one_number = model.structured and not getattr(model, "per_coordinate", True)
    alone = one_number and not model.multi and task.isotropic
    linear = (model.bilinear or model.cubic) and task.linear
    blocks = model.spectral and isinstance(task, MultiTask) and task.disjoint and not task.rotated
    kinds = ["exact"] if linear or alone or blocks else []
    if model.label_blind and isinstance(task, LinearRegressionTask | MultiTask):
        kinds.append("large_context")
    if alone:
        kinds.append("first_order")
    return (*kinds, *ALWAYS)


def described(task: TaskSettings, model: ModelSettings, kind: str) -> str:
    """The model and the task as a sentence names them that says that a kind of risk does not exist
    for them."""
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
            "identity, the prior mean is 0, and there is one ω a head and no self-attention"
        )
    return "softmax attention"


def listed(kinds: tuple[str, ...]) -> str:
    """Kinds as a choice in a sentence: "a", "b" or "c"."""
    quoted = [f'"{kind}"' for kind in kinds]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)

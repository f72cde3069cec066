"""What each head does, in a word: of one model, or at all points of a run."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..circuits import Circuits, has_circuits, head_roles
from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask, MultiTaskRegression
from ._components import best_steps, best_strengths, component_circuits
from ._heads import component_strengths
from ._patterns import is_structured

# Less than this share of the best step is no work yet, and of a component none that is learned.
IDLE = 0.05
_LEARNED = 0.1
# Who does this share of what the strongest head does works on the same thing.
_SAME_WORK = 0.1


class RoleNames(NamedTuple):
    """How the heads of models of one kind are named on one task.

    **Fields:**

    - `by`: `"component"` for linear attention, which learns principal components; `"task"` where
      there are several labels; `"sign"` for softmax attention.
    - `best`: the best strength of each component, the best step of each task, or the best step.
    """

    by: Literal["component", "task", "sign"]
    best: np.ndarray

    def at_points(self, found: Circuits) -> np.ndarray:
        """What each head does at each of T points, in a word, (T, H).

        **Arguments:**

        - `found`: circuits at these points, as `component_circuits` gives them.
        """
        if self.by == "task":
            return task_roles(found.omega, found.mu, self.best)
        if self.by == "component":
            return component_roles(component_strengths(found) / self.best)
        return sign_roles(found, float(self.best))


def role_names(task: AbstractTask, model: AbstractModel) -> RoleNames | None:
    """What heads of models like `model` are named by; None where layers build on each other."""
    if isinstance(model, AttentionStack):
        return None
    if isinstance(task, MultiTaskRegression):
        return RoleNames("task", best_steps(task))
    gains = best_strengths(task, model.divides_by)
    if gains is not None and getattr(model, "activation", "linear") == "linear":
        return RoleNames("component", gains)
    return RoleNames("sign", np.asarray(1.0 if gains is None else np.mean(gains)))


def roles(model: AbstractModel, task: AbstractTask) -> tuple[str, ...] | None:
    """What each head of a model does on a task, in a word; None for a model without heads.

    Heads of linear attention are named by the principal components that they work on, those of
    several labels by their tasks, and those of softmax attention by `head_roles`, or
    `"unstructured"` where one number does not describe what they attend to. Who adds next to
    nothing is `"idle"`.
    """
    names = role_names(task, model)
    if names is None or not has_circuits(model):
        return None
    found = component_circuits(model, task)
    one = found._replace(attention=found.attention[None], values=found.values[None])
    with np.errstate(all="ignore"):  # weights that have diverged
        return tuple(names.at_points(one)[0])


def sign_roles(found: Circuits, best: float) -> np.ndarray:
    """The roles of `head_roles` at each point, (T, H): "idle" for all heads as long as they add
    less together than a share of the best step, and "unstructured" where ω says too little."""
    omega, mu = found.omega[..., 0], found.mu[..., 0]
    roles = np.full(omega.shape, "idle", dtype=object)
    structured = is_structured(found)
    for t in np.flatnonzero(found.strength[..., 0].sum(1) >= IDLE * best):
        own = np.asarray(head_roles(omega[t], mu[t]), dtype=object)
        roles[t] = np.where(structured[t] | (own == "dummy"), own, "unstructured")
    return roles


def component_roles(added: Float[np.ndarray, "T H D"]) -> np.ndarray:
    """The components that each head works on, (T, H), from what it adds to their strength as a
    share of the best one, (T, H, D)."""
    return _name_work(component_work(added), "component", None)


def component_work(added: Float[np.ndarray, "T H D"]) -> Bool[np.ndarray, "T H D"]:
    """Which head works on which component, (T, H, D); arguments as for `component_roles`."""
    learned = added.sum(1, keepdims=True) >= _LEARNED
    return learned & (added >= _SAME_WORK * added.max(1, keepdims=True))


def task_roles(
    omega: Float[np.ndarray, "T H I"],
    mu: Float[np.ndarray, "T H I"],
    best: Float[np.ndarray, " I"],
) -> np.ndarray:
    """The tasks that each head works for, (T, H), from ω and μ by head and task, (T, H, I), and
    the best step of each task."""
    main = np.abs(mu * omega).argmax(-1)[..., None]
    negative = np.take_along_axis(omega, main, -1)[..., 0] < 0
    return _name_work(task_work(omega, mu, best), "task", negative)


def task_work(
    omega: Float[np.ndarray, "T H I"],
    mu: Float[np.ndarray, "T H I"],
    best: Float[np.ndarray, " I"],
) -> Bool[np.ndarray, "T H I"]:
    """Which head works for which task, (T, H, I); arguments as for `task_roles`."""
    strength = np.abs(mu * omega)
    taken = strength.sum(1, keepdims=True) >= IDLE * best
    return taken & (strength >= _SAME_WORK * strength.max(1, keepdims=True))


def _name_work(works: np.ndarray, noun: str, negative: np.ndarray | None) -> np.ndarray:
    """For each head the things that it works on, by their numbers from 1."""
    count = works.shape[-1]
    signs = np.zeros(works.shape[:2], bool) if negative is None else negative
    patterns = np.concatenate([works, signs[..., None]], -1).reshape(-1, count + 1)
    kinds, places = np.unique(patterns, axis=0, return_inverse=True)
    words = np.array([_words(kind[:-1], bool(kind[-1]), noun) for kind in kinds], dtype=object)
    return words[places.reshape(-1)].reshape(works.shape[:2])


def _words(works: np.ndarray, negative: bool, noun: str) -> str:
    found = np.flatnonzero(works) + 1
    if found.size == 0:
        return "idle"
    if found.size == 1:
        said = f"{noun} {found[0]}"
    elif found.size == len(works):
        said = f"all {noun}s"
    elif found.size <= 3:
        said = f"{noun}s {', '.join(map(str, found))}"
    else:
        said = f"{found.size} {noun}s"
    return f"negative, {said}" if negative else said

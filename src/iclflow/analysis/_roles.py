"""What a head does, in a word, and what all heads have learned: of one model, or at all points of a
run. Whoever names the roles of heads takes them from here."""

from typing import Any, Literal, NamedTuple

import numpy as np

from ..circuits import circuits, has_circuits, head_roles
from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask, MultiTaskRegression
from ._components import best_steps, best_strengths, component_basis, component_strengths
from ._patterns import is_structured

# Less than this share of the best step is no work yet, and of a component none that is learned.
IDLE = 0.05
_LEARNED = 0.1
# Who does this share of what the strongest head does works on the same thing.
_SAME_WORK = 0.1
# A direction is learned when its strength is so near to the best one, as a share of it, and what
# the model does beside that is a smaller share of it than this.
_OFF_BEST = 0.5
_MIXING = 0.5
# Up to here a direction is untouched, and nearly unmixed.
_UNTOUCHED, _UNMIXED = 0.25, 0.1
# So near to nothing and to the best strength, directions have not begun or are at their end.
_BEGUN, _ENDED = 0.02, 0.1
# Variances that differ by less than this share of the largest are equal.
_ROUNDING = 1e-9


class Directions(NamedTuple):
    """What a linear model does along the directions of its inputs.

    **Fields:**

    - `spaces`: the numbers (from 0) of components with equal variance, one array a variance. Only
      a component that is alone in its space is a direction of its own; in a larger space the
      directions are those of the model.
    - `strengths`: of each direction, as a share of the best one, in the order of `spaces`.
    - `mixing`: the size of all else that the model does with each direction.
    """

    spaces: tuple[np.ndarray, ...]
    strengths: np.ndarray
    mixing: np.ndarray

    @property
    def learned(self) -> np.ndarray:
        near = np.abs(self.strengths - 1) <= _OFF_BEST
        return near & (self.mixing <= _MIXING * np.abs(self.strengths))

    @property
    def orderly(self) -> bool:
        """Whether no direction is far too strong or turned into another."""
        inside = (self.strengths >= -_UNTOUCHED) & (self.strengths <= 1 + _OFF_BEST)
        return bool(np.all(inside & (self.mixing <= _MIXING)))

    @property
    def resting(self) -> bool:
        """Whether no direction is on its way."""
        begun = np.abs(self.strengths) > _BEGUN
        under_way = begun & (np.abs(self.strengths - 1) > _ENDED)
        return not np.any(under_way | (self.mixing > _UNMIXED))

    def between(self, first: int, last: int) -> bool:
        """Whether so many directions are learned, all but so many are untouched, and the others
        are on their way."""
        ordered = np.sort(self.strengths)[::-1]
        known = np.all(ordered[:first] >= 1 - _OFF_BEST)
        return self.orderly and bool(known and np.all(ordered[last:] <= _UNTOUCHED))

    @property
    def settled(self) -> bool:
        """Whether each direction is learned or untouched, as on a plateau."""
        idle = (np.abs(self.strengths) <= _UNTOUCHED) & (self.mixing <= _UNMIXED)
        return bool(np.all(self.learned | idle))


def directions(matrix: np.ndarray, best: np.ndarray, variances: np.ndarray) -> Directions:
    """The directions of the matrix (D, D) that a linear model applies, in the basis of components,
    with the best strength and the variance of each."""
    size = np.sqrt(np.abs(best))
    matrix = matrix / np.outer(size, size)
    same = lambda x: np.abs(np.diff(x)) <= _ROUNDING * np.max(np.abs(x))
    spaces = np.split(np.arange(len(best)), np.flatnonzero(~(same(variances) & same(best))) + 1)
    strengths, mixing = [], []
    for space in spaces:
        block = matrix[np.ix_(space, space)]
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        along = np.zeros((len(best), len(space)))
        along[space] = vectors
        rest = [turned @ along - values * along for turned in (matrix, matrix.T)]
        strengths.append(values)
        mixing.append(np.max(np.linalg.norm(rest, axis=1), axis=0))
    return Directions(tuple(spaces), np.concatenate(strengths), np.concatenate(mixing))


class RoleNames(NamedTuple):
    """How the heads of models of one kind are named on one task.

    **Fields:**

    - `by`: `"component"` for linear attention, which learns principal components; `"task"` where
      there are several labels; `"sign"` for softmax attention.
    - `best`: the best strength of each component, the best step of each task, or the best step.
    """

    by: Literal["component", "task", "sign"]
    best: np.ndarray

    def of(
        self, attention: np.ndarray, values: np.ndarray, omega: np.ndarray, mu: np.ndarray
    ) -> np.ndarray:
        """What each head does at each of T points, in a word, (T, H).

        **Arguments:**

        - `attention`, `values`: the circuits in the coordinates of the task, for components in
          their basis: (T, H, tokens, inputs) and (T, H, labels, tokens).
        - `omega`, `mu`: by head and label, as in `Circuits`, (T, H, labels).
        """
        if self.by == "task":
            return task_roles(omega, mu, self.best)
        if self.by == "component":
            return component_roles(component_strengths(attention, values[:, :, 0]) / self.best)
        return sign_roles(attention, omega[..., 0], mu[..., 0], float(self.best))


def role_names(task: AbstractTask, model: AbstractModel) -> RoleNames | None:
    """What heads of models like `model` are named by; None where layers build on each other."""
    if isinstance(model, AttentionStack):
        return None
    if isinstance(task, MultiTaskRegression):
        return RoleNames("task", best_steps(task))
    normaliser: Any = getattr(model, "normaliser", "context")
    gains = best_strengths(task, normaliser)
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
    found = circuits(model, task, component_basis(task))
    parts = (found.attention, found.values, found.omega, found.mu)
    with np.errstate(all="ignore"):  # weights that ran away
        return tuple(names.of(*(part[None] for part in parts))[0])


def sign_roles(attention: np.ndarray, omega: np.ndarray, mu: np.ndarray, best: float) -> np.ndarray:
    """The roles of `head_roles` at each point, (T, H): "idle" for all heads as long as they add
    less together than a share of the best step, and "unstructured" where ω says too little."""
    strengths = np.abs(mu * omega)
    roles = np.full(omega.shape, "idle", dtype=object)
    structured = is_structured(attention)
    for t in np.flatnonzero(strengths.sum(1) >= IDLE * best):
        found = np.asarray(head_roles(omega[t], mu[t]), dtype=object)
        roles[t] = np.where(structured[t] | (found == "dummy"), found, "unstructured")
    return roles


def component_roles(added: np.ndarray) -> np.ndarray:
    """The components that each head works on, (T, H), from what it adds to their strength as a
    share of the best one, (T, H, D)."""
    return _listed(component_work(added), "component", None)


def component_work(added: np.ndarray) -> np.ndarray:
    """Which head works on which component, (T, H, D); arguments as for `component_roles`."""
    learned = added.sum(1, keepdims=True) >= _LEARNED
    return learned & (added >= _SAME_WORK * added.max(1, keepdims=True))


def task_roles(omega: np.ndarray, mu: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The tasks that each head works for, (T, H), from ω and μ by head and task, (T, H, I), and
    the best step of each task."""
    main = np.abs(mu * omega).argmax(-1)[..., None]
    negative = np.take_along_axis(omega, main, -1)[..., 0] < 0
    return _listed(task_work(omega, mu, best), "task", negative)


def task_work(omega: np.ndarray, mu: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Which head works for which task, (T, H, I); arguments as for `task_roles`."""
    strength = np.abs(mu * omega)
    taken = strength.sum(1, keepdims=True) >= IDLE * best
    return taken & (strength >= _SAME_WORK * strength.max(1, keepdims=True))


def _listed(works: np.ndarray, noun: str, negative: np.ndarray | None) -> np.ndarray:
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

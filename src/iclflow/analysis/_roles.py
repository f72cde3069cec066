"""The role of each head in a word, for one model or at all points of a run."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..circuits import Circuits, has_circuits, head_roles
from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask, MultiTaskRegression
from ._components import best_steps, best_strengths, component_circuits
from ._heads import component_strengths
from ._patterns import Patterns, is_structured, patterns

# All heads are idle until together they take this share of the best step, and no head works on a
# component until they have this share of its best strength.
IDLE = 0.05
"""A head is idle if what it adds is below this share of the best.

**Example:**

```pycon
>>> icl.analysis.IDLE
0.05
```
"""
_LEARNED = 0.1
# A head works on something if it adds at least this share of what the strongest head adds.
_SAME_WORK = 0.1
# More things are counted, not listed, to keep names short.
_MOST_NUMBERS = 3


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
        """The role of each head at each of T points, (T, H).

        **Arguments:**

        - `found`: circuits at these points; see `component_circuits`.
        """
        if self.by == "sign":
            return _sign_roles(found, float(self.best))
        if self.by == "component":
            works = component_work(component_strengths(found) / self.best)
            return _name_work(works, "component", np.zeros(works.shape[:2], bool))
        omega, mu = found.omega, found.mu
        main = np.abs(mu * omega).argmax(-1)[..., None]
        negative = np.take_along_axis(omega, main, -1)[..., 0] < 0
        return _name_work(task_work(omega, mu, self.best), "task", negative)


def role_names(task: AbstractTask, model: AbstractModel) -> RoleNames | None:
    """How heads of models like `model` are named; None for a stack, whose layers build on each
    other.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.analysis.role_names(task, pair).by
    'sign'
    ```
    """
    if isinstance(model, AttentionStack):
        return None
    if isinstance(task, MultiTaskRegression):
        return RoleNames("task", best_steps(task))
    gains = best_strengths(task, model.divides_by)
    if gains is not None and getattr(model, "activation", "linear") == "linear":
        return RoleNames("component", gains)
    return RoleNames("sign", np.asarray(1.0 if gains is None else np.mean(gains)))


def roles(model: AbstractModel, task: AbstractTask) -> tuple[str, ...] | None:
    """The role of each head of a model on a task; None for a model without heads.

    Heads of linear attention are named by the principal components that they work on, heads of
    several labels by their tasks, and heads of softmax attention by `head_roles`, or
    `"unstructured"` if one number does not describe what they attend to. A head that adds almost
    nothing is `"idle"`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.analysis.roles(pair, task)
    ('positive', 'negative')
    ```
    """
    names = role_names(task, model)
    if names is None or not has_circuits(model):
        return None
    found = component_circuits(model, task)
    one = found._replace(attention=found.attention[None], values=found.values[None])
    with np.errstate(all="ignore"):  # weights that have diverged
        return tuple(names.at_points(one)[0])


def named_patterns(
    model: AbstractModel, task: AbstractTask | None, label: int = 0, whole: bool = True
) -> tuple[Patterns, tuple[str, ...]]:
    """What the heads of a model do on one label, and what each is called.

    Heads of one label are called as in `roles`, those of several by their signs on this label.

    **Arguments:**

    - `whole`: whether the heads are the whole model. Otherwise they are named by signs too: what
      they add has no known size, and none is idle.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found, names = icl.analysis.named_patterns(pair, task)
    >>> names, found.count("positive")
    (('positive', 'negative'), 1)
    ```
    """
    measured = patterns(model, label, task=task)
    names = roles(model, task) if whole and task is not None and model.labels == 1 else None
    return measured, tuple(head.name for head in measured.heads) if names is None else names


def _sign_roles(found: Circuits, best: float) -> np.ndarray:
    """The roles of `head_roles` at each point, (T, H); "idle" and "unstructured" as in `roles`."""
    omega, mu = found.omega[..., 0], found.mu[..., 0]
    roles = np.full(omega.shape, "idle", dtype=object)
    structured = is_structured(found)
    for t in np.flatnonzero(found.strength[..., 0].sum(1) >= IDLE * best):
        own = np.asarray(head_roles(omega[t], mu[t]), dtype=object)
        roles[t] = np.where(structured[t] | (own == "dummy"), own, "unstructured")
    return roles


def component_work(added: Float[np.ndarray, "T H D"]) -> Bool[np.ndarray, "T H D"]:
    """Which head works on which component, from what it adds to their strength, as a share of the
    best one.

    **Example:**

    ```pycon
    >>> icl.analysis.component_work(np.array([[[0.98, 0.0], [0.01, 0.7]]]))
    array([[[ True, False],
            [False,  True]]])
    ```
    """
    return _find_work(added, np.asarray(_LEARNED))


def task_work(
    omega: Float[np.ndarray, "T H I"],
    mu: Float[np.ndarray, "T H I"],
    best: Float[np.ndarray, " I"],
) -> Bool[np.ndarray, "T H I"]:
    """Which head works for which task, from its ω and μ on each, and the best step of each task.

    **Example:**

    ```pycon
    >>> omega, mu = np.array([[[0.2, 0.0], [0.0, 0.2]]]), np.array([[[4.0, 0.0], [0.0, 4.0]]])
    >>> icl.analysis.task_work(omega, mu, best=np.array([0.8, 0.8]))
    array([[[ True, False],
            [False,  True]]])
    ```
    """
    return _find_work(np.abs(mu * omega), IDLE * best)


def _find_work(added: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Who works on what: nobody, until all heads together add `least`."""
    begun = added.sum(1, keepdims=True) >= least
    return begun & (added >= _SAME_WORK * added.max(1, keepdims=True))


def _name_work(works: np.ndarray, noun: str, negative: np.ndarray) -> np.ndarray:
    """The names of what each head works on, by numbers from 1."""
    # A run has few different patterns: each is put into words once.
    patterns = np.concatenate([works, negative[..., None]], -1).reshape(-1, works.shape[-1] + 1)
    kinds, places = np.unique(patterns, axis=0, return_inverse=True)
    words = np.array([_words(kind[:-1], bool(kind[-1]), noun) for kind in kinds], dtype=object)
    return words[places.reshape(-1)].reshape(works.shape[:2])


def _words(works: np.ndarray, negative: bool, noun: str) -> str:
    found = np.flatnonzero(works) + 1
    if found.size == 0:
        return "idle"
    if found.size == 1:
        name = f"{noun} {found[0]}"
    elif found.size == len(works):
        name = f"all {noun}s"
    elif found.size <= _MOST_NUMBERS:
        name = f"{noun}s {', '.join(map(str, found))}"
    else:
        name = f"{found.size} {noun}s"
    return f"negative, {name}" if negative else name

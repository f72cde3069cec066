"""What a head does, in a word, at every saved point of a run."""

import numpy as np

from ..analysis import head_roles

# Less than this share of the best step is no work yet, and of a component none that is learned.
_IDLE = 0.05
_LEARNED = 0.1
# Who does this share of what the strongest head does works on the same thing.
_SAME_WORK = 0.1


def sign_roles(omega: np.ndarray, mu: np.ndarray, best: float) -> np.ndarray:
    """The roles of `iclflow.analysis.head_roles` at each point, (T, H), and "idle" for all heads
    as long as they add less together than a share of the best step."""
    strengths = np.abs(mu * omega)
    roles = np.full(omega.shape, "idle", dtype=object)
    for t in np.flatnonzero(strengths.sum(1) >= _IDLE * best):
        roles[t] = head_roles(omega[t], mu[t])
    return roles


def component_roles(added: np.ndarray) -> np.ndarray:
    """The components that each head works on, (T, H), from what it adds to their strength as a
    share of the best one, (T, H, D)."""
    learned = added.sum(1, keepdims=True) >= _LEARNED
    works = learned & (added >= _SAME_WORK * added.max(1, keepdims=True))
    return _listed(works, "component", None)


def task_roles(omega: np.ndarray, mu: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The tasks that each head works for, (T, H), from ω and μ by head and task, (T, H, I), and
    the best step of each task."""
    strength = np.abs(mu * omega)
    taken = strength.sum(1, keepdims=True) >= _IDLE * best
    works = taken & (strength >= _SAME_WORK * strength.max(1, keepdims=True))
    main = strength.argmax(-1)[..., None]
    negative = np.take_along_axis(omega, main, -1)[..., 0] < 0
    return _listed(works, "task", negative)


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

"""Several tasks on coordinate sets that may overlap: how many heads they need; the cost of fewer.

Task i reads S_i. All tasks share the attention of the heads, and each has its own μ_ih. Small heads
give task i a centred step with Γ_i = Σ_h μ_ihW_h and Σ_h μ_ih = 0, so H heads offer the tasks a
space of H − 1 dimensions (arXiv 2503.12734). Derived in docs/theory/softmax.md.
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import Refusal
from ..runtime.precision import check_made_in_float64
from ..tasks import MultiTaskRegression
from ._check import check_whole
from ._softmax_setting import only_length

Regime = Literal["too few", "superposed", "separable"]

# Random starts of the search for shared profiles, beside the one from the singular vectors.
_STARTS = 8


class SharedSteps(NamedTuple):
    """The best that H small heads can do for all tasks together.

    `excess` is the risk of each task beyond the noise of its label. Γ_i is diagonal (in the basis
    where coordinates are read), with diagonal `steps`[i] @ `profiles`.
    """

    excess: Float[np.ndarray, " I"]
    profiles: Float[np.ndarray, "k D"]
    steps: Float[np.ndarray, "I k"]


class _Quadratic(NamedTuple):
    """Excess risk of a centred step with Γ = diag(g): constant − 2b·g + Σ_j curvature_j g_j²."""

    constant: np.ndarray
    b: np.ndarray
    curvature: np.ndarray


def heads_needed(task: MultiTaskRegression) -> int:
    """The smallest number of heads with which every task reaches its debiased-GD floor at once.

    1 + the rank of the coordinate sets: I + 1 for I different tasks that are not combinations of
    one another, fewer where sets coincide.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3], [4, 5]], context=40)
    >>> icl.theory.heads_needed(task)
    4
    >>> icl.theory.heads_needed(icl.MultiTaskRegression([[0, 1], [0, 1]], context=40))
    2
    ```
    """
    return 1 + int(np.linalg.matrix_rank(_masks(task)))


def head_regime(task: MultiTaskRegression, heads: int) -> Regime:
    """The regime of H heads for I ≥ 2 tasks, by `heads_needed` and 2I (arXiv 2503.12734).

    - `"too few"`: below `heads_needed`; some task has a larger loss than alone.
    - `"superposed"`: every task reaches its floor, but there are too few heads for one pair per
      task: heads must serve several tasks.
    - `"separable"`: from 2I on, one pair per task is possible. The loss does not require it: heads
      that mix tasks are as good.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3], [4, 5]], context=40)
    >>> [icl.theory.head_regime(task, heads) for heads in (3, 4, 6)]
    ['too few', 'superposed', 'separable']
    ```
    """
    heads = check_whole("heads", heads)
    if task.labels < 2:
        raise Refusal(
            f"`task` has {task.labels} label: the regimes are about heads shared by several tasks; "
            "must have at least 2."
        )
    if heads < heads_needed(task):
        return "too few"
    return "superposed" if heads < 2 * task.labels else "separable"


def task_floors(task: MultiTaskRegression) -> Float[np.ndarray, " I"]:
    """The excess risk of each task with its own debiased step, given `heads_needed` heads.

    For λ_i = 1/d_i it is A_i/(L − 1 + A_i) with A_i = d_i + 1 + d_iσ².

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3, 4]], context=40, noise=0.1)
    >>> icl.theory.task_floors(task).round(4)
    array([0.0758, 0.0993])
    >>> # A/(L − 1 + A) with A = d + 1 + dσ².
    >>> A = np.array([3.2, 4.3])
    >>> (A / (39 + A)).round(4)
    array([0.0758, 0.0993])
    ```
    """
    form = _quadratic(task)
    return form.constant - np.sum(form.b**2 / form.curvature, axis=1)


def shared_steps(task: MultiTaskRegression, heads: int) -> SharedSteps:
    """The smallest sum of excess risks that `heads` ≥ 2 small heads allow, and its steps.

    Exact in L for small weights. The tasks share H − 1 profiles of Γ; for each choice of profiles
    the steps are a linear solve, and the profiles are found by minimisation from several starts.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3], [4, 5]], context=40)
    >>> for heads in (2, 3, 4):
    ...     print(heads, round(float(icl.theory.shared_steps(task, heads).excess.sum()), 4))
    ...
    2 0.4893
    3 0.2979
    4 0.2275
    >>> round(float(icl.theory.task_floors(task).sum()), 4)
    0.2275
    ```
    """
    count = check_whole("heads", heads, least=2) - 1
    form, best = _quadratic(task), None
    ideal = form.b / form.curvature
    if count >= heads_needed(task) - 1:
        _, sizes, basis = np.linalg.svd(ideal)
        profiles = basis[: int(np.sum(sizes > 1e-12 * sizes[0]))]
        return SharedSteps(task_floors(task), profiles, ideal @ profiles.T)

    def total(flat: np.ndarray):
        profiles = flat.reshape(count, -1)
        steps = _best_steps(form, profiles)
        gap = form.curvature * (steps @ profiles) - form.b
        return np.sum(_excess(form, steps @ profiles)), 2 * (steps.T @ gap).ravel()

    rng = np.random.default_rng(0)
    # The leading directions of the steps that the tasks would take alone, then random starts.
    starts = [np.linalg.svd(ideal)[2][:count], *rng.normal(size=(_STARTS, count, ideal.shape[1]))]
    for start in starts:
        found = scipy.optimize.minimize(
            total, start.ravel(), jac=True, method="BFGS", options={"gtol": 1e-11}
        )
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    profiles = best.x.reshape(count, -1)
    # Profiles are determined up to a change of basis; this one is orthonormal.
    profiles = np.linalg.svd(profiles, full_matrices=False)[2]
    steps = _best_steps(form, profiles)
    return SharedSteps(_excess(form, steps @ profiles), profiles, steps)


def _best_steps(form: _Quadratic, profiles: np.ndarray) -> np.ndarray:
    gram = np.einsum("aj,ij,bj->iab", profiles, form.curvature, profiles)
    return np.linalg.solve(gram, (form.b @ profiles.T)[..., None])[..., 0]


def _excess(form: _Quadratic, diagonal: np.ndarray) -> np.ndarray:
    return form.constant + np.sum((form.curvature * diagonal - 2 * form.b) * diagonal, axis=1)


def _quadratic(task: MultiTaskRegression) -> _Quadratic:
    """With n = L − 1, λ the variance of an entry of β and t = λ|S| + σ² of a label:

    λ|S| − 2(n/L)λ Σ_S g + (n/L²)[(λL + t) Σ_S g² + t Σ_{not S} g²].
    """
    length = only_length(task)
    if length < 2:
        raise Refusal(f"`task` has context length {length}: a centred step needs at least 2.")
    masks = _masks(task)
    signal = np.asarray(task.signal, dtype=np.float64)
    power = signal * masks.sum(1)
    label = power + np.asarray(task.noise, dtype=np.float64)
    kept = (length - 1) / length
    strength = signal[:, None] * masks
    return _Quadratic(power, kept * strength, kept * (strength + label[:, None] / length))


def _masks(task: MultiTaskRegression) -> np.ndarray:
    check_made_in_float64(task=task)
    return np.asarray(task.masks, dtype=np.float64)

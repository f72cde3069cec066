"""The isotropic task of the theory of softmax attention.

Three numbers describe it (arXiv 2503.12734): x, q ~ N(0, I_d), β ~ N(0, I/d), y = β·x + ε with
Var ε = σ², and L labelled pairs. E(β·x)² = 1, so losses are in units of the signal; they include
the noise σ² of the query label.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

from ..errors import Refusal
from ..runtime.precision import check_made_in_float64, float64_enabled
from ..tasks import AbstractRegression, LinearRegression
from ._check import check_number


@dataclass(frozen=True)
class Setting:
    """d, L and σ² of an isotropic task.

    Every function of an isotropic task also takes a `Setting` in its place. A task is a
    distribution that can be sampled, so its length is whole; the formulas hold at every real
    L ≥ 1, and curves over L and limits of large L need those lengths too.

    **Example:**

    ```pycon
    >>> icl.theory.Setting(dim=4, length=40, noise=0.1)
    Setting(dim=4.0, length=40.0, noise=0.1)
    >>> icl.theory.Setting.of(icl.isotropic(dim=4, context=40, noise=0.1))
    Setting(dim=4.0, length=40.0, noise=0.1)
    >>> # The formulas hold at every real length.
    >>> settings = [icl.theory.Setting(4, length, 0.1) for length in (10, 31.6, 100)]
    >>> [round(icl.theory.debiased_optimum(at).risk, 3) for at in settings]
    [0.475, 0.25, 0.152]
    ```
    """

    dim: float
    length: float
    noise: float

    def __post_init__(self):
        for name, least in (("dim", 1), ("length", 1), ("noise", 0)):
            allowed = f"finite and at least {least}"
            value = check_number(name, getattr(self, name), allowed, lambda x: least <= x < np.inf)
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, task: "Isotropic", shortest: float = 1) -> "Setting":
        """The numbers of a task with Λ = I, E[ββᵀ] = I/d, one context length and a noisy query.

        Other tasks are refused.

        **Arguments:**

        - `shortest`: the smallest L that the formula holds for.
        """
        at = task if isinstance(task, Setting) else _read(task)
        if at.length < shortest:
            raise Refusal(f"`length` = {at.length:g}: must be finite and at least {shortest:g}.")
        return at

    @property
    def across(self) -> float:
        """(d − 1)/d + σ²: the variance of a label without its part along the query."""
        return (self.dim - 1) / self.dim + self.noise

    @property
    def spread(self) -> float:
        """a = (1 + σ²)/L, the variance of the average over all labels."""
        return (1 + self.noise) / self.length


Isotropic = LinearRegression | Setting


def _read(task: LinearRegression) -> Setting:
    if not isinstance(task, LinearRegression):
        raise Refusal(
            f"`task` is a {type(task).__name__}: must be an isotropic `LinearRegression`."
        )
    check_made_in_float64(task=task)
    # NumPy, not `task.weight_second_moment`: every call comes here, and JAX would be slow.
    mean = np.asarray(task.prior_mean)
    second_moment = np.asarray(task.prior_covariance) + np.outer(mean, mean)
    # 1/d is rounded by the precision of the task.
    tolerance = 1e-10 if float64_enabled() else 1e-6
    for matrix in (np.asarray(task.covariance), second_moment * task.dim):
        if np.max(np.abs(matrix - np.eye(task.dim))) > tolerance:
            raise Refusal(
                "`task` is not isotropic: inputs must have covariance I and task vectors "
                "E[ββᵀ] = I/d."
            )
    if not task.noisy_query and float(task.noise) > 0:
        raise Refusal("`task` has a noiseless query: losses here include its noise σ².")
    return Setting(task.dim, only_length(task), float(task.noise))


def only_length(task: AbstractRegression) -> int:
    """The one context length of a task."""
    if len(task.contexts) != 1:
        raise Refusal(f"`task` has the lengths {task.contexts}: must have one context length.")
    return task.contexts[0]


def check_softmax_heads(omega: ArrayLike, mu: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of the heads, one finite number each."""
    omega, mu = np.asarray(omega, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    if omega.ndim != 1 or omega.shape != mu.shape or not len(omega):
        raise Refusal(
            f"`omega` has shape {omega.shape} and `mu` {mu.shape}: both must be one number per "
            "head."
        )
    if not (np.all(np.isfinite(omega)) and np.all(np.isfinite(mu))):
        raise Refusal("`omega` or `mu` holds NaN or infinity: every entry must be finite.")
    return omega, mu

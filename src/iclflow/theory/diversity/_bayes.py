"""Reference lines of Bayes: two tasks exactly, how many tasks a context can tell apart, distances.

dMMSE weighs the K tasks by e^{−|y − Xᵀw_k|²/2σ²} (arXiv 2306.15063). With many random tasks it is a
decoder of a random code: it finds the task while ln K < I, the information in a context, and is
ridge regression beyond (a conjecture, checked by sampling; docs/theory/diversity.md).
"""

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_number, check_numbers, check_positive, check_whole
from .._softmax_setting import only_length
from ._components import components
from ._label_blind import Sampled, chi_squared_rule, label_linear_limit
from ._types import Numbers, Vector

# A standard normal number, by the trapezoidal rule.
_NORMAL = np.arange(-12.0, 12.0, 0.01)


def two_tasks_risk(task: LinearRegression, first: Vector, second: Vector) -> float:
    """The Bayes risk with two tasks, equally often: σ² + D E[(1 + e^{r²/2 + rz})⁻²].

    D = (w₁ − w₂)ᵀΛ(w₁ − w₂), r² = Dχ²_N/σ², z standard normal.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=6, noise=0.5)
    >>> round(icl.theory.diversity.two_tasks_risk(task, [1.0, 0.0], [0.0, 1.0]), 9)
    0.536611574

    ```
    """
    vectors = [check_numbers(name, w, 1, (task.dim,)) for name, w in
               (("first", first), ("second", second))]  # fmt: skip
    gap = vectors[0] - vectors[1]
    distance = float(gap @ np.asarray(task.covariance, dtype=np.float64) @ gap)
    noise, length = float(task.noise), only_length(task)
    if not noise > 0:
        return float(task.query_noise)
    chi, weights = chi_squared_rule(length)
    real = weights > 0
    r = np.sqrt(distance / noise * chi[real])[:, None]
    # The wrong task has the weight 1/(1 + e^{r²/2 + rz}); written without overflow.
    wrong = np.exp(-2 * np.logaddexp(0, r**2 / 2 + r * _NORMAL))
    normal = np.exp(-(_NORMAL**2) / 2) * (_NORMAL[1] - _NORMAL[0]) / np.sqrt(2 * np.pi)
    return float(task.query_noise) + distance * float(weights[real] @ (wrong @ normal))


def code_information(task: LinearRegression) -> float:
    """I = ½E ln det(1 + XᵀMX/σ²) in nats, at large size: tasks are told apart up to ln K = I.

    ½[Σ_j ln(1 + Nm_j/θ) + N ln(θ/σ²) − N(θ − σ²)/θ], with θ of `label_linear_limit`; `task` has the
    prior M that tasks are drawn from.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(8), context=15, noise=0.25), np.eye(8))
    >>> information = icl.theory.diversity.code_information(task)
    >>> round(information, 4), f"K = 2^{information / np.log(2):.1f}"
    (15.1826, 'K = 2^21.9')

    ```
    """
    theta, m = label_linear_limit(task)
    noise, length = float(task.noise), only_length(task)
    seen = np.sum(np.log1p(length * m / theta))
    return float(seen + length * np.log(theta / noise) - length * (theta - noise) / theta) / 2


def code_information_sampled(task: LinearRegression, samples: int = 2000, seed: int = 0) -> Sampled:
    """The same at finite size, by sampling contexts.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(8), context=15, noise=0.25), np.eye(8))
    >>> found = icl.theory.diversity.code_information_sampled(task)
    >>> print(f"{found.value:.2f} +- {found.error:.2f}")
    15.0 +- 0.0

    ```
    """
    m, length, noise = components(task).variances, only_length(task), float(task.noise)
    if not noise > 0:
        raise Refusal("`task` must have noise: without it a context tells all tasks apart.")
    count = check_whole("samples", samples, 2)
    rng = np.random.default_rng(check_whole("seed", seed, 0))
    scaled = rng.standard_normal((count, len(m), length)) * np.sqrt(m / noise)[:, None]
    gram = scaled @ scaled.transpose(0, 2, 1) + np.eye(len(m))
    values = np.linalg.slogdet(gram)[1] / 2
    return Sampled(float(values.mean()), float(values.std(ddof=1) / np.sqrt(count)))


def distance_on_own_tasks(loss: Numbers, bayes: float, dim: int) -> Float[np.ndarray, "..."]:
    """Δ = (1/d)E(ŷ − ŷ_Bayes)² = (L − L_Bayes)/d, the distance of arXiv 2306.15063 to the predictor
    that is Bayes for the tasks on which L is measured.

    To ridge regression on Gaussian tasks, to dMMSE on the training tasks: the error of the Bayes
    predictor is uncorrelated with everything that the context says. On the tasks of the other
    predictor the distance needs sampling.

    ```pycon
    >>> float(icl.theory.diversity.distance_on_own_tasks(1.35, 0.55, 8))
    0.1

    ```
    """
    best = check_positive("bayes", bayes)
    losses = check_numbers("loss", loss)
    check_number("loss", losses.min(), f"at least that of Bayes, {best:g}", lambda x: x >= best)
    return np.asarray((losses - best) / check_whole("dim", dim))

"""Where training on n sequences ends, for many n at once: least squares and ridge regression on the
features of reduced linear attention, with exact losses on tests."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.random as jr
import numpy as np
import scipy
from jaxtyping import Float, Int, PRNGKeyArray

from ..errors import InputError
from ..tasks import (
    AbstractTask,
    FiniteTasks,
    LinearRegression,
    check_count,
    check_nonnegative,
    same_moments,
)
from ._test_losses import task_operator

# Sequences of features that are made at a time: bounds the memory of what is drawn.
_DRAWN = 4096
# Steps of the solution: the second gives back what products of features lose; one more to be sure.
_REFINEMENTS = 3


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """Losses at the end of training, by the number of sequences.

    **Fields:**

    - `counts`: n.
    - `matrices`: A of each; below the number of features, D², and without a ridge that of least
      norm among all that fit.
    - `train`: the mean squared error on the n sequences, without the penalty.
    - `idg`: on fresh sequences of the training tasks.
    - `icl`: on unseen tasks.
    - `other`: on another distribution; None if none was asked for.
    """

    counts: Int[np.ndarray, " n"]
    matrices: Float[np.ndarray, "n D D"]
    train: Float[np.ndarray, " n"]
    idg: Float[np.ndarray, " n"]
    icl: Float[np.ndarray, " n"]
    other: Float[np.ndarray, " n"] | None = None


def learning_curve(
    task: AbstractTask,
    counts: Sequence[int],
    key: PRNGKeyArray | None = None,
    ridge: float = 0.0,
    other: AbstractTask | None = None,
) -> LearningCurve:
    """The ends of training reduced linear attention on n sequences of a task, for several n.

    The smaller data sets are the beginnings of the largest one. Gradient flow of merged attention
    from small weights ends there, and so does every flow whose weights can make each A, where n is
    above D² or there is a ridge.

    **Example:**

    ```pycon
    >>> task = icl.FiniteTasks.draw(jr.key(0), 4, icl.isotropic(4, context=8, noise=0.1))
    >>> curve = icl.analysis.learning_curve(task, [8, 16, 400])
    >>> bool(curve.icl[1] > 2 * max(curve.icl[0], curve.icl[2]))  # worst where n = D² = 16
    True
    ```

    **Arguments:**

    - `task`: that of the training, such as `FiniteTasks`.
    - `counts`: n of each, increasing.
    - `key`: draws the sequences; by default `jax.random.key(0)`.
    - `ridge`: η, for a penalty η‖A‖² beside the mean squared error.
    - `other`: a further test distribution.
    """
    sizes = [check_count("counts", count) for count in counts]
    if not sizes or sizes != sorted(set(sizes)):
        raise InputError("counts", counts, "must be whole numbers from 1 up, increasing")
    penalty = check_nonnegative("ridge", ridge)
    laws = [task, task.fresh if isinstance(task, FiniteTasks) else task]
    laws += [] if other is None else [other]
    for law in laws:
        if not isinstance(same_moments(law), LinearRegression):
            raise TypeError(
                f"A {type(law).__name__} has no exact losses here: must be a LinearRegression or "
                "FiniteTasks."
            )
    rows, labels = _draw_features(task, sizes[-1], jr.key(0) if key is None else key)
    found = list(_solve_all(rows, labels, sizes, penalty))
    train = [np.mean((labels[:n] - rows[:n] @ packed) ** 2) for n, packed in zip(sizes, found)]
    matrices = np.reshape(found, (-1, task.dim, task.dim))
    losses = [_exact(matrices, law) for law in laws]
    return LearningCurve(np.asarray(sizes), matrices, np.asarray(train), *losses)


def _exact(matrices: np.ndarray, task: AbstractTask) -> Float[np.ndarray, " n"]:
    law = same_moments(task)
    assert isinstance(law, LinearRegression)
    return task_operator(matrices, law).risk(law.weight_second_moment)


def _draw_features(
    task: AbstractTask, count: int, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "n F"], Float[np.ndarray, " n"]]:
    """β ⊗ x_q of each sequence, and the labels."""
    rows, labels = [], []
    for block in range(-(-count // _DRAWN)):
        drawn = jax.tree.map(np.asarray, task.sample(jr.fold_in(key, block), _DRAWN))
        beta = np.einsum("pnd,pn->pd", drawn.x, drawn.y[..., 0]) / drawn.length[:, None]
        product = beta[:, :, None] * drawn.x_query[:, None, :]
        rows.append(product.reshape(len(beta), -1))
        labels.append(drawn.y_query[:, 0])
    return np.concatenate(rows)[:count], np.concatenate(labels)[:count]


def _solve_all(
    rows: np.ndarray, labels: np.ndarray, sizes: Sequence[int], ridge: float
) -> Iterator[Float[np.ndarray, " F"]]:
    """The packed A of each data set, the first n rows."""
    few = [n for n in sizes if n <= rows.shape[1]]
    for solve, part in ((_solve_few, few), (_solve_many, sizes[len(few) :])):
        try:
            # Listed at once: an error in one of them is one of all.
            yield from list(solve(rows, labels, part, ridge))
        except np.linalg.LinAlgError:
            yield from (_shortest(rows[:n], labels[:n], ridge) for n in part)


def _solve_few(
    rows: np.ndarray, labels: np.ndarray, sizes: Sequence[int], ridge: float
) -> Iterator[Float[np.ndarray, " F"]]:
    """For at most as many sequences as features: from the products of sequences."""
    most = max(sizes, default=0)
    gram = rows[:most] @ rows[:most].T
    # Without a ridge the factor of a data set is the beginning of that of the largest.
    whole = None if ridge else np.linalg.cholesky(gram)
    for n in sizes:
        x, y, penalty = rows[:n], labels[:n], n * ridge
        if whole is None:
            lower = np.linalg.cholesky(gram[:n, :n] + penalty * np.eye(n))
        else:
            lower = whole[:n, :n]
        left = lambda weight: y - x @ (x.T @ weight) - penalty * weight
        yield x.T @ _solve(lower, left, n)


def _solve_many(
    rows: np.ndarray, labels: np.ndarray, sizes: Sequence[int], ridge: float
) -> Iterator[Float[np.ndarray, " F"]]:
    """For more sequences than features: from the products of features."""
    features, used = rows.shape[1], 0
    moments = np.zeros((features, features))
    for n in sizes:
        moments += rows[used:n].T @ rows[used:n]
        used, x, y, penalty = n, rows[:n], labels[:n], n * ridge
        lower = np.linalg.cholesky(moments + penalty * np.eye(features))
        left = lambda packed: x.T @ (y - x @ packed) - penalty * packed
        yield _solve(lower, left, features)


def _solve(
    lower: np.ndarray, left: Callable[[np.ndarray], np.ndarray], size: int
) -> Float[np.ndarray, " size"]:
    """The zero of `left`, which is linear, with LLᵀ as its slope.

    One step would do, but products of features lose half of all digits; more steps, each from what
    is left, give them back.
    """
    found = np.zeros(size)
    for _ in range(_REFINEMENTS):
        half = scipy.linalg.solve_triangular(lower, left(found), lower=True)
        found = found + scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
    return found


def _shortest(rows: np.ndarray, labels: np.ndarray, ridge: float) -> Float[np.ndarray, " F"]:
    """The same by singular values, which takes longer: also for features without full rank."""
    count, features = rows.shape
    wide = np.concatenate([rows, (count * ridge) ** 0.5 * np.eye(features)])
    return np.linalg.lstsq(wide, np.append(labels, np.zeros(features)))[0]

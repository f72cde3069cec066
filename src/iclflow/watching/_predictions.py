"""Predictions of other people's models, checked and brought into one shape."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")
# predict(x, y, x_query), for a batch, as NumPy arrays: x (n, N, D), y (n, N) or (n, N, I) for
# several labels, x_query (n, D).
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


class PredictionError(Exception):
    """Predictions that cannot be used; its text is one sentence.

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> task = icl.isotropic(dim=3, context=10)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(7), every=1, strict=True)
    >>> try:
    ...     watch(0)
    ... except watching.PredictionError as error:
    ...     print("shape" in str(error))
    True
    ```
    """


class Predictions(NamedTuple):
    """What a model predicts on a batch.

    **Fields:**

    - `query`: (n, I).
    - `positions`: (n, N + 1, I), of causal models: entry l is predicted from the first l pairs, for
      the next input; the last is `query`. None for other models.
    """

    query: np.ndarray
    positions: np.ndarray | None


def call(predict: Predict, x: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> Predictions:
    """Calls a model with the context, and checks what it returns.

    **Arguments:**

    - `y`: (n, N, I); models of one label get it without the last axis.
    """
    labels = y.shape[-1]
    try:
        # A copy: a model that changes its input must not change the evaluation set.
        raw = predict(x.copy(), y[..., 0].copy() if labels == 1 else y.copy(), x_query.copy())
    except Exception as error:
        words = " ".join(str(error).split())
        raise PredictionError(f"`predict` raised {type(error).__name__}: {words[:300]}.") from error
    return check_shape(to_numpy(raw), len(x), x.shape[1], labels)


def to_numpy(raw: Any, giver: str = "predict") -> np.ndarray:
    """An array of any library as NumPy's float64; tensors are copied from their device. Errors say
    who returned it."""
    try:
        if hasattr(raw, "detach"):  # a tensor of PyTorch, of any device and kind of number
            raw = raw.detach().cpu()
            # NumPy knows no bfloat16. Complex numbers would lose a part without a word.
            raw = raw.numpy() if raw.is_complex() else raw.double().numpy()
        array = np.asarray(raw)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"numbers of the kind {array.dtype}")
        return array.astype(float)
    except Exception as error:
        words = " ".join(str(error).split())
        raise PredictionError(
            f"`{giver}` returned a {type(raw).__name__} that is no array of real numbers: "
            f"{words[:200]}."
        ) from error


def check_shape(array: np.ndarray, count: int, context: int, labels: int) -> Predictions:
    """Predictions of the query, or at every position, from an array of one of the shapes."""
    several = (count, context + 1, labels)
    if array.shape == (count, labels) or (labels == 1 and array.shape == (count,)):
        return Predictions(_check_finite(array.reshape(count, labels)), None)
    if array.shape == several or (labels == 1 and array.shape == several[:2]):
        positions = _check_finite(array.reshape(several))
        return Predictions(positions[:, -1], positions)
    one = f"({count},)" if labels == 1 else f"({count}, {labels})"
    every = several[:2] if labels == 1 else several
    raise PredictionError(
        f"`predict` returned the shape {array.shape}: must be {one} for the query, or {every} for "
        "the prediction at every position."
    )


def _check_finite(array: np.ndarray) -> np.ndarray:
    wrong = int(np.sum(~np.isfinite(array)))
    if wrong:
        raise PredictionError(
            f"`predict` returned {wrong} of {array.size} predictions that are not finite."
        )
    return array


def double(tree: T) -> T:
    """A task or a model by its values, in float64."""
    return jax.tree.map(_as_double, tree)


def _as_double(leaf: Any) -> Any:
    floating = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(float) if floating else leaf

"""Tasks of other people: anything with a method `sample`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..tasks import AbstractTask, Sequences, is_real
from ._predictions import shorten_text, to_numpy

_WHAT = "must return (x, y, x_query, y_query) of the shapes (n, N, D), (n, N), (n, D) and (n,)"


class _Source:
    """Somebody else's task, equal to itself alone: JAX compares what it compiles for, and a data
    class that holds arrays cannot be compared."""

    def __init__(self, task: Any):
        self.task = task


class ForeignTask(AbstractTask):
    """A task that is known by its samples alone: it has no Bayes predictor."""

    source: _Source = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)
    noise: float | None = eqx.field(static=True)

    def __init__(self, source: Any):
        self.source, self.noise = _Source(source), _find_noise(source)
        x, y, *_ = parts = _draw(source, 0, 2)
        if not all(map(np.array_equal, parts, _draw(source, 0, 2))):
            raise InputError(
                "`task.sample(seed, count)` returned other sequences for the same seed: must "
                "return the same ones, or no training could be resumed."
            )
        self.sizes = (x.shape[2], y.shape[2], x.shape[1])

    @property
    def dim(self) -> int:
        return self.sizes[0]

    @property
    def labels(self) -> int:
        return self.sizes[1]

    @property
    def max_context(self) -> int:
        return self.sizes[2]

    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1] % 2**31)
        drawn = _draw(self.source.task, seed, count)
        found = (drawn[0].shape[2], drawn[1].shape[2], drawn[0].shape[1])
        if found != self.sizes:
            names = [f"{name} = {size}" for name, size in zip(("D", "labels", "N"), found)]
            raise InputError(
                f"`task.sample({seed}, {count})` returned sequences with {', '.join(names)}, and "
                f"others for another seed or count: must be the same sizes always."
            )
        x, y, x_query, y_query = (jnp.asarray(part) for part in drawn)
        return Sequences(x, y, x_query, y_query, jnp.full(count, float(self.max_context)))

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        raise TypeError("The Bayes predictor of this task is not known.")

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        raise TypeError("The Bayes predictor of this task is not known.")


def as_task(task: Any) -> AbstractTask:
    """One of our tasks as it is; anything else with `sample(seed, count)` in a wrapper."""
    if isinstance(task, AbstractTask):
        return task
    if not callable(getattr(task, "sample", None)):
        raise InputError(
            f"`task` is a {type(task).__name__}: must be a task of iclflow, or have a method "
            f"`sample(seed, count)`, which {_WHAT}."
        )
    return ForeignTask(task)


def _find_noise(source: Any) -> float | None:
    """The variance of the noise of labels, if a task says it."""
    noise: Any = getattr(source, "noise", None)
    return float(noise) if is_real(noise) and 0 <= noise < np.inf else None


def _draw(source: Any, seed: int, count: int) -> tuple[np.ndarray, ...]:
    """Sequences as NumPy arrays, labels with an axis of their own."""
    try:
        x, y, x_query, y_query = (
            to_numpy(part, "task.sample") for part in source.sample(seed, count)
        )
    except Exception as error:
        words = f"{type(error).__name__}: {shorten_text(error, 300)}"
        raise InputError(f"`task.sample({seed}, {count})` {_WHAT}: it raised {words}.") from error
    if y.ndim == 2:
        y = y[..., None]
        y_query = y_query[:, None] if y_query.ndim == 1 else y_query
    good = x.ndim == 3 and len(x) == count and y.ndim == 3 and y.shape[:2] == x.shape[:2]
    if not (good and x_query.shape == (count, x.shape[2]) and y_query.shape == (count, y.shape[2])):
        shapes = ", ".join(str(part.shape) for part in (x, y, x_query, y_query))
        raise InputError(f"`task.sample({seed}, {count})` {_WHAT}; it gave {shapes}.")
    if not all(np.all(np.isfinite(part)) for part in (x, y, x_query, y_query)):
        raise InputError(f"`task.sample({seed}, {count})` returned numbers that are not finite.")
    return x, y, x_query, y_query

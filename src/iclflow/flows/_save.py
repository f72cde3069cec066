"""Which points of a run are saved."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from ..errors import InputError
from ..tasks import is_whole

# Early in a run the range of its losses is rounding noise: this share of the loss is no movement.
_NOISE = 1e-9


@dataclasses.dataclass(frozen=True)
class SaveEvenly:
    """`count` equally spaced moments, the first and the last included.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> icl.gradient_flow(model, icl.risk(task, model), end=20.0, save=icl.SaveEvenly(3)).times
    array([ 0., 10., 20.])
    ```
    """

    count: int = 200


@dataclasses.dataclass(frozen=True)
class SaveLogSpaced:
    """The start, then `count` moments in equal ratios from `first` to the end.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> save = icl.SaveLogSpaced(3, first=0.2)
    >>> icl.gradient_flow(model, icl.risk(task, model), end=20.0, save=save).times.round(3)
    array([ 0. ,  0.2,  2. , 20. ])
    ```
    """

    count: int = 200
    first: float = 1.0


@dataclasses.dataclass(frozen=True)
class SaveAtTimes:
    """The start, and exactly these moments.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> times = icl.SaveAtTimes([1.0, 5.0, 20.0])
    >>> icl.gradient_flow(model, icl.risk(task, model), end=20.0, save=times).times
    array([ 0.,  1.,  5., 20.])
    ```
    """

    times: tuple[float, ...]

    def __init__(self, times: ArrayLike | Sequence[float]):
        try:
            moments = np.atleast_1d(np.asarray(times, float))
        except (TypeError, ValueError):
            raise InputError("times", times, "must be numbers") from None
        # A frozen dataclass cannot be assigned to in its own constructor either.
        object.__setattr__(self, "times", tuple(moments.tolist()))


@dataclasses.dataclass(frozen=True)
class SaveAtDrops:
    """Dense where the loss moves, sparse where it does not.

    A point is kept if, since the last one that was kept, the loss changed by more than `loss` of
    its whole range so far, or the clock by more than the share `clock` of its reading.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> risk = icl.risk(task, model)
    >>> fine = icl.gradient_flow(model, risk, save=icl.SaveAtDrops(loss=1e-3))
    >>> coarse = icl.gradient_flow(model, risk, save=icl.SaveAtDrops(loss=1e-1, clock=1.0))
    >>> len(fine) > len(coarse)
    True
    ```
    """

    loss: float = 2e-3
    clock: float = 1e-2


SavePoints = SaveEvenly | SaveLogSpaced | SaveAtTimes | SaveAtDrops


def save_times(save: SavePoints, end: float | None) -> np.ndarray | None:
    """The moments after the start that `save` fixes; None for `SaveAtDrops`, which fixes none."""
    if isinstance(save, SaveAtDrops):
        return None
    if not isinstance(save, SaveEvenly | SaveLogSpaced | SaveAtTimes):
        raise TypeError(
            f"`save` = {save!r}: must be `SaveAtDrops()`, `SaveEvenly(count)`, "
            "`SaveLogSpaced(count, first)` or `SaveAtTimes(times)`."
        )
    if isinstance(save, SaveAtTimes):
        times = np.asarray(save.times)
        if times.size == 0 or not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
            raise ValueError("`save`: explicit times must be finite and increase strictly.")
        if times[0] < 0 or (end is not None and times[-1] > end):
            raise ValueError(
                f"`save`: times run from {times[0]:g} to {times[-1]:g}: must lie within the run."
            )
        return times[times > 0]
    if not is_whole(save.count) or save.count < 2:
        raise InputError("save.count", save.count, "must be a whole number from 2 up")
    if end is None:
        problem = "needs a run with a known end"
        raise InputError("save", save, "give one, or use SaveAtDrops()", problem)
    if isinstance(save, SaveEvenly):
        return np.linspace(0.0, end, save.count)[1:]
    if not 0 < save.first < end:
        raise InputError("save.first", save.first, f"must lie between 0 and the end, {end:g}")
    return np.geomspace(save.first, end, save.count)


class Thinned(NamedTuple):
    """The last point that was kept, and the range of the loss so far."""

    time: Float[Array, ""]
    loss: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


class Thinning(eqx.Module):
    """The rule of `SaveAtDrops` inside a compiled program.

    Its numbers are arrays: other numbers do not compile another program.
    """

    share: Float[Array, ""]
    clock: Float[Array, ""]

    @staticmethod
    def of(save: SavePoints) -> "Thinning | None":
        """The rule for `save`; None if `save` fixes the moments."""
        if not isinstance(save, SaveAtDrops):
            return None
        return Thinning(jnp.asarray(save.loss, float), jnp.asarray(save.clock, float))

    def look(
        self, before: Thinned, time: Float[Array, ""], loss: Float[Array, ""]
    ) -> tuple[Thinned, Bool[Array, ""]]:
        """The state after the next point, and whether that point is kept."""
        # The range so far: the range of the whole run is not known yet.
        low, high = jnp.minimum(before.low, loss), jnp.maximum(before.high, loss)
        least = jnp.maximum(self.share * (high - low), _NOISE * jnp.abs(loss))
        moved = jnp.abs(loss - before.loss) > least
        kept = moved | (time - before.time > self.clock * time)
        choose = lambda new, old: jnp.where(kept, new, old)
        return Thinned(choose(time, before.time), choose(loss, before.loss), low, high), kept

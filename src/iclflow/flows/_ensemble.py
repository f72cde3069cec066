"""The runs of an ensemble, and how models of one shape become one."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key

from ..errors import InputError
from ..models import AbstractModel
from ..tasks import check_key
from ..trajectory import Result, Trajectory
from ._layout import Layout


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """The runs of an ensemble, in the order of their models. A run that was cancelled before it
    started has no points.

    The points of all runs are stored one run after the other: a sweep has thousands of runs, and
    most readers need only their ends.

    **Fields:**

    - `clock`: as in `Trajectory`, the same for all runs.
    - `offsets`: where the points of each run begin, followed by the number of all points.
    - `times`, `losses`, `weights`: of all points.
    - `results`, `statistics`: of each run.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> start = lambda key: icl.Attention.merged(key, dim=2, heads=1)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 3))
    >>> runs = icl.gradient_flow_ensemble(models, icl.risk(task, start(jr.key(0))))
    >>> len(runs), {run.result.name for run in runs}, runs[0].final.coefficients().shape
    (3, {'converged'}, (2, 2))
    ```
    """

    layout: Layout
    clock: str
    offsets: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    results: tuple[Result, ...]
    statistics: tuple[Mapping[str, Any], ...]

    @staticmethod
    def of(runs: Sequence[Trajectory]) -> "Ensemble":
        """Joins runs of one shape."""
        if not runs:
            raise InputError("runs", problem="is empty", allowed="an ensemble has at least one run")
        kinds = [(run.clock, *(x.shape[1:] for x in jax.tree.leaves(run.models))) for run in runs]
        if any(kind != kinds[0] for kind in kinds):
            raise InputError(
                "runs",
                problem="differ in shape",
                allowed="those of an ensemble have one kind and size",
            )
        layout = Layout.of(runs[0].at(0))
        return Ensemble(
            layout,
            runs[0].clock,
            np.append(0, np.cumsum([len(run) for run in runs])),
            np.concatenate([run.times for run in runs]),
            np.concatenate([run.losses for run in runs]),
            np.concatenate([layout.vectors(run.models) for run in runs]),
            tuple(run.result for run in runs),
            tuple(run.statistics for run in runs),
        )

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Trajectory:
        index = range(len(self))[index]
        own = slice(self.offsets[index], self.offsets[index + 1])
        models = self.layout.models(self.weights[own])
        statistics = dict(self.statistics[index])
        result = self.results[index]
        return Trajectory(self.times[own], self.losses[own], models, self.clock, result, statistics)

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(len(self)))

    @property
    def runs(self) -> tuple[Trajectory, ...]:
        return tuple(self)

    def ends(self, index: int) -> tuple[float, float, float] | None:
        """The last time of a run, its first and its last loss; None if it has no point."""
        first, last = self.offsets[index : index + 2].tolist()
        if first == last:
            return None
        return float(self.times[last - 1]), float(self.losses[first]), float(self.losses[last - 1])

    @property
    def final_losses(self) -> np.ndarray:
        return self.losses[self._last_points]

    @property
    def finals(self) -> AbstractModel:
        """The models at the end of every run, each array with a leading axis over the runs."""
        return self.layout.models(self.weights[self._last_points])

    @property
    def _last_points(self) -> np.ndarray:
        if np.any(np.diff(self.offsets) == 0):
            raise ValueError("Some runs were cancelled before they started: they have no end.")
        return self.offsets[1:] - 1


def stack(members: Sequence[Any]) -> Any:
    """Models or risks of one shape as one, every array with a leading axis over the members.

    **Example:**

    ```pycon
    >>> models = [icl.Attention.merged(jr.key(i), dim=2, heads=1) for i in range(3)]
    >>> icl.flows.stack(models).circuits.key_query.shape
    (3, 1, 2, 2)
    ```
    """
    if not members:
        raise ValueError("An ensemble has at least one member.")
    # Compared by identity: comparing arrays would take longer than stacking them.
    distinct = {id(member): member for member in members}
    shapes = [
        (jax.tree.structure(m), [jnp.shape(x) for x in jax.tree.leaves(m)])
        for m in distinct.values()
    ]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "The members of an ensemble must all be of one kind and size. (Tasks with a diagonal "
            "covariance and full ones are stored differently: run them as two ensembles.)"
        )
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *distinct.values())
    # Most ensembles share a few risks: each is stacked once.
    places = {name: place for place, name in enumerate(distinct)}
    order = np.asarray([places[id(member)] for member in members])
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[order]), stacked)


def init_many(
    init: Callable[..., AbstractModel],
    keys: Key[Array, "*members"],
    *swept: ArrayLike,
    **options: Any,
) -> AbstractModel:
    """Many initialisations at once: `init(key, …)` over `keys` and over swept numbers.

    **Arguments:**

    - `init`: called as `init(key, *numbers, **options)`.
    - `keys`: an array of random keys, one per member.
    - `swept`: arrays with one number per member.

    **Example:**

    ```pycon
    >>> start = lambda key, scale: icl.Attention.merged(key, dim=2, heads=1, scale=scale)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 3), jnp.array([1e-4, 1e-3, 1e-2]))
    >>> models.circuits.key_query.shape
    (3, 1, 2, 2)
    ```
    """
    check_key(keys)
    if jnp.ndim(keys) == 0:
        raise InputError(
            "keys",
            problem="is one key",
            allowed="must be several, such as `jax.random.split(key, 8)`",
        )
    for numbers in swept:
        if not np.all(np.isfinite(numbers)):
            raise InputError(
                "swept", problem=f"holds {numbers}", allowed="every number must be finite"
            )
    return eqx.filter_vmap(lambda key, *numbers: init(key, *numbers, **options))(keys, *swept)

"""Many runs of one shape as one program."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key

from ..errors import InputError
from ..models import AbstractModel, axes_of_weights, name_of
from ..risks import AbstractRisk
from ..runtime.precision import check_made_in_float64
from ..tasks import check_key
from ..trajectory import Result, Trajectory
from ._layout import Layout
from ._records import Series


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """The runs of an ensemble, in the order in which their models were given. A run that was
    cancelled before it began has no points."""

    series: Series

    @staticmethod
    def of(runs: Sequence[Trajectory]) -> "Ensemble":
        """Runs of one shape as an ensemble."""
        if not runs:
            raise InputError("runs", problem="is empty", allowed="an ensemble has at least one run")
        shapes = [[leaf.shape[1:] for leaf in jax.tree.leaves(run.models)] for run in runs]
        if any(
            shape != shapes[0] or run.clock != runs[0].clock for shape, run in zip(shapes, runs)
        ):
            raise InputError(
                "runs",
                problem="differ in shape",
                allowed="those of an ensemble have one kind and size",
            )
        layout = Layout.of(runs[0].at(0))
        series = Series(
            layout,
            runs[0].clock,
            np.append(0, np.cumsum([len(run) for run in runs])),
            np.concatenate([run.times for run in runs]),
            np.concatenate([run.losses for run in runs]),
            np.concatenate([layout.vectors(run.models) for run in runs]),
            tuple(run.result for run in runs),
            tuple(run.statistics for run in runs),
        )
        return Ensemble(series)

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, index: int) -> Trajectory:
        return self.series.run(index)

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(len(self)))

    @property
    def runs(self) -> tuple[Trajectory, ...]:
        return tuple(self)

    @property
    def results(self) -> tuple[Result, ...]:
        return self.series.results

    @property
    def final_losses(self) -> np.ndarray:
        return self.series.losses[self._ends]

    @property
    def finals(self) -> AbstractModel:
        """The models at the end of every run, each array with a leading axis over them."""
        return self.series.layout.models(self.series.weights[self._ends])

    @property
    def _ends(self) -> np.ndarray:
        # A run without a point has no last one.
        if np.any(np.diff(self.series.offsets) == 0):
            raise ValueError("Some runs were cancelled before they began: they have no end.")
        return self.series.offsets[1:] - 1


def stack(members: Sequence[Any]) -> Any:
    """Models or risks of one shape as one, every array with a leading axis over the members."""
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
    """
    check_key(keys)
    if jnp.ndim(keys) == 0:
        raise InputError(
            "keys",
            problem="is one key",
            allowed="must be several, as `jax.random.split(key, 8)` gives",
        )
    for numbers in swept:
        if not np.all(np.isfinite(numbers)):
            raise InputError(
                "swept", problem=f"holds {numbers}", allowed="every number must be finite"
            )
    return eqx.filter_vmap(lambda key, *numbers: init(key, *numbers, **options))(keys, *swept)


@dataclasses.dataclass(frozen=True)
class Members:
    """Models and risks of an ensemble, stacked, ready for one vmapped program."""

    models: AbstractModel
    risk: AbstractRisk
    swept_risk: bool
    count: int

    @property
    def first(self) -> AbstractModel:
        """The first model, which stands for the shape of all."""
        return jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, self.models)

    @staticmethod
    def of(
        models: AbstractModel | Sequence[AbstractModel],
        risks: AbstractRisk | Sequence[AbstractRisk],
    ) -> "Members":
        """**Arguments:**

        - `models`: a sequence of models of one shape, or one stacked model.
        - `risks`: one risk that all share, or a sequence with one per model.
        """
        if isinstance(models, AbstractRisk) or isinstance(risks, AbstractModel):
            raise TypeError("`models` and `risks` are swapped: the models come first.")
        if isinstance(models, Sequence):
            if not models:
                raise InputError("models", problem="is empty", allowed="give at least one model")
            stacked = stack(models)
        else:
            stacked = _check_stacked(models)
        check_made_in_float64(models=stacked)
        count = jax.tree.leaves(eqx.filter(stacked, eqx.is_array))[0].shape[0]
        if isinstance(risks, AbstractRisk):
            return Members(stacked, risks, False, count)
        if len(risks) != count:
            raise ValueError(f"There are {count} models and {len(risks)} risks: give one each.")
        return Members(stacked, stack(risks), True, count)


def _check_stacked(models: Any) -> AbstractModel:
    """Refuses what is no model, and one model whose weights are its own alone."""
    allowed = "must be a sequence of models, or one whose arrays have a leading axis over them."
    if not isinstance(models, AbstractModel):
        raise TypeError(f"`models` is of type {type(models).__name__}: {allowed}")
    for name, shape, axes in axes_of_weights(models):
        if len(shape) - 1 not in axes:
            raise ValueError(
                f"`models` is one {name_of(models)} with `{name}` of shape {shape}: {allowed}"
            )
    return models


def over_members(function: Callable, swept_risk: bool | None, risk: Any, *rest: Any) -> Any:
    """`function(risk, …)` along the leading axis of the other arguments.

    **Arguments:**

    - `swept_risk`: None for a single run (the axis of length 1 is removed and added again,
      because a vmapped program is slower); False for an ensemble that shares its risk; True for
      one with a risk per member. `risk` may be a tuple of risks.
    """
    if swept_risk is None:
        first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, rest)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(risk, *first))
    axes = (eqx.if_array(0) if swept_risk else None,) + (eqx.if_array(0),) * len(rest)
    return eqx.filter_vmap(function, in_axes=axes)(risk, *rest)

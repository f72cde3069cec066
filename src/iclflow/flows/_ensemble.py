"""Many runs of one shape as one program."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """The runs of an ensemble, in the order in which their models were given."""

    runs: tuple[Trajectory, ...]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> Trajectory:
        return self.runs[index]

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.runs)

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(run.result for run in self.runs)

    @property
    def final_losses(self) -> np.ndarray:
        return np.asarray([run.losses[-1] for run in self.runs])


def stack(members: Sequence):
    """Models or risks of one shape as one, every array with a leading axis over the members."""
    shapes = [(jax.tree.structure(m), [jnp.shape(x) for x in jax.tree.leaves(m)]) for m in members]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "The members of an ensemble must all be of one kind and size. (Tasks with a diagonal "
            "covariance and full ones are stored differently: run them as two ensembles.)"
        )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def init_many(init: Callable[..., AbstractModel], keys, *swept, **options) -> AbstractModel:
    """Many initialisations at once: `init(key, …)` over `keys` and over swept numbers.

    **Arguments:**

    - `init`: called as `init(key, *numbers, **options)`.
    - `keys`: an array of random keys, one a member.
    - `swept`: arrays with one number a member.
    """
    for numbers in swept:
        if not np.all(np.isfinite(numbers)):
            raise ValueError(f"`swept` holds {numbers}: every number must be finite.")
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
    def of(models, risks) -> "Members":
        """**Arguments:**

        - `models`: a sequence of models of one shape, or one stacked model.
        - `risks`: one risk that all share, or a sequence with one a model.
        """
        if isinstance(models, AbstractRisk) or isinstance(risks, AbstractModel):
            raise TypeError("`models` and `risks` are swapped: the models come first.")
        if isinstance(models, Sequence):
            models = stack(models)
        count = jax.tree.leaves(eqx.filter(models, eqx.is_array))[0].shape[0]
        if isinstance(risks, AbstractRisk):
            return Members(models, risks, False, count)
        if len(risks) != count:
            raise ValueError(f"There are {count} models and {len(risks)} risks: give one each.")
        return Members(models, stack(risks), True, count)


def over_members(function: Callable, swept_risk: bool | None, risk, *rest):
    """`function(risk, …)` along the leading axis of the other arguments.

    **Arguments:**

    - `swept_risk`: None for a single run (the axis has length 1 and is taken off and put back,
      because a vmapped program is slower); False for an ensemble that shares its risk; True for
      one with a risk a member. `risk` may be a tuple of risks.
    """
    if swept_risk is None:
        first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, rest)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(risk, *first))
    axes = (eqx.if_array(0) if swept_risk else None,) + (eqx.if_array(0),) * len(rest)
    return eqx.filter_vmap(function, in_axes=axes)(risk, *rest)

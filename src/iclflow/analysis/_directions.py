"""The directions of the inputs that a linear model has learned."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..circuits import Circuits
from ._components import ROUNDING

# Strengths are shares of the best one. A direction is learned if its strength is nearer to 1 than
# to 0, and the rest of what the model does with it is at most half as large.
_OFF_BEST = 0.5
_MIXING = 0.5
# A direction is untouched up to the first, and unmixed up to the second.
_UNTOUCHED, _UNMIXED = 0.25, 0.1
# A direction has begun above the first, and has ended within the second of the best strength.
_BEGUN, _ENDED = 0.02, 0.1
# Weights with larger entries have diverged: their squares overflow.
_DIVERGED = 1e100


class Directions(NamedTuple):
    """The action of a linear model along the directions of its inputs.

    **Fields:**

    - `spaces`: the numbers (from 0) of components with equal variance, one array per variance. In a
      space of one component that is the direction; in a larger one the model fixes the directions.
    - `strengths`: of each direction, as a share of the best one, in the order of `spaces`.
    - `mixing`: the size of the rest of what the model does with each direction.

    **Example:**

    ```pycon
    >>> best, variances = np.array([1.5, 2.3]), np.array([0.6, 0.4])
    >>> found = icl.analysis.directions(np.diag([1.5, 0.0]), best, variances)
    >>> found.strengths, found.learned, found.orderly
    (array([1., 0.]), array([ True, False]), True)
    ```
    """

    spaces: tuple[np.ndarray, ...]
    strengths: Float[np.ndarray, " D"]
    mixing: Float[np.ndarray, " D"]

    @property
    def learned(self) -> Bool[np.ndarray, " D"]:
        near = np.abs(self.strengths - 1) <= _OFF_BEST
        return near & (self.mixing <= _MIXING * np.abs(self.strengths))

    @property
    def orderly(self) -> bool:
        """Whether no direction is far too strong, or mixed with others."""
        inside = (self.strengths >= -_UNTOUCHED) & (self.strengths <= 1 + _OFF_BEST)
        return bool(np.all(inside & (self.mixing <= _MIXING)))

    @property
    def resting(self) -> bool:
        """Whether no direction is being learned."""
        begun = np.abs(self.strengths) > _BEGUN
        under_way = begun & (np.abs(self.strengths - 1) > _ENDED)
        return not np.any(under_way | (self.mixing > _UNMIXED))

    def between(self, first: int, last: int) -> bool:
        """Whether `first` directions are learned, all but `last` are untouched, and the others lie
        in between."""
        ordered = np.sort(self.strengths)[::-1]
        known = np.all(ordered[:first] >= 1 - _OFF_BEST)
        return self.orderly and bool(known and np.all(ordered[last:] <= _UNTOUCHED))

    @property
    def settled(self) -> bool:
        """Whether each direction is learned or untouched, as on a plateau."""
        idle = (np.abs(self.strengths) <= _UNTOUCHED) & (self.mixing <= _UNMIXED)
        return bool(np.all(self.learned | idle))


def directions(
    matrix: Float[np.ndarray, "D D"],
    best: Float[np.ndarray, " D"],
    variances: Float[np.ndarray, " D"],
) -> Directions:
    """The directions of a linear model.

    **Arguments:**

    - `matrix`: what the model applies, in the basis of components.
    - `best`, `variances`: the best strength and the variance of each component.

    **Example:**

    ```pycon
    >>> best, variances = np.array([1.5, 2.3]), np.array([0.6, 0.4])
    >>> icl.analysis.directions(np.diag([1.5, 0.0]), best, variances).mixing
    array([0., 0.])
    ```
    """
    size = np.sqrt(np.abs(best))
    matrix = matrix / np.outer(size, size)
    same = lambda x: np.abs(np.diff(x)) <= ROUNDING * np.max(np.abs(x))
    spaces = np.split(np.arange(len(best)), np.flatnonzero(~(same(variances) & same(best))) + 1)
    strengths, mixing = [], []
    for space in spaces:
        block = matrix[np.ix_(space, space)]
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        along = np.zeros((len(best), len(space)))
        along[space] = vectors
        rest = [turned @ along - values * along for turned in (matrix, matrix.T)]
        strengths.append(values)
        mixing.append(np.max(np.linalg.norm(rest, axis=1), axis=0))
    return Directions(tuple(spaces), np.concatenate(strengths), np.concatenate(mixing))


def learned_directions(
    found: Circuits, best: Float[np.ndarray, " D"], variances: Float[np.ndarray, " D"]
) -> Directions | None:
    """The `directions` of one model from its circuits in the basis of components; None if its
    weights have diverged.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> found = icl.analysis.component_circuits(model, task)
    >>> best = icl.analysis.best_strengths(task)
    >>> icl.analysis.learned_directions(found, best, np.array([0.6, 0.4])).learned
    array([False, False])
    ```
    """
    with np.errstate(all="ignore"):
        matrix = found.together[0]
    return directions(matrix, best, variances) if np.all(np.abs(matrix) < _DIVERGED) else None

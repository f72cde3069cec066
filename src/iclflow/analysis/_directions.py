"""What a linear model has learned along the directions of its inputs."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..circuits import Circuits
from ._components import ROUNDING

# A direction is learned when its strength is so near to the best one, as a share of it, and what
# the model does beside that is a smaller share of it than this.
_OFF_BEST = 0.5
_MIXING = 0.5
# Up to here a direction is untouched, and nearly unmixed.
_UNTOUCHED, _UNMIXED = 0.25, 0.1
# So near to nothing and to the best strength, directions have not begun or are at their end.
_BEGUN, _ENDED = 0.02, 0.1
# Sums of squares of larger entries overflow: such weights have diverged.
_DIVERGED = 1e100


class Directions(NamedTuple):
    """What a linear model does along the directions of its inputs.

    **Fields:**

    - `spaces`: the numbers (from 0) of components with equal variance, one array per variance. Only
      a component that is alone in its space is a direction of its own; in a larger space the
      directions are those of the model.
    - `strengths`: of each direction, as a share of the best one, in the order of `spaces`.
    - `mixing`: the size of all else that the model does with each direction.
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
        """Whether no direction is far too strong or turned into another."""
        inside = (self.strengths >= -_UNTOUCHED) & (self.strengths <= 1 + _OFF_BEST)
        return bool(np.all(inside & (self.mixing <= _MIXING)))

    @property
    def resting(self) -> bool:
        """Whether no direction is on its way."""
        begun = np.abs(self.strengths) > _BEGUN
        under_way = begun & (np.abs(self.strengths - 1) > _ENDED)
        return not np.any(under_way | (self.mixing > _UNMIXED))

    def between(self, first: int, last: int) -> bool:
        """Whether so many directions are learned, all but so many are untouched, and the others
        are on their way."""
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
    """The directions of the matrix (D, D) that a linear model applies, in the basis of components,
    with the best strength and the variance of each."""
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
    """The `directions` of one model from its circuits in the basis of the components; None for
    weights that have diverged."""
    with np.errstate(all="ignore"):
        matrix = found.together[0]
    return directions(matrix, best, variances) if np.all(np.abs(matrix) < _DIVERGED) else None

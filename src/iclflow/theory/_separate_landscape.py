"""All stationary points of separate key-query attention, A = Σ_h v_h K_h Q_hᵀ with rank-R heads.

arXiv 2501.16265 (Section 4) counts 2^D of them, one for every subset of eigenvectors. That needs
D different gains and H·R ≥ D. They are functions: a whole set of weights represents each. Derived
in docs/theory/linear.md.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._moments import Moments, Normaliser, moments
from ._separate_hessian import (
    EscapeDirection,
    Layout,
    escape_directions_of,
    layout_index,
    representative_weights,
)
from ._separate_modes import Modes, check_room, modes

# Each point holds its weights: more would fill the memory.
_MOST_POINTS = 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class StationaryPoint:
    """A stationary function A_S and its balanced representative in weight space.

    - `components`: S; component 0 has the largest gain.
    - `loss`, `matrix`: L_S and A_S.
    - `v`, `K`, `Q`: heads filled one after the other, R components each; the rest are zero.
    - `index`: negative eigenvalues of the Hessian at these weights.
    - `continuum_dimension`: 0 where A_S is isolated. Where gains are equal it is one of a continuum
      of stationary functions of the same loss, and this is the dimension of that continuum.
    """

    components: tuple[int, ...]
    loss: float
    matrix: Float[np.ndarray, "D D"] = dataclasses.field(repr=False)
    v: Float[np.ndarray, " H"] = dataclasses.field(repr=False)
    K: Float[np.ndarray, "H D R"] = dataclasses.field(repr=False)
    Q: Float[np.ndarray, "H D R"] = dataclasses.field(repr=False)
    index: int
    continuum_dimension: int
    _moments: Moments = dataclasses.field(repr=False)
    _modes: Modes = dataclasses.field(repr=False)
    _layout: Layout = dataclasses.field(repr=False)

    @property
    def isolated(self) -> bool:
        """Whether no other stationary function is arbitrarily near."""
        return self.continuum_dimension == 0

    @property
    def strict(self) -> bool:
        """Whether the Hessian has a negative eigenvalue, so that the flow leaves exponentially."""
        return self.index > 0

    @functools.cached_property
    def escape_directions(self) -> tuple[EscapeDirection, ...]:
        """Which unlearned component can start in which head, and how fast; empty at the minimum."""
        heads, _, rank = self.K.shape
        return escape_directions_of(self._moments, self._modes, self._layout, heads, rank)


def number_of_stationary_points(
    task: LinearRegression, heads: int, rank: int = 1, normaliser: Normaliser = "context"
) -> int | float:
    """Σ_{m ≤ min(J, HR)} (J choose m), 2^D in the usual case; infinite where gains are equal.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> icl.theory.number_of_stationary_points(task, heads=4)
    16
    >>> icl.theory.number_of_stationary_points(task, heads=2)
    11
    >>> white = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=31)
    >>> icl.theory.number_of_stationary_points(white, heads=2)
    inf
    ```
    """
    found = modes(task, normaliser)
    most = check_room(found, heads, rank)
    if found.degenerate:
        return math.inf
    return sum(math.comb(found.count, m) for m in range(most + 1))


def number_of_stationary_losses(
    task: LinearRegression, heads: int, rank: int = 1, normaliser: Normaliser = "context"
) -> int:
    """In how many ways one can choose how many components of each gain are learned.

    D + 1 for white inputs. Each choice has one loss; equal losses of two choices are a coincidence
    and counted twice.

    **Example:**

    ```pycon
    >>> white = icl.LinearRegression(eigenvalues=[0.25, 0.25, 0.25, 0.25], context=31)
    >>> icl.theory.number_of_stationary_losses(white, heads=4)
    5
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> icl.theory.number_of_stationary_losses(task, heads=4)
    16
    ```
    """
    found = modes(task, normaliser)
    most = check_room(found, heads, rank)
    # ways[m]: choices with m components among the groups seen so far.
    ways = [1] + [0] * most
    for group in found.groups:
        ways = [sum(ways[max(0, m - len(group)) : m + 1]) for m in range(most + 1)]
    return sum(ways)


def stationary_points(
    task: LinearRegression, heads: int, rank: int = 1, normaliser: Normaliser = "context"
) -> tuple[StationaryPoint, ...]:
    """Every stationary function A_S = Σ_{j ∈ S} a_j left_j right_jᵀ, by |S| and then by loss.

    Where gains are equal there is one representative for each choice of how many components of
    each gain are learned, with the dimension of its continuum.

    **Arguments:**

    - `heads`, `rank`: H and R of the model; at most min(J, HR) components fit.
    - `normaliser`: what attention divides by.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3], context=31)
    >>> for point in icl.theory.stationary_points(task, heads=2):
    ...     print(point.components, round(point.loss, 4), point.index)
    ...
    () 0.7 0
    (0,) 0.3326 0
    (1,) 0.4291 1
    (0, 1) 0.0617 0
    ```
    """
    count = number_of_stationary_losses(task, heads, rank, normaliser)
    if count > _MOST_POINTS:
        raise Refusal(
            f"`task` has {count} stationary points: at most {_MOST_POINTS} are listed. "
            "Use `subset_loss` or `plateau_losses` for single ones."
        )
    m, found = moments(task, normaliser), modes(task, normaliser)
    most = check_room(found, heads, rank)
    choices = itertools.product(*(range(len(group) + 1) for group in found.groups))
    points = []
    for taken in choices:
        if sum(taken) > most:
            continue
        components = tuple(j for n, group in zip(taken, found.groups) for j in group[:n])
        layout = tuple(components[i : i + rank] for i in range(0, len(components), rank))
        v, K, Q = representative_weights(found, layout, heads, rank)
        points.append(
            StationaryPoint(
                components=components,
                loss=found.loss(components),
                matrix=found.matrix(components),
                v=v,
                K=K,
                Q=Q,
                index=layout_index(found, layout, rank),
                # Projectors of rank n in a space of N dimensions: a Grassmannian.
                continuum_dimension=sum(n * (len(g) - n) for n, g in zip(taken, found.groups)),
                _moments=m,
                _modes=found,
                _layout=layout,
            )
        )
    return tuple(sorted(points, key=lambda p: (len(p.components), p.loss)))

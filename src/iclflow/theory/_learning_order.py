"""In which order separate key-query attention learns its components.

A small head grows first along the component with the largest growth rate, λ²m where Λ and M
commute; the loss gains most from the one with the largest y, ordered as λm. For w ~ N(0, I) both
orders are that of the eigenvalues (arXiv 2501.16265, Section 4). Where they differ, the saddle
visited first is strict: its head turns, exponentially fast, to the better component, and a second
head learns the first one again. Derived in docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np

from ..tasks import LinearRegression
from ._moments import Normaliser, commute, moments
from ._separate_hessian import escape_directions_of, layout_index
from ._separate_modes import Modes, modes


class Visit(NamedTuple):
    """A saddle on the way: its components, loss and Hessian index (rank-one heads).

    `turning_rate` is that of the exponential escape, in units of 1/τ, at a strict saddle; 0 at one
    that is left algebraically, when a new head has grown.
    """

    components: tuple[int, ...]
    loss: float
    index: int
    turning_rate: float


class LearningOrder(NamedTuple):
    """The two orders of the components of a task, and what follows from them.

    - `growth_order`, `gain_order`: components from the largest down; component 0 has the largest
      gain, so that `gain_order` is 0, 1, 2, …
    - `agree`: whether they are the same; equal growth rates agree with any order.
    - `commuting`: whether Λ and M commute. If they do not, no component is invariant under the
      growth of a small head: growth rates are those of heads held along each component, and
      `visits` is what they suggest.
    - `visits`: the saddles on the way from zero to all components, one head a component.
    """

    growth_order: tuple[int, ...]
    gain_order: tuple[int, ...]
    agree: bool
    commuting: bool
    visits: tuple[Visit, ...]

    @property
    def strict_saddle(self) -> Visit | None:
        """The first saddle on the way with a negative Hessian eigenvalue; None if orders agree."""
        return next((visit for visit in self.visits if visit.index > 0), None)


def learning_order(task: LinearRegression, normaliser: Normaliser = "context") -> LearningOrder:
    """Growth order, gain order, whether they agree, and which saddles are visited."""
    found = modes(task, normaliser)
    order = growth_order(found)
    gain_order = tuple(range(found.count))
    return LearningOrder(
        growth_order=order,
        gain_order=gain_order,
        agree=order == gain_order,
        commuting=commute(task),
        visits=_visits(task, found, order, normaliser),
    )


def growth_order(found: Modes) -> tuple[int, ...]:
    """Components by growth rate, the largest first; rates equal up to rounding keep gain order."""
    rates = found.growth_rates
    order = sorted(range(found.count), key=lambda j: -rates[j])
    runs = np.split(order, np.flatnonzero(-np.diff(rates[order]) > 1e-9 * rates[order[0]]) + 1)
    return tuple(int(j) for run in runs for j in sorted(run))


def _visits(
    task: LinearRegression, found: Modes, order: tuple[int, ...], normaliser: Normaliser
) -> tuple[Visit, ...]:
    """Alternates "a new head learns what grows fastest" and "a head turns to what pays more"."""
    m = moments(task, normaliser)
    learned: list[int] = []
    visits = []
    while True:
        layout = [(j,) for j in learned]
        index = layout_index(found, layout, 1)
        loss = float(m.label_variance - np.sum(found.gains[learned] ** 2))
        if index > 0:
            escape = escape_directions_of(m, found, layout, len(layout), 1)[0]
            visits.append(Visit(tuple(sorted(learned)), loss, index, escape.rate))
            learned[escape.head] = escape.component
            continue
        visits.append(Visit(tuple(sorted(learned)), loss, 0, 0.0))
        if len(learned) == found.count:
            return tuple(visits)
        learned.append(next(j for j in order if j not in learned))

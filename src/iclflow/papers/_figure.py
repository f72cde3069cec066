"""Figures: what they show, and the function that draws them."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from ..drawing import Drawing
from ..studies import PAPERS
from ._lab import Lab
from ._registry import Registry, find_paper, join_lines


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure that can be drawn.

    **Fields:**

    - `name`: `paper/topic`.
    - `caption`: what it shows.
    - `paper`: the arXiv number of the paper, and the figure there if it has one.
    - `draw`: draws it, from runs that the lab has or computes.

    **Example:**

    ```pycon
    >>> figure = icl.papers.FIGURES["linear/staircase"]
    >>> figure.name, figure.paper
    ('linear/staircase', 'arXiv 2501.16265, Figure 3')
    ```
    """

    name: str
    title: str
    caption: str
    paper: str
    draw: Callable[[Lab], Drawing]


class _Figures(Registry[Figure]):
    """Figures in the order in which their papers name them, whichever module draws them."""

    def __iter__(self) -> Iterator[str]:
        return iter(in_order(self._load()))


def in_order(names: Iterable[str]) -> list[str]:
    """The names of figures in the order in which their papers name them."""
    named = [f"{name}/{topic}" for name in PAPERS for topic in find_paper(name).ORDER["figures"]]
    place = {name: number for number, name in enumerate(named)}
    return sorted(names, key=lambda name: place.get(name, len(place)))


FIGURES: Registry[Figure] = _Figures("figures")
"""The figures by name.

**Example:**

```pycon
>>> icl.papers.FIGURES["linear/staircase"].title
'Separate keys and queries: a staircase'
```
"""


def figure(
    name: str, title: str, caption: str, number: int | str | None = None
) -> Callable[[Callable[[Lab], Drawing]], Callable[[Lab], Drawing]]:
    """Registers the function that draws a figure.

    Its words are literals: `iclflow reproduce --list` reads them from the source.

    **Arguments:**

    - `number`: the figure of the paper that it reproduces.
    """

    def register(function: Callable[[Lab], Drawing]) -> Callable[[Lab], Drawing]:
        def draw(lab: Lab) -> Drawing:
            from ..drawing.style import style

            with style():
                drawing = function(lab)
            about = {"figure": name, "tier": lab.tier}
            config, words = about | drawing.config, join_lines(caption)
            return dataclasses.replace(drawing, config=config, caption=words)

        FIGURES.add(name, new_figure(draw, name, title, caption, number))
        return function

    return register


def new_figure(
    draw: Callable[[Lab], Drawing],
    name: str,
    title: str,
    caption: str,
    number: int | str | None = None,
) -> Figure:
    """A figure as it is declared in the folder of its paper."""
    paper = f"arXiv {PAPERS[name.partition('/')[0]]}"
    where = paper if number is None else f"{paper}, Figure {number}"
    return Figure(name, title, join_lines(caption), where, draw)

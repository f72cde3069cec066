"""Figures: what they show, and the function that draws them."""

import dataclasses
from collections.abc import Callable, Iterator

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
        named = [
            f"{name}/{topic}" for name in PAPERS for topic in find_paper(name).ORDER["figures"]
        ]
        place = {name: number for number, name in enumerate(named)}
        return iter(sorted(self._load(), key=lambda name: place.get(name, len(place))))


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

    **Arguments:**

    - `number`: the figure of the paper that it reproduces.
    """
    caption = join_lines(caption)
    paper = f"arXiv {PAPERS[name.split('/')[0]]}"

    def register(function: Callable[[Lab], Drawing]) -> Callable[[Lab], Drawing]:
        def draw(lab: Lab) -> Drawing:
            from ..drawing.style import style

            with style():
                drawing = function(lab)
            about = {"figure": name, "tier": lab.tier}
            return dataclasses.replace(drawing, config=about | drawing.config, caption=caption)

        where = paper if number is None else f"{paper}, Figure {number}"
        FIGURES.add(name, Figure(name, title, caption, where, draw))
        return function

    return register

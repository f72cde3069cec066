"""The heads of a watched model over steps: what they attend to, what they read, what they add."""

from collections.abc import Sequence

from ..analysis import Head
from ..drawing import Axes
from ..drawing.style import COLOURS, LEVEL
from ._look import Look

# (layer, head), both from 0.
_Place = tuple[int, int]


def plot_heads(panels: Sequence[Axes], looks: Sequence[Look], label: int = 0) -> None:
    """Draws ω, μ and μω of the strongest heads into three panels."""
    read = [look for look in looks if look.layers]
    steps = [look.step for look in read]
    measures = {"ω": lambda h: h.omega, "μ": lambda h: h.mu, "μω": lambda h: h.mu * h.omega}
    for number, (place, colour) in enumerate(zip(strongest_heads(read, label), COLOURS)):
        heads = [_head(look, place, label) for look in read]
        for panel, measure in zip(panels, measures.values()):
            # Two heads of a pair may add the same: both are seen.
            dashes = "-" if number % 2 == 0 else (0, (4, 2))
            panel.plot(steps, [measure(head) for head in heads], color=colour, lw=1.5, ls=dashes,
                       label=_name(read[-1], place))  # fmt: skip
    for panel, name in zip(panels, measures):
        panel.axhline(0, **LEVEL)
        panel.set_ylabel(f"{name} of heads")
        panel.set_xlabel("step")
    panels[1].legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=3,
                     handlelength=1.2, columnspacing=0.8)  # fmt: skip


def strongest_heads(looks: Sequence[Look], label: int = 0) -> list[_Place]:
    """As many heads as there are colours, by the most that they add to the step at any moment; in
    the order of layers."""
    largest: dict[_Place, float] = {}
    for look in looks:
        for i, layer in enumerate(look.layers or ()):
            for h, head in enumerate(layer.labels[label].heads):
                added = abs(head.mu * head.omega)
                largest[i, h] = max(largest.get((i, h), 0.0), added)
    return sorted(sorted(largest, key=lambda place: -largest[place])[: len(COLOURS)])


def _head(look: Look, place: _Place, label: int) -> Head:
    layers = look.layers or ()
    return layers[place[0]].labels[label].heads[place[1]]


def _name(look: Look, place: _Place) -> str:
    layers = look.layers or ()
    number = f"{place[0] + 1}.{place[1] + 1}" if len(layers) > 1 else f"{place[1] + 1}"
    return f"head {number}: {layers[place[0]].roles[place[1]]}"

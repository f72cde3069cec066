"""The heads of a watched model on its page: what they are now, and when their roles changed."""

from collections.abc import Sequence

from ..report import escape
from ._heads import LayerLook, role_on
from ._look import Look

_COLUMNS = ("layer", "head", "role", "ω", "μ", "diagonal", "homogeneous", "last entry")


def heads_section(looks: Sequence[Look]) -> str:
    """The section on heads; empty if none were read."""
    read = [look for look in looks if look.layers]
    if not read:
        return ""
    last = read[-1]
    layers = last.layers or ()
    rows = "".join(_rows(layer, label) for layer in layers for label in range(len(layer.labels)))
    head = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    parts = ["<h2>Heads</h2>", f"<p>At step {last.step}.</p>"]
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    parts += [f'<div class="wide">{table}</div>']
    left_out = sorted({words for layer in layers for words in layer.left_out})
    if left_out:
        parts += [f"<p>Not part of these numbers: {escape(', '.join(left_out))}.</p>"]
    return "".join([*parts, "<h3>When roles changed</h3>", _changes(read)])


def role_changes(looks: Sequence[Look]) -> list[tuple[Look, str]]:
    """The looks at which a head got another role, the first included, with what changed."""
    found: list[tuple[Look, str]] = []
    before: dict[str, str] = {}
    for look in looks:
        now = _roles(look)
        changed = {name: role for name, role in now.items() if before.get(name) != role}
        if changed:
            found.append((look, ", ".join(f"{name} {role}" for name, role in changed.items())))
        before = now
    return found


def _roles(look: Look) -> dict[str, str]:
    layers = look.layers or ()
    of = lambda layer: f"{layer.name} " if len(layers) > 1 else ""
    return {
        f"{of(layer)}head {number}": role
        for layer in layers
        for number, role in enumerate(layer.roles, 1)
    }


def _changes(looks: Sequence[Look]) -> str:
    items = "".join(
        f"<li>step {look.step}: {escape(words)}</li>" for look, words in role_changes(looks)
    )
    return f"<ul>{items}</ul>"


def _rows(layer: LayerLook, label: int) -> str:
    name = layer.name if len(layer.labels) == 1 else f"{layer.name}, label {label + 1}"
    measured = layer.labels[label]
    return "".join(
        f"<tr><td>{escape(name)}</td><td>{number}</td><td>{escape(role_on(role, label))}</td>"
        + "".join(
            f"<td>{value:.4g}</td>"
            for value in (
                *(head.omega, head.mu, head.diagonal_share, head.homogeneity),
                head.last_entry_share,
            )
        )
        + "</tr>"
        for number, (head, role) in enumerate(zip(measured.heads, layer.roles), 1)
    )

"""What `iclflow inspect` found, as text for a terminal."""

import math
from collections.abc import Callable, Sequence
from typing import Any

_LEGEND = """\
ω: attention to similar inputs, the mean of the diagonal of key-query over the inputs that the label
depends on; μ: weight of the label in output-value. Shares of the norms: diagonal (1: nothing beside
it), homogeneous (1: the diagonal is constant), last entry (1: nothing but the label is read)."""


def print_inspection(found: dict[str, Any]) -> None:
    """Prints the heads, the loss and the algorithm of a model."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)

    def say(text: str = "") -> None:
        console.print(Text(text), soft_wrap=True)

    say(_opening(found))
    if "loss" in found:
        context = ", ".join(map(str, found["context"]))
        say(f"loss {_loss(found)} at context {context}, noise {found['noise']}")
    if "missing" in found:
        say(f"{found['missing']}.")
    several = len(found["labels"]) > 1
    for i, label in enumerate(found["labels"]):
        if several:
            say(f"\nlabel {i + 1}")
        if "heads" in label:
            console.print(_heads(label["heads"]))
            say(f"step Σμω          {label['step_size']:.4g}")
            say(f"|Σμ| / Σ|μ|       {label['zero_sum']:.4f}")
            say(f"spread of |ω|     {label['magnitude_spread']:.4f}")
        if "algorithm" in label:
            say(f"algorithm         {label['algorithm']}")
    if several and found["roles"] is not None:
        words = (f"{h + 1} {role}" for h, role in enumerate(found["roles"]))
        say(f"\nwhat the heads do: {'; '.join(words)}")
    if "superposed_heads" in found:
        say(f"\nheads that serve several labels: {found['superposed_heads']}")
    if "owners" in found:
        _say_division(found, say)
    if found["heads"] is not None:
        say(f"\n{_LEGEND}")
    for file in found.get("files", ()):
        say(f"written to {file}")


def _say_division(found: dict[str, Any], say: Callable[[str], None]) -> None:
    """Prints which head has which task, and the regime of its softmax."""
    owners = [
        f"{i + 1} none" if owner < 0 else f"{i + 1} head {owner + 1} ({100 * share:.3g} %)"
        for i, (owner, share) in enumerate(zip(found["owners"], found["own_shares"]))
    ]
    one = "" if found["one_task_a_head"] else "; not one task per head"
    say(f"heads of the labels: {', '.join(owners)}{one}")
    worst = max(found["defects"], key=lambda name: found["defects"][name])
    say(f"decomposable to {found['defects'][worst]:.2g} (largest: {worst})")
    if "regimes" in found:
        heads = zip(found["regimes"], found["score_deviations"], found["attended_tokens"])
        words = [
            f"{h + 1} {regime} (scores ± {deviation:.3g}, {tokens:.3g} tokens attended)"
            for h, (regime, deviation, tokens) in enumerate(heads)
        ]
        say(f"softmax of the heads: {', '.join(words)}")


def _opening(found: dict[str, Any]) -> str:
    """Model, heads and tokens: how the weights were read."""
    from ..report import count_of

    heads = ""
    if found["heads"] is not None:
        heads = f" {count_of(found['heads'], 'head')}"
        if found["width"] is not None:
            heads += f" of width {found['width']} (scores are divided by √{found['width']})"
        heads += ";"
    tokens = f"{count_of(found['dim'], 'input')} and {count_of(found['outputs'], 'label')}"
    return f"{found['model']}:{heads} tokens of {tokens}"


def _loss(found: dict[str, Any]) -> str:
    """The loss to as many digits as its standard error allows."""
    value, error = found["loss"], found["loss_standard_error"]
    if error == 0:
        return f"{value:.6g} ({found['loss_kind']})"
    places = max(1 - math.floor(math.log10(error)), 0)
    return f"{value:.{places}f} ± {error:.{places}f} ({found['loss_kind']})"


def _heads(heads: Sequence[dict[str, Any]]):
    from ._tables import plain_table

    table = plain_table("head", "role", "ω", "μ", "diagonal", "homogeneous", "last entry")
    for h, head in enumerate(heads):
        numbers = (head[k] for k in ("diagonal_share", "homogeneity", "last_entry_share"))
        table.add_row(
            str(h + 1), head["role"], f"{head['omega']:.4g}", f"{head['mu']:.4g}",
            *(f"{number:.4f}" for number in numbers),
        )  # fmt: skip
    return table

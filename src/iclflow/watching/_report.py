"""One page about a watched training."""

import dataclasses
import io
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_atomic
from ..report import escape
from ._look import Distance, Look
from ._report_heads import heads_section
from ._words import describe_plateaus, percent

if TYPE_CHECKING:
    from ._watch import Watch


def write_report(watch: "Watch", path: Path) -> Path:
    """Writes the page, with its picture and its style inside."""
    looks = watch.looks
    style = files("iclflow.report").joinpath("page.css").read_text(encoding="utf-8")
    parts = [f"<p>{escape(watch)}</p>"]
    if looks:
        parts += [_picture(watch), "<h2>What it was, and when</h2>", _turns(watch.turns())]
        plateaus = [dataclasses.asdict(each) for each in watch.plateaus()]
        parts += [f"<p>{escape(describe_plateaus(plateaus, watch.drops()))}</p>"]
        parts += ["<h2>Now</h2>", _table(looks[-1]), heads_section(looks)]
    if watch.judged and looks:
        items = "".join(f"<li>{escape(each)}</li>" for each in watch.claims())
        parts += [f"<h2>Claims on such a training</h2><ul>{items}</ul>"]
    if watch.problems:
        items = "".join(
            f"<li>step {step}: {escape(words)}</li>" for step, words in watch.problems.items()
        )
        parts += [f"<h2>What could not be measured</h2><ul>{items}</ul>"]
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>iclflow: a training</title>'
        f"<style>{style}</style></head><body><header><h1>A training, watched</h1></header>"
        f"<main>{''.join(parts)}</main></body></html>\n"
    )
    write_atomic(path, page)
    return path


def _turns(looks: Sequence[Look]) -> str:
    items = "".join(f"<li>{escape(look)}</li>" for look in looks)
    return f"<ul>{items}</ul>"


def _table(look: Look) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.name)}</td><td>{_percent(each)}</td><td>"
        f"{'' if each.step_size is None else f'{each.step_size:.4g}'}</td></tr>"
        for label in look.distances
        for each in label
    )
    head = "<thead><tr><th>estimator</th><th>distance</th><th>step size</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _percent(each: Distance) -> str:
    found = percent(each.distance)
    return found if each.distance < 1e-4 else f"{found} ± {100 * each.error:.2g} %"


def _picture(watch: "Watch") -> str:
    import matplotlib.pyplot as plt

    axes = watch.plot()
    figure: Any = axes[0].figure
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    plt.close(figure)
    text = buffer.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"

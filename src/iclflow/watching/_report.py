"""One page about a watched training."""

import dataclasses
import io
from collections.abc import Iterable, Sequence
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

# Beside the style of all pages: what is wider than a narrow screen scrolls by itself.
_STYLE = """
figure, .wide { overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 32rem; height: auto; border-radius: 0.3rem; }
"""


def write_report(watch: "Watch", path: Path) -> Path:
    """Writes the page, with its picture and its style inside."""
    looks = watch.looks
    style = files("iclflow.report").joinpath("page.css").read_text(encoding="utf-8")
    parts = [f"<p>{escape(watch)}</p>", f'<p class="source">{escape(_setting(watch.about))}</p>']
    if looks:
        parts += [_picture(watch), "<h2>What it was, and when</h2>", _turns(watch)]
        plateaus = [dataclasses.asdict(each) for each in watch.plateaus()]
        parts += [f"<p>{escape(describe_plateaus(plateaus, watch.drops()))}</p>"]
        parts += ["<h2>Now</h2>", _tables(looks[-1]), heads_section(looks)]
    if watch.judged and looks:
        parts += ["<h2>Claims on such a training</h2>", _list(map(str, watch.claims()))]
    if watch.problems:
        problems = (f"step {step}: {words}" for step, words in watch.problems.items())
        parts += ["<h2>What could not be measured</h2>", _list(problems)]
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>iclflow: a training</title>'
        f"<style>{style}{_STYLE}</style></head><body><header><h1>A training, watched</h1></header>"
        f"<main>{''.join(parts)}</main></body></html>\n"
    )
    write_atomic(path, page)
    return path


def _setting(about: dict[str, Any]) -> str:
    """On what the model was measured."""
    return (
        f"Task: {about['task']}. Evaluation set: {about['count']} sequences of seed "
        f"{about['seed']}, {about['evaluation'][:12]}."
    )


def _turns(watch: "Watch") -> str:
    labels = max(len(look.distances) for look in watch.looks)
    return "".join(
        _name_label(label, labels) + _list(map(str, watch.turns(label))) for label in range(labels)
    )


def _name_label(label: int, labels: int) -> str:
    return f"<h3>Label {label + 1}</h3>" if labels > 1 else ""


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in items)}</ul>"


def _tables(look: Look) -> str:
    labels = len(look.distances)
    return "".join(
        _name_label(label, labels) + _table(each) for label, each in enumerate(look.distances)
    )


def _table(distances: Sequence[Distance]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.name)}</td><td>{_percent(each)}</td><td>"
        f"{'' if each.step_size is None else f'{each.step_size:.4g}'}</td></tr>"
        for each in distances
    )
    head = "<thead><tr><th>estimator</th><th>distance</th><th>step size</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _percent(each: Distance) -> str:
    found = percent(each.distance)
    if each.distance < 1e-4:
        return found
    error = f"{100 * each.error:.2g} %" if each.error < 0.1 else percent(each.error, 2)
    return f"{found} ± {error}"


def _picture(watch: "Watch") -> str:
    import matplotlib.pyplot as plt

    axes = watch.plot()
    figure: Any = axes[0].figure
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    plt.close(figure)
    text = buffer.getvalue()
    words = "Loss, distances from estimators and the loss at the last look over context length"
    words += ", and the heads that add most." if len(axes) > 3 else "."
    svg = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{words}"', 1)
    return f"<figure>{svg}<figcaption>{words}</figcaption></figure>"

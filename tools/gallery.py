"""Writes the gallery, docs/gallery: every figure and every study, with command, settings and data.

    python tools/gallery.py draw [NAME …]    draws the figures and studies that are missing, into
                                             out/gallery
    python tools/gallery.py pages            writes the pages from what is drawn

`make gallery` does the first, which takes long, `make docs` the second.
Figures of a report (`make verify`, out/verify) are taken where out/gallery lacks them. The pages
say of each figure that nobody has drawn yet how to draw it.
"""

import html
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from iclflow.papers import DIAGRAMS, FIGURES
from iclflow.studies import STUDIES, SUBJECTS, Study

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "gallery"
DRAWN = ROOT / "out" / "gallery"
SOURCES = (DRAWN, ROOT / "out" / "verify" / "figures")
PRESETS = ROOT / "src" / "iclflow" / "explorer" / "static" / "presets"
SWEEPS = "Ready sweeps"
INDEX = """# Gallery

Every figure and every study. `iclflow reproduce NAME` draws a figure, with its data (`.npz`) and
its settings (`.toml`); `iclflow run NAME` runs a study and draws it.

"""
# The settings of a figure say nothing of what the page shows already.
_SKIPPED = ("caption",)


def stem(name: str) -> str:
    """The name of the files of a figure."""
    return name.replace("/", "-")


def everything() -> dict[str, Any]:
    """All figures, and those of ready sweeps."""
    return {**FIGURES, **DIAGRAMS}


def find(name: str, suffix: str) -> Path | None:
    """A file of a figure, if it is drawn."""
    found = (folder / f"{stem(name)}.{suffix}" for folder in SOURCES)
    return next((path for path in found if path.exists()), None)


def draw(names: list[str]) -> None:
    """Draws the figures and studies that are missing."""
    for name in everything():
        if (not names or name in names) and find(name, "png") is None:
            call(name, "reproduce", name, "--out", str(DRAWN))
    # Last, since some of these train for long. The explorer has pictures of the others.
    for name in STUDIES:
        if (not names or name in names) and not preset(name).exists() and not ran(name).exists():
            call(name, "run", name, "--out", str(ran(name).parent))


def call(name: str, *arguments: str) -> None:
    """Calls a command of iclflow, and says how it went."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "iclflow", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    state = "drawn" if done.returncode == 0 else done.stderr.strip()
    print(f"{name}: {state} ({time.perf_counter() - begin:.0f} s)", flush=True)


def preset(name: str) -> Path:
    """The small picture of a study that the explorer offers."""
    return PRESETS / f"{stem(name)}.svg"


def ran(name: str) -> Path:
    """The figure of a study that was run for the gallery."""
    return DRAWN / "studies" / stem(name) / "loss.png"


def figure_entry(figure: Any) -> str:
    """A figure: picture, caption, command, settings, data."""
    command = f"`iclflow reproduce {figure.name}`"
    parts = [f"### {figure.title}", one_line(figure.caption)]
    picture = take(figure.name, "png")
    if picture:
        parts.append(f"![{alternative(figure)}]({picture})")
    settings, data = find(figure.name, "toml"), take(figure.name, "npz")
    rows = [f"- {'Command' if picture else 'Not drawn here; command'}: {command}"]
    rows.append(f"- About: {figure.paper}")
    rows += [f"- Data: [{data}]({data})"] if data else []
    parts.append("\n".join(rows))
    if settings is not None:
        parts.append(folded("Settings", settings.read_text(encoding="utf-8")))
    elif hasattr(figure, "text"):
        parts.append(folded("The sweep", figure.text()))
    return "\n\n".join(parts)


def take(name: str, suffix: str) -> str | None:
    """Copies a file of a figure beside the pages; its name there."""
    path = find(name, suffix)
    if path is None:
        return None
    shutil.copy(path, PAGES / path.name)
    return path.name


def alternative(figure: Any) -> str:
    """What a picture shows, in a sentence."""
    return re.sub(r"[\[\]\\\\]", "", f"{figure.title}. {one_line(figure.caption)}")


def one_line(text: str) -> str:
    """Words as they are: a* is no emphasis."""
    return " ".join(text.split()).replace("*", "\\*")


def study_entry(study: Study, texts: dict[str, str]) -> str:
    """A study: picture where the explorer has one, words, command, config."""
    parts = [f"### {study.title}", one_line(study.words)]
    small, large = preset(study.id), ran(study.id)
    if small.exists():
        parts.append(f'<div class="preset">{small.read_text(encoding="utf-8").strip()}</div>')
    elif large.exists():
        shutil.copy(large, PAGES / f"{stem(study.id)}-study.png")
        words = re.sub(r"[\[\]]", "", f"{study.title}: the loss of a run, with theory")
        parts.append(f"![{words}]({stem(study.id)}-study.png)")
    rows = [f"- Command: `iclflow run {study.id}`; its folder holds the weights and losses"]
    rows += ["- In the explorer too"] if study.order is not None else []
    parts.append("\n".join(rows))
    parts.append(folded("Config", texts[study.id]))
    return "\n\n".join(parts)


def study_texts() -> dict[str, str]:
    """The files of all studies, by name."""
    folder = ROOT / "src" / "iclflow" / "papers"
    found = folder.glob("*/studies/*.toml")
    return {f"{p.parts[-3]}/{p.stem}": p.read_text(encoding="utf-8") for p in found}


def folded(title: str, text: str) -> str:
    """A text that opens on a click."""
    kept = "\n".join(line for line in text.splitlines() if not line.startswith(_SKIPPED))
    return (
        f"<details><summary>{title}</summary>"
        f'<pre tabindex="0"><code>{html.escape(kept)}</code></pre></details>'
    )


def pages() -> dict[str, str]:
    """The pages by the names of their files."""
    texts, found, rows = study_texts(), {}, []
    groups = {**SUBJECTS, "sweeps": SWEEPS}
    for paper, subject in groups.items():
        figures = [f for name, f in everything().items() if name.startswith(f"{paper}/")]
        studies = [s for s in STUDIES.values() if s.paper == paper]
        studies.sort(key=lambda s: (s.order is None, s.order or 0, s.id))
        parts = [f"# Gallery: {subject.lower()}"]
        parts += ["## Figures", *map(figure_entry, figures)] if figures else []
        parts += ["## Studies", *(study_entry(s, texts) for s in studies)] if studies else []
        found[f"{paper}.md"] = "\n\n".join(parts) + "\n"
        drawn = sum(find(f.name, "png") is not None for f in figures)
        counts = f"{len(figures)} ({drawn} drawn here)", str(len(studies) or "–")
        rows.append(f"| [{subject}]({paper}.md) | {' | '.join(counts)} |")
    table = ["| page | figures | studies |", "|---|---|---|", *rows]
    missing = sum(find(name, "png") is None for name in everything())
    if missing:
        table += ["", f"{missing} figures are not drawn here: `make gallery` draws them."]
    found["index.md"] = INDEX + "\n".join(table) + "\n"
    return found


def main(arguments: list[str]) -> None:
    match arguments:
        case ["draw", *names]:
            draw(names)
        case ["pages"]:
            shutil.rmtree(PAGES, ignore_errors=True)
            PAGES.mkdir()
            for name, text in pages().items():
                (PAGES / name).write_text(text, encoding="utf-8")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

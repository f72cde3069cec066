"""Runs the tutorials, and writes them as pages and as notebooks with their outputs.

    python tools/tutorials.py run [NAME …]     runs those that have changed: notebooks/NAME.ipynb
    python tools/tutorials.py pages            writes docs/tutorials/NAME.md, with outputs where a
                                               notebook has them

`make gallery` does the first, `make docs` the second. Neither notebooks nor pages are part of the
repository.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notebooks import TUTORIALS, cells, notebook

NOTEBOOKS = TUTORIALS.parent.parent / "notebooks"
IMAGES = "images"
WITHOUT_OUTPUTS = """
!!! note "Without outputs"
    This page was built before the tutorial was run here: `make gallery` runs it, and `make docs`
    then shows what it prints and draws.
"""


def scripts() -> list[Path]:
    """The tutorials."""
    return sorted(TUTORIALS.glob("*.py"))


def digest(script: Path) -> str:
    """What a notebook says which script it was made from."""
    return hashlib.sha256(script.read_bytes()).hexdigest()


def execute(script: Path) -> Iterator[list[dict[str, Any]]]:
    """Runs a tutorial in the present folder, cell by cell: the outputs of each.

    Pictures are the PNG files that a cell leaves.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    pictures: set[Path] = set()
    for kind, text in cells(script.read_text(encoding="utf-8")):
        if kind == "markdown":
            yield []
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(text, str(script), "exec"), space)
        found = [] if not said.getvalue() else [as_stream(said.getvalue())]
        drawn = set(Path().glob("*.png")) - pictures
        yield found + [as_picture(path) for path in sorted(drawn)]
        pictures |= drawn


def as_stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def as_picture(path: Path) -> dict[str, Any]:
    data = {"image/png": base64.b64encode(path.read_bytes()).decode("ascii")}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def executed(script: Path) -> dict[str, Any]:
    """A tutorial as a notebook with its outputs; runs it."""
    made = notebook(script.read_text(encoding="utf-8"))
    count = 0
    for cell, outputs in zip(made["cells"], execute(script), strict=True):
        if cell["cell_type"] == "code":
            count += 1
            cell |= {"execution_count": count, "outputs": outputs}
    made["metadata"]["iclflow"] = {"script": digest(script)}
    return made


def run(names: list[str]) -> None:
    """Runs the tutorials that have changed since, each in a process and a folder of its own."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for script in scripts():
        if (not names or script.stem in names) and outputs_of(script) is None:
            environment = os.environ | {"MPLBACKEND": "agg"}
            command = [sys.executable, __file__, "one", str(script.resolve()), str(NOTEBOOKS)]
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(command, cwd=folder, env=environment)
            print(f"{script.stem}: {'done' if done.returncode == 0 else 'FAILED'}", flush=True)


def run_one(script: Path, folder: Path) -> None:
    """Runs one tutorial here, and keeps it as a notebook."""
    text = json.dumps(executed(script), indent=1, ensure_ascii=False)
    (folder / f"{script.stem}.ipynb").write_text(f"{text}\n", encoding="utf-8")


def outputs_of(script: Path) -> dict[str, Any] | None:
    """The notebook of a tutorial as it is now, with outputs; None if there is none."""
    path = NOTEBOOKS / f"{script.stem}.ipynb"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    made_from = found["metadata"].get("iclflow", {}).get("script")
    return found if made_from == digest(script) else None


def page(script: Path, found: dict[str, Any], images: Path) -> str:
    """A notebook as a page; its pictures are written into `images`."""
    title = "".join(found["cells"][0]["source"]).splitlines()[0].strip("# ")
    parts, words, drawn = [], "", 0
    for cell in found["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            words = text
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text'])}```")
            else:
                drawn += 1
                name = f"{script.stem}-{drawn}.png"
                (images / name).write_bytes(base64.b64decode(output["data"]["image/png"]))
                shows = alternative(words) or f"A picture that answers: {title}"
                parts.append(f"![{shows}]({IMAGES}/{name})")
    parts.append(f"*This page is [{script.name}]({script.name}): a program, and a notebook.*")
    return "\n\n".join(parts) + "\n"


def alternative(words: str) -> str:
    """What a picture shows, for those who cannot see it: the text before it under its heading;
    empty if there is none."""
    under = re.split(r"(?m)^#.*$", words)[-1]
    plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", under).split())
    return re.sub(r"[\[\]*`]", "", plain).strip()


def write_pages() -> None:
    """All tutorials as pages."""
    images = TUTORIALS / IMAGES
    images.mkdir(exist_ok=True)
    for script in scripts():
        found = outputs_of(script)
        if found is None:
            text = page(script, notebook(script.read_text(encoding="utf-8")), images)
            first, _, rest = text.partition("\n")
            text = f"{first}\n{WITHOUT_OUTPUTS}{rest}"
        else:
            text = page(script, found, images)
        (TUTORIALS / f"{script.stem}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *names]:
            run(names)
        case ["one", script, folder]:
            run_one(Path(script), Path(folder))
        case ["pages"]:
            write_pages()
        case _:
            sys.exit(__doc__)

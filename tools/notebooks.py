"""Turns the tutorials into notebooks: `python tools/notebooks.py [FOLDER]` (default: notebooks).

A tutorial is a script in the percent format of jupytext: `# %%` begins a cell of code, `# %%
[markdown]` one of text. Jupyter with jupytext opens it as it is; this needs neither.
"""

import json
import re
import sys
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parent.parent / "docs" / "tutorials"
_TEXT = "# %% [markdown]"


def cells(script: str) -> list[tuple[str, str]]:
    """The cells of a script: "markdown" or "code", and the text."""
    found = []
    for part in re.split(r"(?m)^(?=# %%)", script)[1:]:
        head, _, body = part.partition("\n")
        if head == _TEXT:
            found.append(("markdown", re.sub(r"(?m)^# ?", "", body).strip()))
        else:
            found.append(("code", body.strip()))
    return found


def notebook(script: str) -> dict:
    """A script as a notebook without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(script)):
        cell = {
            **{"cell_type": kind, "id": f"cell-{number}", "metadata": {}},
            "source": text.splitlines(keepends=True),
        }
        made.append(cell if kind == "markdown" else cell | {"execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(TUTORIALS.glob("*.py")):
        made = folder / f"{path.stem}.ipynb"
        text = json.dumps(notebook(path.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
        made.write_text(f"{text}\n", encoding="utf-8")
        print(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("notebooks"))

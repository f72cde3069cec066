"""The documentation tells the truth: its programs run and print what it says they print."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import iclflow as icl
from iclflow.config import Config, parse_config
from iclflow.papers import STUDIES, all_claims

ROOT = Path(__file__).parent.parent
DERIVATIONS = {
    "docs/theory/linear.md": "optimal_matrix",
    "docs/theory/softmax.md": "pair_optimum",
    "docs/theory/multitask.md": "spectral_flow",
    "docs/theory/depth.md": "optimal_stack",
    "docs/theory/diversity.md": "data_risks",
}
# All in one process, which loads modules once; pages beside each other share what they compile.
PAGES = (
    *("README.md", "docs/quickstart.md", "docs/config.md", "docs/concepts.md", "docs/choosing.md"),
    "docs/faq.md",
    "docs/inspect.md",
    "docs/watch.md",
    *("docs/theory/softmax.md", "docs/theory/linear.md", "docs/theory/multitask.md"),
    "docs/theory/depth.md",
    "docs/theory/diversity.md",
)
MARK = "----- next block -----\n"
# Each page starts as a program does: without float64, in an empty folder. Empty lines before
# each block, so that a traceback names the line in the page. Garbage is collected as seldom as in
# the other tests.
RUNNER = """
import gc, json, os, sys, tempfile, traceback, warnings
gc.set_threshold(100_000, 50, 1000)
warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
import jax
here, (pages, mark) = os.getcwd(), json.loads(sys.argv[1])
for page, blocks in pages.items():
    jax.config.update("jax_enable_x64", False)
    os.chdir(tempfile.mkdtemp(dir=here))
    space = {"__name__": "__main__"}
    print(mark + page)
    try:
        for line, source in blocks:
            print(mark, end="")
            exec(compile("\\n" * line + source, page, "exec"), space)
    except Exception:
        print(mark, end="")
        traceback.print_exc(file=sys.stdout)
"""


class Block(NamedTuple):
    """A fenced program, where it starts, and the output that the page shows, if it shows any."""

    line: int
    source: str
    output: str | None


def blocks(page: str, language: str = "python") -> list[Block]:
    """The fenced blocks of a page in one language, each with the `text` block right after it."""
    text = (ROOT / page).read_text()
    fence = re.compile(
        rf"^```{language}\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
    )
    return [
        Block(text.count("\n", 0, match.start(1)), match[1], match[2])
        for match in fence.finditer(text)
    ]


@pytest.mark.slow
def test_the_programs_of_all_pages_run_and_print_what_they_show(tmp_path):
    found = {page: blocks(page) for page in PAGES}
    assert all(found.values())
    sources = {page: [(b.line, b.source) for b in parts] for page, parts in found.items()}
    # A process of their own: they switch on float64 themselves, and one registers a claim.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, json.dumps([sources, MARK])],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = "".join(
        f"{MARK}{page}\n" + "".join(MARK + (block.output or "") for block in parts)
        for page, parts in found.items()
    )
    # By block, so that what differs is named by its page.
    assert done.stdout.split(MARK) == shown.split(MARK)


def test_every_page_with_a_program_is_run():
    pages = ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
    # What tools write, from docstrings and from tutorials, is tested where it stands.
    written = ("docs/reference/", "docs/tutorials/", "docs/gallery/")
    pages = [page for page in pages if not page.startswith(written)]
    assert sorted(PAGES) == sorted(page for page in pages if blocks(page))


def test_a_block_is_found_with_the_output_that_follows_it():
    first, *_ = blocks("README.md")
    assert first.source.startswith("import") and first.output


@pytest.mark.parametrize(("page", "one_of_them"), DERIVATIONS.items())
def test_functions_that_the_derivations_name_exist(page, one_of_them):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert one_of_them in named
    rooms = (icl.theory, icl.theory.multitask, icl.theory.depth, icl.theory.diversity)
    assert {name for name in named if not any(hasattr(room, name) for room in rooms)} == set()


def test_claims_and_studies_that_the_documentation_names_exist():
    known = {claim.id for claim in all_claims()} | set(STUDIES)
    for page in sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")):
        prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
        rooms = r"`((?:linear|softmax|multitask|diversity|depth)/[a-z-]+)`"
        assert set(re.findall(rooms, prose)) <= known, page


def test_every_corrected_claim_is_explained_beside_its_correction():
    text = "\n".join((ROOT / page).read_text() for page in DERIVATIONS)
    for claim in all_claims():
        if claim.corrected_by:
            words = f"`{claim.id}` is {claim.fault or 'undecided'}"
            (row,) = [line for line in text.splitlines() if words in line]
            assert f"`{claim.corrected_by}`" in row


def test_the_example_of_a_kind_is_one():
    (example,) = [block for block in blocks("CONTRIBUTING.md") if "TaskBase" in block.source]
    space: dict = {"__name__": "iclflow.config._task_signs", "__package__": "iclflow.config"}
    exec(example.source, space)
    signs = space["SignsTask"](eigenvalues=(0.4, 0.3))
    assert signs.kind in example.source and signs.dim == 2 and signs.longest_context == 31


def test_config_examples_are_valid():
    (example,) = blocks("docs/config.md", "toml")
    assert parse_config(tomllib.loads(example.source)).model.heads == 4


def documented(page_section: str) -> set[tuple[str, str]]:
    """Setting and default of every row in the tables of one section of the config page."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page_section, re.MULTILINE)
    # Tables with a column of kinds have the default behind it.
    cells = [(name, [cell.strip() for cell in rest.split(" | ")]) for name, rest in rows]
    return {(name, cell[-2].strip("`")) for name, cell in cells}


def existing(section) -> set[tuple[str, str]]:
    """Setting and default of every field of a part of the config, as the page writes them."""
    rows = set()
    for name, field in section.model_fields.items():
        if name == "kind" or field.discriminator is not None:
            continue
        value = field.default
        if isinstance(value, tuple):
            (value,) = value
        words = {str: f'"{value}"', bool: str(value).lower(), type(None): "–"}
        text = words.get(type(value), str(value))
        rows.add((name, "required" if field.is_required() else text))
    return rows


@pytest.mark.parametrize("section", ["task", "model", "risk", "flow", "save"])
def test_every_setting_is_documented_with_its_default(section):
    parts = re.split(r"^## ", (ROOT / "docs/config.md").read_text(), flags=re.MULTILINE)
    (part,) = [part for part in parts if part.startswith(f"`[{section}]`")]
    kinds = get_args(Config.model_fields[section].annotation)
    told, known = documented(part), set().union(*(existing(kind) for kind in kinds))
    rows = "rows of `docs/config.md`, as (setting, default)"
    assert told == known, f"missing {rows}: {known - told}; not true: {told - known}"
    named = [kind.model_fields["kind"].default for kind in kinds]
    assert [kind for kind in named if f"`{kind}`" not in part] == []


def test_top_level_settings_are_documented_with_their_defaults():
    parts = re.split(r"^## ", (ROOT / "docs/config.md").read_text(), flags=re.MULTILINE)
    (part,) = [part for part in parts if part.startswith("Top level")]
    assert documented(part) == existing(Config)

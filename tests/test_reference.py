"""The reference: every public name has an entry, and every entry a name."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import iclflow as icl

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def reference():
    """The tool that writes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(reference):
    return reference.all_pages()


def test_every_public_name_has_an_entry_and_every_entry_a_name(pages):
    entries = re.findall(r"^::: iclflow\.([\w.]+)$", "\n".join(pages.values()), re.MULTILINE)
    assert len(set(entries)) == len(entries) > 500
    listed = re.findall(r"\[`icl\.(\w+)`\]\[iclflow\.([\w.]+)\]", pages["index.md"])
    assert {target for _, target in listed} <= set(entries)
    modules = {name for name in icl.__all__ if hasattr(getattr(icl, name), "__path__")}
    assert {name for name, _ in listed} == set(icl.__all__) - modules - {"__version__"}


def test_every_name_of_the_package_is_described(pages):
    """By a sentence of its own in the first page."""
    rows = re.findall(
        r"^\| \[`icl\.(\w+)`\]\[[\w.]+\] \| (.*) \|$", pages["index.md"], re.MULTILINE
    )
    assert len(rows) > 50
    assert [name for name, words in rows if not words or words.startswith(f"{name}(")] == []
    watch = icl.watch
    assert inspect.isfunction(watch) and dict(rows)["watch"].startswith("Watches a model while")
    for name in ("torch", "jax", "tensorboard", "heads", "huggingface", "lightning"):
        adapter = getattr(watch, name)
        assert (
            adapter.__doc__ and f"::: iclflow.watching.{adapter.__name__}\n" in pages["watching.md"]
        )


def test_every_room_that_is_public_has_a_page_in_the_navigation(reference, pages):
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"- reference/(\w+\.md)", text))
    assert listed == set(pages)
    modules = {name for name in icl.__all__ if hasattr(getattr(icl, name), "__path__")}
    assert modules <= set(reference.ROOMS)


def test_functions_of_theory_link_to_their_derivation(pages):
    assert "../theory/linear.md#7-the-cascade" in pages["theory.md"]
    # A heading that moves breaks the strict build below.
    assert pages["theory.md"].count("Derivation:") > 100

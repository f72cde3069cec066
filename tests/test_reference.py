"""The documentation as web pages: every public name has an entry, and search works from disk."""

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import iclflow as icl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from browser import browser as find_browser

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


def test_all_pages_are_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w/]+\.md", yaml.dump(nav)))
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert {name for name in written if not name.startswith("reference/")} == {
        name for name in listed if not name.startswith("reference/")
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation, built strictly in a copy."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference"))
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "reference.py", folder / "tools")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        [sys.executable, "tools/reference.py"],
        [str(tools / "zensical"), "build", "--clean", "--strict"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.slow
def test_documentation_builds_strictly_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert site / "index.html" in pages and site / "reference" / "theory.html" in pages
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.https?:[^>]*")
    assert [found for page in pages for found in loads.findall(page.read_text())] == []
    images = [tag for page in pages for tag in re.findall(r"<img[^>]*>", page.read_text())]
    assert images and all(re.search(r"alt=.[^\"']", tag) for tag in images)


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")
def test_search_finds_names_in_pages_that_are_opened_from_disk(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=options)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
        page.goto((site / "index.html").as_uri())
        page.wait_for_load_state("networkidle")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox").fill("drop_times")
        page.get_by_role("option").filter(has_text="drop_times").first.wait_for(timeout=30_000)
        # Nothing is wider than the page of a telephone.
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert wrong == []
        browser.close()

"""The documentation as web pages: links, pictures, formulas, search, and readers of all kinds."""

import html.parser
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from accessible import findings
from browser_tab import chromium, find_browser

__all__ = ["chromium"]  # a fixture
ROOT = Path(__file__).resolve().parent.parent

# What tools write: no part of the repository, and in the navigation nevertheless.
GENERATED = ("reference/", "gallery/", "tutorials/")
# One page of each kind.
KINDS = (
    *("index", "quickstart", "choosing", "faq", "ledger", "claims", "config", "theory/linear"),
    *("theory/multitask", "tutorials/staircase", "gallery/index", "gallery/softmax"),
    *("reference/index", "reference/theory", "reference/flows"),
)


def is_generated(name: str) -> bool:
    return name.startswith(GENERATED) and name != "tutorials/index.md"


def test_all_pages_are_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w/]+\.md", yaml.dump(nav)))
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    hand_written = {name for name in written if not is_generated(name)}
    assert hand_written == {name for name in listed if not is_generated(name)}
    tutorials = {f"tutorials/{p.stem}.md" for p in (ROOT / "docs" / "tutorials").glob("*.py")}
    assert {name for name in listed if name.startswith("tutorials/")} == {
        *tutorials,
        "tutorials/index.md",
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation, built strictly in a copy, without what was computed here before."""
    folder = tmp_path_factory.mktemp("docs")
    made = shutil.ignore_patterns("reference", "gallery")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=made)
    for page in (folder / "docs" / "tutorials").glob("*.md"):
        if page.name != "index.md":
            page.unlink()
    shutil.copytree(ROOT / "tools", folder / "tools")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    tools = Path(sys.executable).parent
    paths = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": "src:tools"}
    begin = children_seconds()
    for command in (
        [sys.executable, "tools/reference.py"],
        [sys.executable, "tools/tutorials.py", "pages"],
        [sys.executable, "tools/gallery.py", "pages"],
        [str(tools / "zensical"), "build", "--clean", "--strict"],
    ):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=os.environ | paths
        )
        assert done.returncode == 0, done.stdout + done.stderr
    # Of processors: wall-clock times of tests are those of the other tests too.
    assert children_seconds() - begin < 30
    return folder / "site"


def children_seconds() -> float:
    """Seconds of processors that the processes which this one waited for have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Links(html.parser.HTMLParser):
    """The links, images and ids of a page."""

    def __init__(self, page: Path):
        super().__init__()
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag == "img":
            self.images.append(found)


@pytest.fixture(scope="module")
def parsed(site):
    """All pages, read once. The page for addresses that do not exist is none of them."""
    return {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}


@pytest.mark.slow
def test_documentation_builds_strictly_and_loads_nothing_from_elsewhere(site, parsed):
    assert {site / "index.html", site / "reference" / "theory.html"} <= set(parsed)
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.https?:[^>]*")
    assert [found for page in parsed for found in loads.findall(page.read_text())] == []
    imports = re.compile(r"@import|url\(\s*[\"']?https?:")
    sheets = list(site.rglob("*.css"))
    assert sheets and [sheet for sheet in sheets if imports.search(sheet.read_text())] == []


@pytest.mark.slow
def test_no_link_is_dead(site, parsed):
    dead = []
    for page, found in parsed.items():
        for link in set(found.links):
            address, part = urldefrag(link)
            if re.match(r"[a-z]+:", address):
                # Nobody is asked here; addresses of other hosts are at least well formed.
                assert re.fullmatch(r"(?:https://[\w.-]+(?:/\S*)?|mailto:\S+)", address), link
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            known = target in parsed and (not part or unquote(part) in parsed[target].ids)
            if not (known or (target not in parsed and target.is_file())):
                dead.append(f"{page.relative_to(site)} → {link}")
    assert dead == []


@pytest.mark.slow
def test_every_image_is_there_and_says_what_it_shows(site, parsed):
    images = [(page, image) for page, found in parsed.items() for image in found.images]
    assert len(images) >= 2
    for page, image in images:
        assert (page.parent / unquote(str(image["src"]))).is_file(), (page, image)
        assert len(str(image.get("alt") or "").split()) >= 2, (page, image)


@pytest.mark.slow
def test_formulas_are_mathml(site):
    page = (site / "theory" / "linear.html").read_text()
    assert page.count("<math>") > 50 and page.count('class="equation"') >= 43
    for name in ("linear", "softmax", "multitask"):
        page = (site / "theory" / f"{name}.html").read_text()
        # No index is left as it is typed.
        text = re.sub(r"<(code|pre|script|style)\b.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
        assert re.findall(r"\S*[A-Za-zα-ω]_[a-z{]\S*", text) == []


@pytest.mark.slow
def test_all_tutorials_and_figures_are_pages(site):
    from iclflow.papers import DIAGRAMS, FIGURES
    from iclflow.studies import STUDIES

    for script in (ROOT / "docs" / "tutorials").glob("*.py"):
        assert "What to try next" in (site / "tutorials" / f"{script.stem}.html").read_text()
    gallery = "".join(page.read_text() for page in (site / "gallery").glob("*.html"))
    for name in (*FIGURES, *DIAGRAMS):
        assert f"iclflow reproduce {name}<" in gallery
    for name in STUDIES:
        assert f"iclflow run {name}<" in gallery


needs_browser = pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")


def open_page(context, address: str):
    """A page, and what went wrong in it."""
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return page, wrong


@pytest.mark.slow
@needs_browser
def test_search_finds_names_in_pages_that_are_opened_from_disk(site, chromium):
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    page, wrong = open_page(context, (site / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("drop_times")
    page.get_by_role("option").filter(has_text="drop_times").first.wait_for(timeout=30_000)
    assert wrong == []
    context.close()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_can_be_read_by_everybody(site, chromium, width, scheme):
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = {}
    for name in KINDS:
        page, wrong = open_page(context, (site / f"{name}.html").as_uri())
        # Nothing is wider than the page: what is long scrolls in its own box.
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append("wider than the window")
        if problems := wrong + findings(page):
            found[name] = problems
        page.close()
    context.close()
    assert found == {}


@needs_browser
def test_what_is_wrong_with_a_page_is_found(chromium):
    context = chromium.new_context()
    page = context.new_page()
    page.set_content(
        "<main><h1>a</h1><h3>b</h3><img src='data:,'><a href='x'></a><input>"
        "<p style='color: #999'>pale</p><p id='c'>x</p><p id='c'>y</p></main>"
    )
    text = "\n".join(findings(page))
    context.close()
    for words in (
        *("no language", "no title", "without alt text", "without a name", "without a label"),
        *("skips a level", "contrast 2.85", 'id "c" is used twice'),
    ):
        assert words in text, text

"""The report: everything is on the page, nothing is fetched, nothing is taken for markup."""

import base64
import dataclasses
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from browser_tab import OPTIONS, find_browser
from iclflow.papers import CLAIMS, Check, Claim, Outcome, statements_of
from iclflow.report import ReportFigure, RunInfo, _sources, render_report
from iclflow.report._sources import ORIGINS, origin_of
from iclflow.report._text import (
    duration,
    error_text,
    left_out_text,
    number,
    predicted_text,
    value_text,
)

NASTY = "<script>alert('x')</script> & \"quotes\" 'too' </style>"
INFO = RunInfo("2025-01-02 03:04:05", "default", False, 61.5, "Linux, 2 cores", {"jax": "0.10.2"})


def claim(name: str, statement: str = "A statement.", **fields) -> Claim:
    return Claim(f"linear/{name}", "linear", statement, "Eq. (8)", "default", "A reason.",
                 lambda lab: [], **fields)  # fmt: skip


def outcome(verdict="holds", name="one", checks=None, reason="", **fields) -> Outcome:
    checks = (Check("a check", 1.25, 1.2500001, 1e-3),) if checks is None else checks
    return Outcome(claim(name, **fields), checks, verdict, reason, 1.5, {"heads": 4})


def figure(**fields) -> ReportFigure:
    given = {
        "name": "linear/loss",
        "title": "Loss",
        "caption": "The loss.",
        "paper": "Figure 1",
        "image": b"\x89PNG",
        "media_type": "image/png",
        "config": {"seed": 3},
        "seconds": 2.0,
    }
    return ReportFigure(**{**given, **fields})


class Page(HTMLParser):
    """A page taken apart: elements, ids, links, text; it must be well formed."""

    VOID = {"meta", "img", "br", "hr", "link", "input"}

    def __init__(self, html: str):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.words = [], [], [], [], []
        self.elements: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.elements.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.sources += [given["src"]] if "src" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rendered(*outcomes, figures=(), info=INFO) -> tuple[str, Page]:
    html = render_report(outcomes, figures, info)
    return html, Page(html)


def test_every_verdict_is_told_in_words_and_signs():
    outcomes = [
        outcome("holds", "a"),
        outcome("fails", "b", reason="failed: a check"),
        outcome("inconclusive", "c", checks=(), reason="too few seeds"),
        outcome("misstated", "d", corrected_by="linear/a"),
    ]
    _, page = rendered(*outcomes)
    for words in ("✓ holds", "✗ fails", "? inconclusive", "≠ misstated"):
        assert page.text.count(words) >= 2  # in the count on top, and in its card
    assert "failed: a check" in page.text and "too few seeds" in page.text
    assert "corrected in linear/a" in page.text


def test_a_claim_shows_all_that_was_promised():
    _, page = rendered(outcome(statement="The loss drops once."))
    for words in ("The loss drops once.", "linear/one", "Eq. (8)", "1.25", "1e−07 ≤ 0.001"):
        assert words in page.text
    assert "A reason." in page.text and "1.5 s" in page.text and "heads 4" in page.text


def test_the_card_shows_the_check_that_comes_closest_to_failing():
    checks = (Check("easy", 1.0, 1.0, 0.1), Check("hard", 2.0, 2.09, 0.1))
    html, _ = rendered(outcome(checks=checks))
    card = html.split("<article")[1].split('<div class="more">')[0]
    assert ">2<" in card and "0.09 ≤ 0.1" in card and "hard" in card and "easy" not in card


OTHER_SHAPE = "predicted with the shape (2,), measured with (1,)"


@pytest.mark.parametrize(
    "check, predicted, compared",
    [
        (Check("c", 2, 3, comparison="at least"), "≥ 2", "3 ≥ 2"),
        (Check("c", 2, 1, comparison="at least"), "≥ 2", "1 not ≥ 2"),
        (Check("c", 2, 1.95, 0.1, "at least"), "≥ 2", "1.95 ≥ 2 − 0.1"),
        (Check("c", 0.5, 0.25, comparison="at most"), "≤ 0.5", "0.25 ≤ 0.5"),
        (Check("c", 0.5, 0.75, 0.1, "at most"), "≤ 0.5", "0.75 not ≤ 0.5 + 0.1"),
        (Check("c", [1, 2], [5, 2.5], comparison="at least"), "≥ 1, 2", "2.5 ≥ 2"),
        (Check("c", 1, [5, np.nan, 0], comparison="at least"), "≥ 1", "not a number not ≥ 1"),
        (Check("c", [1, 2], [5], comparison="at least"), "≥ 1, 2", OTHER_SHAPE),
        (Check("c", 1.0, 1.5, 1.0), "1", "0.5 ≤ 1"),
        (Check("c", 2, 2, comparison="equal"), "2", "equal"),
    ],
)
def test_a_comparison_is_shown_as_it_was_made(check, predicted, compared):
    assert (predicted_text(check), error_text(check)) == (predicted, compared)
    _, page = rendered(outcome(checks=(check,)))
    assert page.text.count(f" {predicted} ") >= 2 and page.text.count(f" {compared} ") >= 2


def test_the_page_says_which_claims_belong_to_another_tier():
    left = [dataclasses.replace(claim(name), tier="paper") for name in ("slow", "slower")]
    html = render_report([outcome()], [], INFO, left)
    words = "2 more claims (linear/slow, linear/slower) belong to a tier that takes longer: "
    assert f"{words}iclflow verify --tier paper" in Page(html).text
    assert "takes longer" not in rendered(outcome())[1].text
    assert left_out_text(left[:1]).startswith("1 more claim (linear/slow) belongs to a tier")
    assert "(" not in left_out_text(left * 10)


def test_nothing_on_the_page_comes_from_elsewhere():
    html, page = rendered(outcome(figures=("linear/loss",)), figures=[figure()])
    # Readers may follow a link to the paper; nothing is loaded.
    elsewhere = {link for link in page.links if not link.startswith("#")}
    assert elsewhere == {"https://arxiv.org/abs/2501.16265"}
    assert all(source.startswith("data:") for source in page.sources)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html.replace(*elsewhere, ""))
    assert "link" not in page.elements


def test_every_link_leads_somewhere_and_ids_are_unique():
    outcomes = [
        outcome(name="a", figures=("linear/loss", "linear/not-drawn")),
        outcome("misstated", "b", corrected_by="linear/a"),
    ]
    _, page = rendered(*outcomes, figures=[figure()])
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link[0] == "#"} <= set(page.ids)
    assert "claim-linear-a" in page.ids and "figure-linear-loss" in page.ids


def test_a_correction_that_is_not_on_the_page_is_named_without_a_link():
    _, page = rendered(outcome("misstated", "b", corrected_by="linear/a"))
    assert "corrected in linear/a, which is not on this page" in page.text
    assert "#claim-linear-a" not in page.links


def test_what_is_shown_is_never_taken_for_markup():
    checks = (Check(NASTY, NASTY, "x", comparison="equal"),)
    nasty = Outcome(claim("n", NASTY), checks, "fails", NASTY, 0.1, {NASTY: NASTY})
    picture = figure(title=NASTY, caption=NASTY, paper=NASTY, config={"a": NASTY})
    info = RunInfo(NASTY, NASTY, False, 1.0, NASTY, {NASTY: NASTY})
    html, page = rendered(nasty, figures=[picture], info=info)
    assert page.elements.count("script") == 1 and page.elements.count("style") == 1
    assert "alert('x')" in page.text and "<script>alert" not in html


def test_figures_carry_their_image_config_and_time():
    _, page = rendered(outcome(), figures=[figure()])
    assert [source for source in page.sources if source] == [
        "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    ]
    for words in ("The loss.", "seed 3", "2.0 s", "iclflow reproduce linear/loss"):
        assert words in page.text


def test_figures_are_shown_at_one_scale():
    html, _ = rendered(outcome(), figures=[figure(share=3.4 / 7), figure(name="linear/wide")])
    assert 'style="--share: 0.4857"' in html and 'style="--share: 1"' in html


def test_a_figure_that_could_not_be_drawn_says_why():
    _, page = rendered(outcome(), figures=[figure(image=None, problem="ValueError: no data")])
    assert page.sources == [] and "Not drawn: ValueError: no data" in page.text


def test_the_page_says_where_and_when_it_was_computed():
    _, page = rendered(outcome())
    for words in ("2025-01-02 03:04:05", "61.5 s", "Linux, 2 cores", "jax 0.10.2", "default"):
        assert words in page.text
    assert "Commit not known" in page.text
    known = dataclasses.replace(INFO, commit="ab12-dirty", versions={"iclflow": "9.8"})
    assert "Version iclflow 9.8 Commit ab12-dirty" in rendered(outcome(), info=known)[1].text
    bent = RunInfo("now", "smoke", True, 1.0, "here", {})
    assert "wrong on purpose" in rendered(outcome("fails"), info=bent)[1].text


def test_the_info_of_a_run_names_this_machine():
    info = RunInfo.of_this_machine("smoke", False, 3.0)
    assert {"iclflow", "Python", "jax"} <= set(info.versions) and "cores" in info.machine


@pytest.mark.parametrize(
    "value, text",
    [
        (3, "3"),
        (0.1 + 0.2, "0.3"),
        (-1e-9, "−1e−09"),
        (float("inf"), "∞"),
        (float("nan"), "not a number"),
        (True, "yes"),
        ([0, 1], "0, 1"),
        (np.arange(9.0), "0, 1, …, 7, 8 (9 values)"),
        (np.ones((2, 5)), "2 × 5 values from 1 to 1"),
        (((1, 2), (3, 4)), "1, 2; 3, 4"),
        ({"a": 1, "b": [2, 3]}, "a: 1, b: 2, 3"),
        ("words", "words"),
        (None, "–"),
        ([[1], [2, 3]], "1; 2, 3"),
        ([], "none"),
    ],
)
def test_values_are_shown_in_short(value, text):
    assert value_text(value) == text


def test_numbers_and_times_have_few_digits():
    assert number(1 / 3, 2) == "0.33"
    assert [duration(s) for s in (0.0421, 1.234, 90, 600)] == [
        "42 ms",
        "1.2 s",
        "90.0 s",
        "10.0 min",
    ]


# Whose sentence it is, and where ----------------------------------------------------------------


@pytest.mark.parametrize(
    "source, origin",
    [
        ("Section 4.3; Figure 3", "paper"),
        ("abstract; code: plots", "paper"),
        ("code: README", "authors"),
        ("notebooks of two heads", "authors"),
        ("summary: a table", "summary"),
        ("'delocalized attention', a summary of the paper", "summary"),
        ("beyond the paper; derived in docs/theory/linear.md", "beyond"),
        ("derived in docs/theory/softmax.md", "beyond"),
    ],
)
def test_claims_are_apart_by_whose_sentence_they_are(source, origin):
    assert origin_of(dataclasses.replace(claim("a"), source=source)) == origin


def test_papers_and_summaries_have_their_own_parts():
    summary = dataclasses.replace(
        outcome(), claim=dataclasses.replace(claim("b"), source="summary")
    )
    _, page = rendered(summary, outcome())
    paper, others = (page.text.index(ORIGINS[each]) for each in ("paper", "summary"))
    # Overview, then the cards: that of the paper first, whatever the order of the outcomes.
    assert paper < page.text.index("linear/one", paper) < others < page.text.rindex("linear/b")
    assert "authors" not in page.text


def test_a_claim_names_its_place_in_the_paper_and_links_to_its_derivation(monkeypatch):
    real = dataclasses.replace(CLAIMS["linear/separate-network"], source="docs/theory/linear.md")
    shown = Outcome(real, outcome().checks, "holds", "", 1.0, {})
    _, page = rendered(shown)
    statement = next(iter(statements_of(real.id)))
    assert statement.where in page.text and statement.words in page.text
    assert "docs/theory/linear.md" in page.text  # in a package without pages there is no link
    monkeypatch.setattr(_sources, "_documentation", lambda: "https://pages.example")
    assert "https://pages.example/theory/linear.html" in rendered(shown)[1].links


# The look -------------------------------------------------------------------------------------


def style() -> str:
    return files("iclflow.report").joinpath("page.css").read_text()


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_its_background(theme):
    block = re.findall(r":root \{(.*?)\}", style(), re.S)[theme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    verdicts = ("holds", "fails", "inconclusive", "misstated")
    pairs = [(name, f"{name}-bg") for name in verdicts]
    pairs += [(name, ground) for name in ("ink", "soft", "link") for ground in ("paper", "card")]
    pairs += [(name, "paper") for name in verdicts]
    for ink, paper in pairs:
        bright, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
        # The contrast that the Web Content Accessibility Guidelines ask for, level AA.
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def test_the_page_is_made_for_phones_paper_and_the_dark():
    for query in ("max-width", "@media print", "prefers-color-scheme: dark"):
        assert query in style()
    html, _ = rendered(outcome())
    assert 'name="viewport"' in html and "beforeprint" in html


SQUARE = b"""<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200"><rect width="400"
height="200" fill="#aabbcc"/></svg>"""


@pytest.fixture
def page_in_browser(tmp_path):
    """A report of four claims, opened as a file."""
    from playwright.sync_api import sync_playwright

    long = Check("a check", list(range(30)), [float(i) for i in range(30)], 1e-3)
    outcomes = [
        outcome("holds", "one", checks=(long,), statement="Wide. " * 30, figures=("linear/loss",)),
        outcome("fails", "two", reason="failed: a check"),
        outcome("holds", "three", statement="Another sentence."),
        outcome("misstated", "four", corrected_by="linear/one"),
    ]
    drawing = figure(image=SQUARE, media_type="image/svg+xml")
    file = tmp_path / "report.html"
    file.write_text(render_report(outcomes, [drawing], INFO), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=OPTIONS)
        page, wrong = browser.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(file.as_uri())
        yield page
        assert wrong == []
        browser.close()


@pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")
def test_a_reader_filters_walks_enlarges_and_prints(page_in_browser):
    page = page_in_browser
    shown = lambda: page.eval_on_selector_all(
        "article.claim:not([hidden]) .id", "(all) => all.map((one) => one.textContent)"
    )
    every = ["linear/one", "linear/two", "linear/three", "linear/four"]
    assert shown() == every
    # By verdict and by text, each with its number of claims; Esc shows all again.
    page.click('.count[data-verdict="holds"]')
    assert shown() == ["linear/one", "linear/three"]
    page.keyboard.press("/")
    page.keyboard.type("another")
    assert shown() == ["linear/three"]
    assert page.inner_text("#shown") == "1 of 4 claims are shown: holds, “another”"
    assert page.locator(".overview li:visible").count() == 1
    # A link to a claim that is not shown shows all.
    page.evaluate("location.hash = 'claim-linear-two'")
    page.wait_for_function("document.activeElement.id === 'claim-linear-two'")
    assert shown() == every
    page.fill("#text", "nothing has these words")
    assert shown() == [] and page.is_visible("#none")
    page.keyboard.press("Escape")
    assert shown() == every
    page.select_option("#paper", "linear")
    assert shown() == every
    # From claim to claim, its checks and its figure, by keys alone.
    page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "claim-linear-one"
    page.keyboard.press("o")
    assert page.is_visible("#claim-linear-one .checks")
    page.wait_for_selector("#claim-linear-one .picture img")
    page.keyboard.press("f")
    assert page.is_visible("#picture img") and "The loss." in page.inner_text("#picture")
    page.keyboard.press("Escape")
    assert not page.is_visible("#picture") and shown() == every
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "claim-linear-two"
    # No width cuts a verdict or a number.
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.eval_on_selector_all(
            ".badge, .numbers dd, .checks td, .choose *",
            "(all) => all.map((one) => one.getBoundingClientRect().right)",
        )
        assert max(boxes) <= width
    # On paper everything is open, and pictures follow at full size alone.
    page.emulate_media(media="print")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert not page.is_visible(".picture img") and not page.is_visible(".choose")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#claim-linear-two details[open]").count() == 0

"""The page about a watched training."""

import numpy as np
import pytest

import iclflow as icl
from browser_tab import chromium, find_browser
from iclflow.watching._look import Distance
from iclflow.watching._report import _percent
from test_watch import step, zero

__all__ = ["chromium"]  # a fixture


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=[1.0, 0.5], context=6, noise=0.1)


def test_a_report_is_one_page(task, tmp_path):
    watched = icl.watch(task, zero, every=1, count=50)
    for number in range(3):
        watched._predict = step(0.3 * number)
        watched(number)
    page = watched.report(tmp_path / "page.html").read_text()
    assert (
        "<svg" in page
        and "one gradient step" in page
        and "http"
        not in page.replace("http://www.w3.org", "")
        .replace("https://matplotlib.org", "")
        .replace("http://purl.org", "")
        .replace("http://creativecommons.org", "")
    )


@pytest.mark.slow
def test_a_report_tells_labels_apart_and_says_what_was_watched(tmp_path):
    task = icl.MultiTaskRegression(((0, 1), (1, 2)), context=8, noise=0.1)
    watched = icl.watch(task, lambda x, y, q: np.zeros((len(x), 2)), every=1, count=50, seed=3)
    for number in range(2):
        watched(number)
    page = watched.report(tmp_path / "page.html").read_text()
    # Once above the turns of each label, once above its distances.
    assert page.count("<h3>Label 1</h3>") == page.count("<h3>Label 2</h3>") == 2
    assert "Task: MultiTaskRegression. Evaluation set: 50 sequences of seed 3, " in page
    assert watched.about["evaluation"][:12] in page


@pytest.mark.parametrize(
    ("distance", "error", "words"),
    [
        (2e-5, 1e-5, "below 0.01 %"),
        (0.021, 3e-5, "2.1 % ± 0.003 %"),
        (19.25, 1.3, "1925 % ± 130 %"),
    ],
)
def test_distances_have_their_errors_without_exponents(distance, error, words):
    assert _percent(Distance("Bayes", distance, error)) == words


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")
def test_a_report_fits_every_screen(task, chromium, tmp_path):
    circuits = lambda: (np.ones((2, 3, 2)), np.ones((2, 1, 3)))
    watched = icl.watch(task, zero, every=1, count=50, circuits=circuits)
    for number in range(3):
        watched._predict = step(0.3 * number)
        watched(number)
    page = watched.report(tmp_path / "page.html")
    for width in (1440, 390):
        with chromium.new_context(viewport={"width": width, "height": 900}) as context:
            tab = context.new_page()
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            # The picture fills its box, and is never too small to be read.
            picture, box = tab.evaluate(
                """() => [...document.querySelectorAll("figure svg, figure")]
                .map((each) => each.getBoundingClientRect().width).reverse()"""
            )
            assert picture >= 500 and (width == 390 or picture > 0.9 * box)
            tab.close()

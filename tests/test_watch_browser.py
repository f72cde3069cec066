"""A training in another process, in a real browser."""

import json
import os
import subprocess
import sys
import time

import pytest

from browser_tab import WATCH, Tab, chromium, find_browser
from explorer_client import serving, wait_for
from watch_records import Writer, look

__all__ = ["chromium"]  # a fixture
pytestmark = pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")

MANY = 50_000
STEPS = "(await import('/static/watch-state.js')).view.record.numbers.step"


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    first, second = Writer(folder / "first"), Writer(folder / "second", task="Squares")
    first.looks(*range(5))
    second.looks(*range(3))
    return first, second


@pytest.fixture(scope="module")
def server(writers, tmp_path_factory):
    # Without workers: only plateaus need one.
    options = [word for writer in writers for word in ("--watch", str(writer.folder))]
    with serving("--workers", "1", *options, folder=tmp_path_factory.mktemp("server")) as found:
        yield found


class LiveTab(Tab):
    """The page of a training."""

    def open(self, fragment: str = "") -> "LiveTab":
        self.page.goto(self.server.opened + fragment)
        # Any state: on a busy machine the last look may be old by now.
        self.page.wait_for_selector('html:not([data-state="empty"])', state="attached")
        return self

    def looks(self) -> int:
        """How many looks the page has."""
        return self.page.evaluate(f"(async () => {STEPS}.length)()")

    def shows(self, count: int, seconds: float = 60) -> None:
        """Waits until the page has so many looks."""
        assert wait_for(lambda: self.looks() == count, seconds), self.looks()

    def words(self) -> str:
        return self.page.inner_text("#words")

    def drawn(self) -> None:
        self.page.evaluate(
            """async () => { const { whenDrawn } = await import("/static/schedule.js");
            await new Promise(whenDrawn); }"""
        )


@pytest.fixture(scope="module")
def context(chromium):
    found = chromium.new_context(viewport={"width": 1440, "height": 1000})
    yield found
    found.close()


@pytest.fixture
def tab(server, context):
    found = LiveTab(context, server)
    yield found
    found.page.close()
    assert found.wrong == []


def touch(writer: Writer) -> None:
    """The last look came now."""
    os.utime(writer.path)


def test_a_look_is_on_the_page_soon_after_it_was_written(tab, writers):
    first, _ = writers
    touch(first)
    tab.open().shows(5)
    first.looks(5)
    tab.shows(6)
    tab.drawn()
    assert tab.page.locator("#loss .scatterlayer .trace").count() == 1
    assert tab.page.locator("#distances .scatterlayer .trace").count() == 4
    assert "step 50" in tab.page.inner_text("#clock-text")
    touch(first)
    running = lambda: "first Running, a look every 0.5 s." in tab.page.inner_text("#status")
    assert wait_for(running)


@pytest.mark.slow
def test_words_follow_the_training(tab, writers):
    first, _ = writers
    first.looks(*range(len(first.path.read_bytes().splitlines()), 12))
    tab.open().shows(12)
    assert wait_for(lambda: "ridge regression, since step 100" in tab.words()), tab.words()
    assert "Before that: one gradient step from step 0" in tab.words()
    # A worker measures plateaus, and takes a while to start.
    assert wait_for(lambda: "of the loss so far" in tab.words(), 240), tab.words()
    (first.folder / "problems.jsonl").write_text('[70, "out of luck."]\n[80, "out of luck."]\n')
    assert wait_for(lambda: tab.page.locator("#problems li").count() == 1)
    assert "Steps 70 to 80 (2 looks): out of luck." in tab.page.inner_text("#problems")


@pytest.mark.slow
def test_verdicts_are_shown_with_the_step_they_are_about(tab, writers):
    tab.open()
    assert not tab.page.locator("#verdicts-block").is_visible()
    writers[0].judge(40)
    tab.page.locator("#verdicts li").wait_for()
    assert tab.page.locator("#verdicts li").count() == 1
    assert "✓holds softmax/zero-sum-ov" in tab.page.locator("#verdicts").inner_text()
    words = tab.page.locator("#verdicts-step").inner_text()
    assert words == "Checked on the looks up to step 40. 1 claim on other trainings."


@pytest.mark.slow
def test_a_reload_keeps_the_look_and_the_scales(tab, writers):
    first, _ = writers
    touch(first)
    count = len(first.path.read_bytes().splitlines())
    tab.open().shows(count)
    tab.page.click("#log-loss")
    tab.page.evaluate(
        """() => { const clock = document.getElementById("clock"); clock.value = 2;
        clock.dispatchEvent(new Event("input", { bubbles: true })); }"""
    )
    at_two = lambda: "step 20" in tab.page.inner_text("#table-step")
    assert wait_for(at_two)
    tab.page.reload()
    tab.shows(count)
    assert wait_for(at_two) and "step 20" in tab.page.inner_text("#clock-text")
    assert tab.page.get_attribute("#log-loss", "aria-pressed") == "true"
    assert tab.page.get_attribute("#follow", "aria-pressed") == "false"
    tab.page.click("#follow")
    assert wait_for(lambda: f"step {10 * (count - 1)}" in tab.page.inner_text("#table-step"))


@pytest.mark.slow
def test_several_trainings_are_shown_one_at_a_time_on_several_pages(tab, context, server, writers):
    other = LiveTab(context, server)
    tab.open("#logloss=1")
    tab.page.get_by_role("button", name="second").click()
    tab.shows(3)
    other.page.goto(tab.page.url)
    other.shows(3)
    assert "Squares" in other.page.inner_text("#lead")
    writers[1].looks(3)
    tab.shows(4)
    other.shows(4)
    other.page.close()
    assert other.wrong == []


@pytest.mark.slow
def test_a_training_without_looks_leaves_nothing_of_another_on_the_page(context, tmp_path):
    full, empty = Writer(tmp_path / "full"), Writer(tmp_path / "empty")
    layer = {"name": "layers.0", "roles": ["positive"]}
    full.add(*(json.dumps(look(k) | {"layers": [layer]}).encode() + b"\n" for k in range(3)))
    options = [word for one in (full, empty) for word in ("--watch", str(one.folder))]
    with serving("--workers", "1", *options, folder=tmp_path) as server:
        tab = LiveTab(context, server)
        traces, heads = tab.page.locator("#loss .scatterlayer"), tab.page.locator("#heads-block")
        # There are not so many looks: the last one is shown.
        tab.open("#look=999").shows(3)
        assert wait_for(lambda: "step 20" in tab.page.inner_text("#table-step"))
        assert tab.page.inner_text("#message") == "" and heads.is_visible()
        tab.page.get_by_role("button", name="empty").click()
        assert wait_for(lambda: traces.count() == 0) and wait_for(lambda: not heads.is_visible())
        assert tab.page.inner_text("#table") == "" == tab.page.inner_text("#distance-legend")
        tab.page.get_by_role("button", name="full").click()
        tab.shows(3)
        assert wait_for(lambda: traces.count() == 1 and heads.is_visible())
        tab.page.close()
        assert tab.wrong == []


@pytest.mark.slow
def test_a_training_that_resumes_or_dies_is_said_so(tab, tmp_path, tmp_path_factory, context):
    writer = Writer(tmp_path / "fragile")
    writer.looks(*range(8))
    with serving("--workers", "1", "--watch", str(writer.folder), folder=tmp_path) as server:
        page = LiveTab(context, server)
        page.open().shows(8)
        writer.resume(5)
        writer.looks(5, shift=0.125)
        page.shows(6)
        assert wait_for(lambda: "from step 50 on are replaced" in page.page.inner_text("#note"))
        loss = page.page.evaluate(
            "(async () => (await import('/static/watch-state.js')).view.record.numbers.loss[5])()"
        )
        assert loss == pytest.approx(look(5, 0.125)["loss"][0], rel=5e-5)
        # As if nobody had written for a minute.
        os.utime(writer.path, (time.time() - 60, time.time() - 60))
        page.until("silent")
        assert "may be stopped, or dead" in page.page.inner_text("#status")
        writer.looks(6)
        page.until("running")
        writer.end()
        page.until("ended")
        page.page.close()
        assert page.wrong == []


@pytest.mark.slow
def test_a_server_that_comes_back_goes_on_with_the_page(context, tmp_path):
    writer = Writer(tmp_path / "training")
    writer.looks(*range(3))
    options = "--workers", "1", "--watch", str(writer.folder)
    with serving(*options, folder=tmp_path) as server:
        page = LiveTab(context, server)
        page.open().shows(3)
        port = server.host.partition(":")[2]
    assert wait_for(lambda: "does not answer" in page.page.inner_text("#message"))
    writer.looks(3)
    with serving(*options, "--port", port, folder=tmp_path):
        page.shows(4)
        assert wait_for(lambda: page.page.inner_text("#message") == "")
        page.page.close()


@pytest.mark.slow
@pytest.mark.parametrize("width, dark", [(1440, False), (800, True), (390, False)])
def test_the_page_fits_every_screen(server, chromium, writers, width, dark):
    touch(writers[0])
    scheme = "dark" if dark else "light"
    with chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as c:
        tab = LiveTab(c, server)
        tab.open().shows(len(writers[0].path.read_bytes().splitlines()))
        tab.page.wait_for_selector("#loss .scatterlayer", state="attached")
        tab.drawn()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.page.get_attribute("html", "data-dark") == ("yes" if dark else "no")
        # Each plot fills its box, and shows every look.
        sizes = tab.page.evaluate(
            """() => ["loss", "excess", "distances", "lengths"].map((id) => {
            const plot = document.getElementById(id), box = plot.parentElement;
            const { width, height } = plot.layout;
            return [width - box.clientWidth, height - box.clientHeight];
            })"""
        )
        assert sizes == [[0, 0]] * 4
        drawn = tab.page.evaluate("document.getElementById('loss').data[0].x.length")
        assert drawn == tab.looks()
        tab.page.close()
        assert tab.wrong == []


@pytest.mark.timed
def test_the_first_point_is_there_within_a_second(server, context, writers):
    """From the moment at which a line was written to that at which the page has it."""
    first, _ = writers
    tab = LiveTab(context, server)
    touch(first)
    tab.open()
    count = len(first.path.read_bytes().splitlines())
    tab.shows(count)
    seconds = []
    for number in range(count, count + 5):
        begun = time.monotonic()
        first.looks(number)
        tab.page.wait_for_function(f"async () => {STEPS}.length > {number}", polling=10)
        tab.drawn()
        seconds.append(time.monotonic() - begun)
        time.sleep(0.3)
    tab.page.close()
    print("seconds from a line to the page:", [round(each, 3) for each in seconds])
    assert sorted(seconds)[2] <= 1.0, seconds


@pytest.mark.timed
def test_fifty_thousand_points_stay_smooth(context, tmp_path):
    """While looks go on, frames stay short, and a page that opens has all of them soon."""
    writer = Writer(tmp_path / "long")
    writer.looks(*range(MANY))
    with serving("--workers", "1", "--watch", str(writer.folder), folder=tmp_path) as server:
        assert wait_for(lambda: server.get("/api/watch")[0]["looks"] == MANY, 120)
        tab = LiveTab(context, server)
        tab.page.add_init_script(WATCH)
        begun = time.monotonic()
        touch(writer)
        tab.open()
        tab.shows(MANY, 120)
        tab.drawn()
        loaded = time.monotonic() - begun
        tab.page.evaluate("window.frames_.length = 0")
        for number in range(MANY, MANY + 40):
            writer.looks(number)
            time.sleep(0.1)
        tab.shows(MANY + 40)
        frames = sorted(tab.page.evaluate("window.frames_"))
        tab.page.close()
    late = frames[int(0.95 * len(frames))]
    print(f"opened in {loaded:.2f} s; frames: median {frames[len(frames) // 2]:.1f} ms, "
          f"95 % {late:.1f} ms, longest {frames[-1]:.1f} ms")  # fmt: skip
    assert loaded < 20 and late < 100, (loaded, frames[-10:])
    assert tab.wrong == []


@pytest.mark.slow
def test_a_real_training_in_another_process_is_shown(context, tmp_path):
    program = """
import sys, time
import numpy as np
import iclflow as icl
task = icl.LinearRegression(eigenvalues=[1.0, 0.5], context=8, noise=0.1)
size = 0.0
predict = lambda x, y, q: size * np.einsum("bnd,bn,bd->b", x, y, q) / x.shape[1]
watch = icl.watch(task, predict, every=1, count=100, out=sys.argv[1])
for step in range(10_000):
    watch(step)
    size += 0.2 * (0.7 - size)
    time.sleep(0.05)
"""
    folder = tmp_path / "real"
    with serving("--workers", "1", "--watch", str(folder), folder=tmp_path) as server:
        tab = LiveTab(context, server)
        tab.page.goto(server.opened)
        tab.until("gone")
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)])
        try:
            tab.until("running")
            assert wait_for(lambda: "one gradient step" in tab.words(), 60), tab.words()
        finally:
            process.kill()
            process.wait()
        tab.until("silent", 60)
        tab.page.close()
        assert tab.wrong == []

"""The explorer in a real browser: what a person sees and does."""

import datetime
import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from browser_tab import WATCH, Tab, find_browser
from browser_tab import chromium as chromium
from explorer_client import (
    ENDLESS,
    compute,
    fragment,
    presets_of_each_kind,
    serving,
    wait_for,
)
from iclflow.config import parse_config
from iclflow.papers import Study

pytestmark = pytest.mark.skipif(find_browser() is None, reason="there is no chromium here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def server(folder):
    with serving("--workers", "1", folder=folder) as found:
        yield found


@pytest.fixture(scope="module")
def stored(folder, server):
    """A run and a sweep in the folder of the server, for those tests that open them."""
    # The shape of runs that other tests start: whoever opens one has compiled its programs.
    (folder / "small.toml").write_text(
        '[task]\nkind = "linear_regression"\neigenvalues = [0.4, 0.3, 0.2, 0.1]\n'
        '[model]\nkind = "separate"\nheads = 2\n'
    )
    (folder / "sweep.toml").write_text(
        'name = "scales"\nseeds = 2\n[base.task]\nkind = "linear_regression"\n'
        'eigenvalues = [0.4, 0.3, 0.2, 0.1]\n[base.model]\nkind = "separate"\nheads = 2\n'
        '[axes]\n"model.scale" = [1e-2, 1e-1]\n"task.noise" = [0.0, 0.1]\n'
        '[measure]\nnames = ["plateaus"]\n'
    )
    compute("run", folder / "small.toml", "--out", folder / "runs" / "small")
    compute("sweep", folder / "sweep.toml", "--out", folder / "sweeps" / "scales")
    assert wait_for(lambda: server.get("/api/stored")["sweeps"])


@pytest.fixture(scope="module")
def context(server, chromium):
    """One for all pages: what the page is made of is fetched once."""
    found = chromium.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    found.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.address)
    yield found
    found.close()


@pytest.fixture
def tab(server, context):
    found = Tab(context, server)
    yield found
    found.page.close()
    assert found.wrong == []


@pytest.fixture(scope="module")
def settled_tab(server, context):
    """A page on which the staircase has ended."""
    found = Tab(context, server).open()
    yield found
    found.page.close()


@pytest.fixture
def shown(settled_tab):
    """That page, for tests that leave it as they found it."""
    yield settled_tab
    wrong, settled_tab.wrong = settled_tab.wrong, []
    assert wrong == []


# Studies and controls ---------------------------------------------------------------------------


# The page has other parts for each kind; the other presets run in `test_explorer_server`. As many
# tests as the tests have processes to run in: each has a server of its own.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(3))
def test_a_preset_of_each_kind_loads_and_finishes(tab, part):
    load_and_look_at(tab, presets_of_each_kind()[part::3])


def load_and_look_at(tab, chosen: list[Study]) -> None:
    tab.open()
    for preset in chosen:
        if preset.id != "linear/staircase":  # which is there already
            tab.page.click(f'#presets [data-preset="{preset.id}"]')
            tab.restarted()
        look_at(tab, preset)


def look_at(tab, preset: Study) -> None:
    """Checks that everything that the page shows of a run is there."""
    tab.drawn()
    assert tab.shown()["p"] == preset.id and tab.shown()["c"] == preset.config.given()
    assert tab.points() > 10
    assert tab.page.locator("#panels [data-panel]").count() >= 1
    assert tab.page.locator("#heads [data-head]").count() >= 1
    assert len(tab.page.inner_text("#words")) > 20
    verdicts = tab.page.locator("#claims [data-claim]").evaluate_all(
        "(all) => all.map((each) => each.dataset.verdict)"
    )
    assert "waiting" not in verdicts and "fails" not in verdicts
    for _ in range(2):  # time as the preset has it, then the other way
        curves_lie_together(tab)
        tab.page.click("#log-time")


# The moments of every curve of the loss, as they are given to be drawn, and which have a value.
CURVES = """() => document.querySelector("#loss").data.map(({ name, x, y }) =>
  ({ name, times: [...x], losses: [...y] }))"""


def curves_lie_together(tab) -> None:
    """Checks that theory is drawn from the first to the last point of the run, and nothing where
    the axis has no place for it: a line to there would be drawn flat."""
    tab.drawn()
    log = tab.page.get_attribute("#log-time", "aria-pressed") == "true"
    run, *theory = tab.page.evaluate(CURVES)
    for curve in (run, *theory):
        assert len(curve["times"]) == len(curve["losses"]) and curve["times"][0] >= 0
        assert curve["times"][0] > 0 or not log
    for curve in theory:
        assert curve["times"][0] <= run["times"][0] and curve["times"][-1] >= run["times"][-1]
        assert curve["losses"][0] is not None


def test_controls_change_the_run(tab):
    tab.open()
    before = tab.page.inner_text("#words")
    tab.set_number("model.heads", 2)
    tab.restarted()
    assert tab.shown()["c"]["model"]["heads"] == 2
    # Two heads of rank one learn two components, and no more.
    assert tab.page.inner_text("#words") != before
    assert tab.page.locator("#heads [data-head]").count() == 2


@pytest.mark.slow
def test_a_bar_is_moved_with_the_keyboard_and_with_the_mouse(tab):
    tab.open()
    bar = tab.page.locator('[data-field="task.eigenvalues"] [role="slider"]').first
    bar.focus()
    bar.press("ArrowUp")
    tab.restarted()
    raised = tab.shown()["c"]["task"]["eigenvalues"][0]
    assert raised > 0.4 and float(bar.get_attribute("aria-valuenow")) == pytest.approx(raised)
    box = bar.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30, steps=4)
    tab.page.mouse.up()
    tab.restarted()
    assert tab.shown()["c"]["task"]["eigenvalues"][0] < raised


def outdated(tab) -> bool:
    """Whether picture, words and verdicts are marked, for eyes and ears, as of other settings."""
    tab.drawn()
    marks = tab.page.locator(".of-before:visible").count()
    faint = tab.page.evaluate(
        """() => ["#claims", "#words", "#loss"].map((part) =>
        Number(getComputedStyle(document.querySelector(part)).opacity) < 1)"""
    )
    described = tab.page.locator('#claims[aria-describedby="status-words"]').count()
    said = "shows the previous settings" in tab.page.inner_text("#status-words")
    found = {marks == 3, all(faint), described == 1, said}
    assert len(found) == 1 and (marks, any(faint)) in ((0, False), (3, True)), (marks, faint, said)
    return found.pop()


@pytest.mark.slow
def test_what_cannot_be_is_said_at_its_control_and_the_picture_is_marked_as_old(tab):
    tab.open()
    points = tab.points()
    assert not outdated(tab)
    tab.set_number("model.heads", 99)
    told = tab.page.locator('[data-field="model.heads"]')
    told.locator("text=at most 16 heads").wait_for()
    assert told.locator('[aria-invalid="true"]').count() >= 1 and outdated(tab)
    assert tab.points() == points and tab.page.get_attribute("html", "data-state") == "settled"
    tab.set_number("model.heads", 2)
    tab.restarted()
    assert told.locator('[aria-invalid="true"]').count() == 0 and not outdated(tab)
    # What the server never hears of, and what waits for a press of Run.
    tab.set_number("model.heads", "two")
    assert told.locator('[aria-invalid="true"]').count() >= 1 and outdated(tab)
    tab.page.uncheck("#auto")
    tab.set_number("model.heads", 2)
    assert outdated(tab) and told.locator('[aria-invalid="true"]').count() == 0
    tab.page.click("#run")
    tab.restarted()
    assert not outdated(tab)


# Time -------------------------------------------------------------------------------------------

HEAD_MAPS = """() => [...document.querySelectorAll("#heads canvas")].map((c) => c.toDataURL())"""


def test_the_time_slider_moves_every_panel(tab):
    tab.open()

    def seen() -> list:
        tab.drawn()
        parts = ["#clock-text", "#words", "#panels", "#heads"]
        texts = [tab.page.inner_text(part) for part in parts]
        maps = tab.page.evaluate(HEAD_MAPS)
        cursors = tab.page.evaluate(
            """() => [...document.querySelectorAll(".cursor")].map((c) => c.style.transform)"""
        )
        return [*texts, maps, cursors]

    end = seen()
    tab.slide(0.3)
    early = seen()
    assert all(a != b for a, b in zip(end, early)), [a == b for a, b in zip(end, early)]
    tab.slide(1.0)
    assert seen() == end


@pytest.mark.slow
def test_weights_that_come_late_are_not_drawn_over_later_ones(tab):
    tab.open()
    tab.drawn()
    end = tab.page.evaluate(HEAD_MAPS)
    held = []
    tab.page.route("**/moment/*", lambda route: held.append(route))
    tab.slide(0.3)
    assert wait_for(lambda: tab.page.wait_for_timeout(20) or held)
    tab.slide(1.0)  # whose weights the page has
    tab.drawn()
    with tab.page.expect_response("**/moment/*"):
        held[0].continue_()
    tab.drawn()
    assert tab.page.evaluate(HEAD_MAPS) == end


@pytest.mark.slow
def test_play_moves_time_and_keys_work(tab):
    tab.open()
    tab.slide(0.0)
    tab.page.locator("#loss-title").click()
    tab.page.keyboard.press("Space")
    tab.page.wait_for_timeout(600)
    tab.page.keyboard.press("Space")
    tab.page.wait_for_timeout(300)  # a frame may be under way
    played = int(tab.page.input_value("#clock"))
    assert 0 < played
    tab.page.focus("#clock")
    tab.page.keyboard.press("ArrowRight")
    assert int(tab.page.input_value("#clock")) == played + 1
    tab.page.locator("#loss-title").click()
    tab.page.keyboard.press("l")
    assert tab.page.get_attribute("#log-time", "aria-pressed") == "true"
    tab.page.keyboard.press("?")
    tab.page.wait_for_selector("#keys[open]")


def test_theory_and_run_begin_together_on_both_kinds_of_axis(shown):
    for _ in range(2):
        curves_lie_together(shown)
        shown.page.click("#log-time")


def test_the_mouse_reads_the_values_of_both_curves(shown):
    frame = shown.page.locator(".plotbox.loss").bounding_box()
    low, high = shown.page.evaluate("document.querySelector('#loss').layout.xaxis.range")
    margins = shown.page.evaluate("import('/static/loss.js').then((loss) => loss.margins())")
    wide = frame["width"] - margins["l"] - margins["r"]
    run, theory = shown.page.evaluate(CURVES)
    # On the second plateau, where both curves are flat.
    time = 0.5 * (run["times"][0] + 0.35 * high)
    across = frame["x"] + margins["l"] + wide * (time - low) / (high - low)
    shown.page.mouse.move(across, frame["y"] + 100)
    words = re.fullmatch(r"time (.+), loss (.+), theory (.+)", shown.page.inner_text(".under"))
    assert words is not None
    expected = [np.interp(time, one["times"], one["losses"]) for one in (run, theory)]
    # Four digits are shown, and the mouse is on a pixel, of which there are some hundreds.
    pixel = (high - low) / wide
    assert float(words[1]) == pytest.approx(time, abs=pixel + 1)
    assert [float(words[2]), float(words[3])] == pytest.approx(expected, rel=2e-3)
    # In the margin: the name of the nearest line, in full.
    shown.page.mouse.move(frame["x"] + frame["width"] - 20, frame["y"] + margins["t"] + 5)
    assert shown.page.inner_text(".under") == "plateau 1"
    shown.page.mouse.move(5, 5)
    assert not shown.page.is_visible(".under")


def test_presets_are_one_stop_of_the_tab_key_and_arrows_lead_through_them(shown):
    page = shown.page
    focused = lambda: page.evaluate("document.activeElement.dataset.preset")
    assert page.locator('#presets [tabindex="0"]').count() == 1
    assert page.get_by_role("listbox", name="Presets").get_by_role("option").count() > 24
    page.focus("#fold-presets summary")
    page.keyboard.press("Tab")
    assert focused() == "linear/staircase"
    all_presets = page.eval_on_selector_all(
        "#presets .card", "(all) => all.map((one) => one.dataset.preset)"
    )
    for key, place in (("ArrowRight", 1), ("ArrowDown", 3), ("ArrowLeft", 2), ("ArrowUp", 0),
                       ("End", -1), ("ArrowRight", -1), ("Home", 0)):  # fmt: skip
        page.keyboard.press(key)
        assert focused() == all_presets[place], key
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "run"
    # Nothing was chosen on the way.
    chosen = page.locator('#presets [aria-selected="true"]')
    assert chosen.get_attribute("data-preset") == shown.shown()["p"] == "linear/staircase"
    page.evaluate("document.querySelector('#presets .card').tabIndex = 0")


# The state of the page is put back, as the tests that come later need it.
BEFORE_POINTS = """async () => {
  const { app } = await import("/static/app.js"), { drawLoss } = await import("/static/loss.js");
  const { drawClaims } = await import("/static/words.js");
  const { shown, current, preset } = app, text = (id) => document.getElementById(id).textContent;
  const found = {};
  app.shown = null;
  app.current = { ...current, status: "queued", theory: null, times: [], losses: [] };
  drawLoss();
  found.waiting = [document.getElementById("loss-picture").hidden, text("loss-empty-words")];
  app.current.theory = shown.theory;
  drawLoss();
  found.empty = document.getElementById("loss-empty").hidden;
  found.curves = document.getElementById("loss").data.map((one) => [one.name, one.x.length > 9]);
  found.legend = text("loss-legend");
  Object.assign(app.current, { claims: [], claimsKnown: true });
  app.preset = "linear/in-weight";
  drawClaims();
  found.claims = text("claims");
  Object.assign(app, { shown, current, preset });
  drawLoss();
  drawClaims();
  return found;
}"""


def test_before_the_first_point_there_is_a_picture_and_then_theory(shown):
    found = shown.page.evaluate(BEFORE_POINTS)
    assert found["waiting"][0] is False and "The curve of this run follows" in found["waiting"][1]
    assert found["empty"] and found["curves"] == [["simulated", False], ["theory", True]]
    assert "theory" in found["legend"] and "simulated" not in found["legend"]
    # A preset that no claim on one run is about says what it shows, and where that is tested.
    assert "What it shows: Some sequences have a fresh task vector" in found["claims"]
    assert "iclflow verify --claim linear/in-context-in-weight" in found["claims"]
    assert shown.page.locator("#claims [data-claim]").count() > 3


def test_numbers_that_are_zero_up_to_rounding_are_shown_as_zero(shown):
    shown_as = shown.page.evaluate(
        """async () => { const { number } = await import("/static/text.js");
        return [number(4.5e-131), number(-2e-31), number(3e-20), number(3e-20, 3, 1e-12),
          number(0.25), number(-2e-7, 3, 1e-12)]; }"""
    )
    assert shown_as == ["0", "0", "3·10⁻²⁰", "0", "0.25", "−2·10⁻⁷"]
    # A line of such numbers is flat, and not the noise of rounding on an axis of its own.
    ranges = shown.page.evaluate(
        """async () => { const { scaleOf } = await import("/static/panels.js");
        return [[4e-16, 0], [4e-7, 0]].map((y) => scaleOf({}, [{ y }], {}).range ?? null); }"""
    )
    assert ranges == [[-1, 1], None]


# Compare, share, export -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pinned_run_stays_beside_the_next_one(tab):
    tab.open()
    tab.page.click("#pin")
    tab.set_number("model.heads", 2)
    tab.restarted()
    differences = tab.page.inner_text("#differences")
    assert "4" in differences and "2" in differences
    assert tab.page.locator("#heads [data-head]").count() == 6
    traces = tab.page.evaluate("() => document.querySelector('#loss').data.length")
    assert traces >= 3
    tab.page.click("#unpin")
    assert tab.page.locator("#heads [data-head]").count() == 2


@pytest.mark.slow
def test_an_address_brings_everything_back(tab, server, chromium):
    tab.open()
    tab.page.click("#pin")
    tab.set_number("model.heads", 2)
    tab.restarted()
    tab.page.click("#log-time")
    tab.slide(0.4)
    tab.drawn()
    tab.page.click("#share")
    tab.page.locator("#note", has_text="Link copied").wait_for(state="attached")
    address = tab.page.evaluate("navigator.clipboard.readText()")
    assert address.startswith(server.address) and address == tab.page.url
    moment = tab.moment()
    other = Tab(chromium.new_context(viewport={"width": 1440, "height": 1000}), server)
    other.page.goto(address)
    other.until("settled")
    other.page.locator("#heads [data-head]").nth(5).wait_for(state="attached")
    other.drawn()
    assert other.moment() == moment and other.shown()["c"] == tab.shown()["c"]
    assert other.page.locator("#heads [data-head]").count() == 6
    assert other.page.get_attribute("#log-time", "aria-pressed") == "true"
    assert other.wrong == []
    other.page.context.close()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["png", "pdf", "csv", "json", "toml", "py"])
def test_exports_are_files_that_open(shown, tmp_path, kind):
    tab = shown
    tab.page.click("#exports summary")
    with tab.page.expect_download() as waiting:
        tab.page.click(f"#export-{kind}")
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    content = path.read_bytes()
    assert path.suffix == f".{kind}"
    if kind == "toml":
        assert parse_config(tomllib.loads(content.decode())).given() == tab.shown()["c"]
    elif kind == "json":
        assert len(json.loads(content)["times"]) == tab.points()
    elif kind == "csv":
        assert len(content.splitlines()) == tab.points() + 1
    elif kind == "py":
        compile(content, str(path), "exec")
    else:
        assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[kind])
    tab.page.click("#exports summary")  # which closes the list


# Runs that are under way ------------------------------------------------------------------------


def long_run(tab) -> None:
    """Starts a run that takes minutes."""
    tab.open(fragment({"v": 1, "c": parse_config(ENDLESS).given()}), "running")
    tab.page.wait_for_selector("#clock:not([max='0'])", state="attached")


def moves_on(tab, before: int) -> bool:
    """Whether a run gets more points than it had, in time."""
    return wait_for(lambda: tab.page.wait_for_timeout(20) or tab.points() > before, 30)


@pytest.mark.slow
def test_a_run_is_paused_continued_and_cancelled(tab):
    long_run(tab)
    tab.page.click("#pause")
    tab.until("paused")
    stood = tab.points()
    assert stood > 1
    tab.page.click("#continue")
    tab.until("running")
    assert moves_on(tab, stood)
    tab.page.click("#cancel")
    tab.until("cancelled", 15)
    assert tab.points() >= stood


@pytest.mark.slow
def test_a_reload_in_the_middle_goes_on_with_the_run(tab):
    long_run(tab)
    run, before = tab.current(), tab.points()
    tab.page.reload()
    tab.until("running")
    assert moves_on(tab, before)
    assert tab.current() == run
    tab.page.click("#cancel")
    tab.until("cancelled", 15)


@pytest.mark.slow
def test_a_server_that_goes_away_is_told_of(tmp_path, chromium):
    with serving("--workers", "1", folder=tmp_path) as server:
        context = chromium.new_context()
        tab = Tab(context, server)
        tab.page.goto(server.address)
        tab.page.wait_for_selector('[data-field="model.heads"] input')
        # What the page is made of is there: nothing else can go wrong.
        assert wait_for(lambda: tab.page.evaluate("Boolean(window.Plotly)"))
        server.process.kill()
        server.process.wait(10)
        tab.page.click("#run")
        tab.page.wait_for_selector("#message:not([hidden])")
        assert "does not answer" in tab.page.inner_text("#message")
        context.close()


# What is on disk --------------------------------------------------------------------------------


def test_a_stored_run_is_opened_from_the_list(tab, stored, server):
    tab.open()
    tab.page.click("#open-stored")
    tab.page.locator("#stored").get_by_text("small", exact=False).first.wait_for()
    # By name, hash, result and date.
    rows = tab.page.locator("#stored-lists li:visible")
    (run,) = (each for each in server.get("/api/stored")["runs"] if each["name"] == "small")
    here = datetime.datetime.fromtimestamp(run["written"]).strftime("%Y-%m-%d %H:%M")
    assert f"{here}, {run['hash'][:8]}, converged" in " ".join(rows.all_inner_texts())
    for words, found in (("nothing like it", 0), (f"{run['hash'][:8]} conv", 1), ("", 2)):
        tab.page.fill("#stored-text", words)
        assert rows.count() == found
    tab.page.get_by_role("button", name="Open the run small").click()
    tab.restarted()
    assert tab.shown().get("o") and tab.page.locator("#heads [data-head]").count() == 2
    is_about(tab, "small A run from disk, as it was stored.")
    tab.page.reload()
    tab.until("settled")
    is_about(tab, "small A run from disk, as it was stored.")
    tab.set_number("model.heads", 1)
    tab.restarted()
    is_about(tab, "small A run from disk, as it was stored.")
    assert tab.page.inner_text("#preset-changes") == "Changed from small: model.heads"
    tab.page.click('#presets [data-preset="linear/staircase"]')
    tab.restarted()
    assert tab.page.locator("#preset-words b").count() == 0


def is_about(tab, words: str) -> None:
    """Checks that the page names what it shows, and no preset beside it."""
    assert tab.page.inner_text("#preset-words") == words
    assert tab.page.locator('#presets [aria-selected="true"]').count() == 0
    assert tab.page.locator('#controls [data-field="model.heads"]').count() == 1


@pytest.mark.slow
def test_a_cell_of_a_phase_diagram_opens_its_run(tab, stored):
    tab.open()
    tab.page.click("#open-stored")
    tab.page.get_by_role("button", name="Open the sweep scales").click()
    tab.page.wait_for_selector("#diagram .heatmaplayer", state="attached")
    tab.page.focus("#diagram-box")
    for key in ("ArrowRight", "ArrowRight"):
        tab.page.keyboard.press(key)
    assert "model.scale 0.1, task.noise 0" in tab.page.inner_text("#sweep-cell")
    tab.page.keyboard.press("Enter")
    tab.restarted()
    assert tab.shown()["o"]["x"] == {"name": "model.scale", "value": 0.1}
    assert tab.page.locator("#heads [data-head]").count() == 2
    again = "A run of a sweep, computed again: the sweep did not keep its weights."
    is_about(tab, f"run 4 of scales {again}")


@pytest.mark.slow
def test_a_cell_of_a_phase_diagram_is_opened_with_the_mouse(tab, stored):
    tab.open()
    tab.page.click("#open-stored")
    tab.page.get_by_role("button", name="Open the sweep scales").click()
    box = tab.page.locator("#diagram .nsewdrag").bounding_box()
    tab.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.75 * box["height"], steps=3)
    tab.page.wait_for_timeout(300)
    tab.page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.75 * box["height"])
    tab.restarted()
    assert tab.shown()["o"]["x"]["value"] == 0.01


# Screens, speed ---------------------------------------------------------------------------------


# Each screen is loaded in one scheme, and then put into the other.
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("size", "schemes"),
    [
        ((390, 844), ("dark", "light")),
        ((768, 1024), ("light", "dark")),
        ((1440, 900), ("dark", "light")),
    ],
)
def test_no_screen_is_cut_off_and_all_text_is_readable(tab, size, schemes):
    width, height = size
    tab.page.set_viewport_size({"width": width, "height": height})
    for scheme in schemes:
        tab.page.emulate_media(color_scheme=scheme)
        if scheme == schemes[0]:
            tab.open()
        else:
            tab.drawn()
        # The page hears of a new scheme by an event, which may come later than the change.
        dark = "yes" if scheme == "dark" else "no"
        tab.page.wait_for_selector(f'html[data-dark="{dark}"]', state="attached")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.page.evaluate(CONTRAST) == []
        tab.drawn()
        assert tab.page.locator("#clock").bounding_box()["width"] >= 180
        assert tab.page.evaluate(CUT_OFF) == []


# Captions and states of which a part is not shown.
CUT_OFF = """() => {
  const cut = (node) => node.scrollWidth > node.clientWidth + 1 ||
    (node.scrollHeight > node.clientHeight + 1 && getComputedStyle(node).display !== "inline");
  const all = document.querySelectorAll("#status, .panel > :is(h3, .quiet), .card span");
  return [...all].filter(cut).map((node) => node.textContent);
}"""

# Texts whose contrast with what is behind them is below that of WCAG AA.
CONTRAST = """() => {
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const colour = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const c = colour(getComputedStyle(node).backgroundColor);
    if (c.length === 3 || (c.length === 4 && c[3] === 1)) return c.slice(0, 3); }
    return [255, 255, 255]; };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    if (!node.checkVisibility() || node.closest("svg, [disabled], .js-plotly-plot")) continue;
    if (![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(colour(style.color).slice(0, 3)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push([node.className, node.textContent, ratio]);
  }
  return found;
}"""


# Milliseconds: to the first curve, to the whole one, of the slowest frame. Then the share of the
# page that jumps, all jumps together.
LIMITS = {"first": 1000, "whole": 3000, "frame": 100, "shift": 0.02}


@pytest.mark.timed
def test_the_four_plateaus_are_drawn_in_time_without_a_jump(tab):
    tab.page.add_init_script(WATCH)
    tab.open()
    # Warm: everything is compiled. Of three tries the best counts; another program may have run.
    best = dict.fromkeys(LIMITS, 1e9)
    for _ in range(3):
        tab.page.evaluate(
            "() => { performance.clearMarks(); frames_.length = 0; shifts_.length = 0; }"
        )
        start = tab.page.evaluate(
            "() => { const now = performance.now(); run.click(); return now; }"
        )
        tab.restarted()
        tab.drawn()
        marks = dict(
            tab.page.evaluate(
                "() => performance.getEntriesByType('mark').map((m) => [m.name, m.startTime])"
            )
        )
        frame = tab.page.evaluate("Math.max(...frames_.slice(1))")
        best["first"] = min(best["first"], marks["first-curve"] - start)
        best["whole"] = min(best["whole"], marks["run-shown"] - start)
        shift = tab.page.evaluate("shifts_.reduce((a, b) => a + b, 0)")
        best["frame"], best["shift"] = min(best["frame"], frame), min(best["shift"], shift)
        if all(best[name] <= most for name, most in LIMITS.items()):
            break
    assert all(best[name] <= most for name, most in LIMITS.items()), best


@pytest.mark.timed
def test_the_page_is_usable_within_five_seconds_of_the_command(tmp_path, chromium):
    taken = []
    while len(taken) < 3 and min(taken, default=9.0) >= 5:  # another program may have run
        start = time.monotonic()
        with serving("--workers", "1", folder=tmp_path) as server:
            context = chromium.new_context()
            page = context.new_page()
            page.goto(server.address)
            page.wait_for_selector('#presets [data-preset="linear/staircase"]')
            page.wait_for_selector('[data-field="model.heads"] input')
            taken.append(time.monotonic() - start)
            context.close()
    assert min(taken) < 5, taken


def test_the_first_line_of_the_tool_is_the_only_one_where_there_is_no_browser(tmp_path):
    tool = Path(__file__).resolve().parent.parent / "tools" / "browser.py"
    env = {"PATH": str(tmp_path), "ICLFLOW_BROWSER": "nowhere"}
    done = subprocess.run([sys.executable, str(tool)], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and "left out" in done.stdout
    required = [sys.executable, str(tool), "--required"]
    assert subprocess.run(required, env=env, capture_output=True).returncode == 1


@pytest.mark.slow
def test_a_change_while_time_plays_asks_for_no_weights_that_are_gone(tab):
    tab.open()
    tab.page.select_option("#speed", "0.5")
    tab.page.click("#play")
    tab.page.wait_for_timeout(300)
    # A shape that nobody has compiled: the run before it stays on the screen, and plays on.
    tab.set_number("model.heads", 7)
    tab.restarted()
    assert tab.page.locator("#heads [data-head]").count() == 7
    # `tab` fails where the console had an error.

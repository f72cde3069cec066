"""Pages of the explorer in a real browser, for tests."""

import base64
import json
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from browser import browser as find_browser

OPTIONS = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
# A page is watched from before its first script on: how long frames took, and what jumped.
WATCH = """
window.frames_ = []; window.shifts_ = [];
let last = performance.now();
const tick = () => { const now = performance.now(); window.frames_.push(now - last); last = now;
  requestAnimationFrame(tick); };
requestAnimationFrame(tick);
new PerformanceObserver((list) => { for (const entry of list.getEntries())
  if (!entry.hadRecentInput) window.shifts_.push(entry.value); })
  .observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_browser(), args=OPTIONS)
        yield found
        found.close()


class Tab:
    """One page, and everything that went wrong in it."""

    def __init__(self, context, server):
        self.page = context.new_page()
        self.server = server
        self.wrong: list[str] = []
        self.seen: str | None = None
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)

    def _heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, request) -> None:
        if not request.url.startswith((self.server.address, "data:", "blob:")):
            self.wrong.append(f"asked another host: {request.url}")

    def open(self, fragment: str = "", state: str = "settled") -> "Tab":
        self.page.goto(self.server.address + fragment)
        self.until(state)
        self.seen = self.current()
        return self

    def until(self, state: str, seconds: float = 240) -> None:
        """Waits for a state of the page; long, since all tests share the machine and workers give
        way to others."""
        from playwright.sync_api import TimeoutError

        selector = f'html[data-state="{state}"]'
        try:
            self.page.wait_for_selector(selector, state="attached", timeout=1000 * seconds)
        except TimeoutError:
            seen = self.page.get_attribute("html", "data-state"), self.page.inner_text("#status")
            pytest.fail(f"not {state} after {seconds:g} s, but {seen}: {self.page.url}")

    def shown(self) -> dict:
        """The run that the page shows, as its address names it."""
        fragment = self.page.url.partition("#")[2]
        padded = fragment + "=" * (-len(fragment) % 4)
        return json.loads(base64.urlsafe_b64decode(padded))

    def drawn(self) -> None:
        """Waits until everything on the page is that of the moment of the slider."""
        self.page.evaluate(
            """async () => { const { whenDrawn } = await import("/static/schedule.js");
            await new Promise(whenDrawn); }"""
        )
        self.page.wait_for_selector('#heads[aria-busy="false"]', state="attached")

    def moment(self) -> str:
        return self.page.inner_text("#clock-text")

    def points(self) -> int:
        return int(self.page.get_attribute("#clock", "max")) + 1

    def slide(self, share: float) -> int:
        """Moves the time slider as a hand does, and returns the index."""
        index = round(share * (self.points() - 1))
        self.page.evaluate(
            """(index) => { const clock = document.getElementById("clock"); clock.value = index;
            clock.dispatchEvent(new Event("input", { bubbles: true }));
            clock.dispatchEvent(new Event("change", { bubbles: true })); }""",
            index,
        )
        return index

    def set_number(self, field: str, value: float | str) -> None:
        entry = self.page.locator(f'[data-field="{field}"] input.number').first
        entry.fill(str(value))
        entry.press("Enter")

    def current(self) -> str | None:
        """The run that the page is about."""
        return self.page.evaluate("JSON.parse(sessionStorage.getItem('tab') ?? '{}').current")

    def restarted(self) -> None:
        """Waits until another run than before is shown to its end."""
        end = time.monotonic() + 60
        while self.current() in (None, self.seen):
            assert time.monotonic() < end, "no other run was started"
            self.page.wait_for_timeout(20)
        self.until("settled")
        self.seen = self.current()

"""Many browsers at one explorer: each starts and cancels runs for a while.

Usage: `python tools/explorer_load.py [--sessions 50] [--seconds 60]`. Every second one has runs
that take a moment, the others runs that take minutes. Prints what was done, how long answers took,
the memory of the server, and whether every run that was cancelled has stopped. Exit code 1 if
anything was wrong.

`--idle 1100` does something else: it holds so many connections that ask for nothing, at a server
that may have 1024 files open, kills its worker, and asks for a run. Prints how long answers took,
how the run ended, and how much the server wrote to its log.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from browser import browser  # noqa: E402

from explorer_client import ENDLESS, STAIRCASE, fragment, serving, wait_for  # noqa: E402
from iclflow.config import parse_config  # noqa: E402

OPTIONS = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
AT_ONCE = 4  # pages that are opened together
FILES = 1024  # that a server may have open while idle connections are held
LONG = fragment({"v": 1, "c": parse_config(ENDLESS).given()})
# Reads the stream of events beside the page, to see that none is missing.
COUNT = """
window.events_ = { seen: [], gaps: 0 };
const plain = window.fetch;
window.fetch = async (address, options) => {
  const answer = await plain(address, options);
  if (!String(address).startsWith("/api/events") || !answer.body) return answer;
  const [ours, theirs] = answer.body.tee();
  (async () => {
    const reader = ours.getReader();
    let text = "";
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        text += new TextDecoder().decode(value);
        const found = [...text.matchAll(/^id: (\\d+)$/gm)].map((one) => Number(one[1]));
        text = text.slice(text.lastIndexOf("\\n\\n") + 1);
        window.events_.seen.push(...found);
      }
    } catch {}
  })();
  return new Response(theirs, { status: answer.status, headers: answer.headers });
};
"""


async def main(sessions: int, seconds: float) -> int:
    from playwright.async_api import async_playwright

    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, serving(folder=Path(folder)) as server:
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(executable_path=browser(), args=OPTIONS)
            start = time.monotonic()
            # A few at a time: all at once, each would wait for all others to be drawn.
            few = asyncio.Semaphore(AT_ONCE)
            addresses = [server.address, server.address + LONG]
            opening = [opened(chromium, addresses[i % 2], wrong, few) for i in range(sessions)]
            pages = await asyncio.gather(*opening)
            print(f"{sessions} pages opened in {time.monotonic() - start:.0f} s", flush=True)
            await asyncio.sleep(2)
            memory, facts = [server.memory()], []
            end = time.monotonic() + seconds
            work = [asyncio.create_task(used(page, end, i)) for i, page in enumerate(pages)]
            while time.monotonic() < end:
                await asyncio.sleep(2)
                memory.append(server.memory())
                facts.append(await asyncio.to_thread(server.get, "/api/health"))
            done = await asyncio.gather(*work)
            counts = [await page.evaluate("events_.seen.length") for page in pages]
            doubled = [
                await page.evaluate("events_.seen.length - new Set(events_.seen).size")
                for page in pages
            ]
            stopped = await stops(server)
            for page in pages:
                state = await page.get_attribute("html", "data-state")
                if state not in ("settled", "cancelled"):
                    wrong.append(f"a page is left {state}")
            await chromium.close()
        runs = sum(one["runs"] for one in done)
        cancelled = [delay for one in done for delay in one["cancelled"]]
        if not stopped < 15:
            wrong.append("runs went on after they were cancelled")
    half = len(memory) // 2
    early, late = max(memory[:half]), max(memory[half:])
    print(f"{runs} runs started, {len(cancelled)} cancelled under way in {seconds:g} s")
    print(f"{sum(counts)} events seen, {sum(doubled)} of them twice")
    if cancelled:
        print(
            f"click on Cancel to 'cancelled': median {statistics.median(cancelled):.2f} s, "
            f"longest {max(cancelled):.2f} s"
        )
    print(f"memory of the server: {early / 2**20:.0f} MiB, then {late / 2**20:.0f} MiB")
    print(f"most runs waiting: {max(one['waiting'] for one in facts)}")
    print(f"all workers idle {stopped:.1f} s after the last cancel")
    print(f"errors: {len(wrong)}", *wrong[:5], sep="\n  ")
    return 1 if wrong or sum(doubled) or late > 1.5 * early else 0


def hold_idle(count: int) -> int:
    """Holds `count` connections that ask for nothing, and asks for a run meanwhile."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, most))
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        server = held.enter_context(serving("--workers", "1", folder=folder))
        wait_for(lambda: server.get("/api/health")["workers"], 120)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server keeps the lower one
        host, port = server.host.split(":")
        sockets = [
            held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            for _ in range(count)
        ]
        print(f"{len(sockets)} connections opened", flush=True)
        try:
            return asked_for(server)
        except OSError as error:
            print(f"the server does not answer: {error}")
            return 1
        finally:
            size = (server.temporary / "log").stat().st_size
            print(f"log of the server: {size} bytes", flush=True)
            held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (before, most))


def asked_for(server) -> int:
    """Kills the worker, asks for a run, and says how it ended."""
    slowest = 0.0
    for _ in range(20):
        start = time.monotonic()
        server.get("/api/health")
        slowest = max(slowest, time.monotonic() - start)
    print(f"slowest of 20 answers: {slowest:.3f} s", flush=True)
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)
    start, page = time.monotonic(), server.page()
    run = page.run(STAIRCASE)
    try:
        end = page.until(run, "settled", "failed", timeout=120)[-1]["type"]
    except TimeoutError:
        end = "not over"
    print(f"a run after its worker was killed: {end} after {time.monotonic() - start:.0f} s")
    return 0 if end == "settled" else 1


async def opened(chromium, address: str, wrong: list[str], few: asyncio.Semaphore):
    """A page in a browser session of its own, ready to run."""
    async with few:
        context = await chromium.new_context(viewport={"width": 1200, "height": 800})
        page = await context.new_page()
        page.set_default_timeout(300_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda message: wrong.append(message.text) if message.type == "error" else None,
        )
        await page.add_init_script(COUNT)
        await page.goto(address)
        await page.wait_for_selector("html[data-state]", state="attached")
    return page


async def used(page, end: float, seed: int) -> dict:
    """Starts and cancels runs until the end."""
    chance = random.Random(seed)
    runs, cancelled = 0, []
    while time.monotonic() < end:
        if not await page.is_enabled("#cancel"):
            await page.evaluate("document.getElementById('run').click()")
        runs += 1
        await asyncio.sleep(chance.uniform(0.1, 2.0))
        if await page.is_enabled("#cancel"):
            start = time.monotonic()
            await page.evaluate("document.getElementById('cancel').click()")
            over = 'html:is([data-state="cancelled"], [data-state="settled"], [data-state="ended"])'
            await page.wait_for_selector(over, state="attached")
            cancelled.append(time.monotonic() - start)
        await asyncio.sleep(chance.uniform(0.0, 0.5))
    if await page.is_enabled("#cancel"):
        await page.evaluate("document.getElementById('cancel').click()")
    return {"runs": runs, "cancelled": cancelled}


async def stops(server) -> float:
    """Seconds until no worker has anything to do; infinite if that takes too long."""
    start = time.monotonic()
    while time.monotonic() - start < 60:
        facts = server.get("/api/health")
        if not facts["computing"] and not facts["waiting"]:
            return time.monotonic() - start
        await asyncio.sleep(0.2)
    print(json.dumps(facts), file=sys.stderr)
    return float("inf")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", type=int, metavar="N", help="hold N idle connections instead")
    options = parser.parse_args()
    if options.idle:
        sys.exit(hold_idle(options.idle))
    sys.exit(asyncio.run(main(options.sessions, options.seconds)))

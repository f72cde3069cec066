"""The state of a server: pages, their runs, the queue, and the workers that compute them."""

import asyncio
import collections
import json
import shutil
import time
from typing import Any

from ..config import Config
from ._connections import LOGGER, MOST_STREAMS, MOST_STREAMS_OF_CLIENT
from ._desk import Told
from ._folder import checkpoint_folder
from ._limits import (
    LONGEST_RUN,
    MOST_BYTES,
    MOST_KEPT,
    MOST_SESSIONS,
    MOST_WAITING,
    MOST_WAITING_IN_ALL,
    Refusal,
)
from ._pool import Pool, Worker
from ._queue import FairQueue
from ._session import OVER, Run, Session, shape_of

# Seconds: between two looks at everything; that a page may be away before its runs are cancelled,
# and that one which has just asked for something may take, on a busy machine, until it listens;
# that a run may compute while another page waits; that a worker has to leave what it was told to.
_TICK = 0.25
_AWAY, _BUSY = 5.0, 30.0
_SLICE = 2.0
_GRACE = 8.0
# A worker that is still busy so long after the limit of its run does not answer.
_OVERDUE = 60.0
_MOST_QUESTIONS = 64


class Studio:
    """Everything that the server knows.

    **Arguments:**

    - `workers`: how many processes compute.
    - `warm`: a config that idle workers compile when they start, before anybody asks.
    """

    def __init__(self, workers: int, warm: Config | None = None):
        self._pool = Pool(workers, self._heard, self._lost)
        self._warm = warm
        self._sessions: collections.OrderedDict[str, Session] = collections.OrderedDict()
        self._queue = FairQueue()
        self._running: dict[int, Run] = {}
        self._questions: collections.deque = collections.deque()
        self._answers: dict[int, asyncio.Future] = {}
        self._streams: collections.Counter[str] = collections.Counter()
        self.closing = False

    # The life of the server ------------------------------------------------------------------

    async def start(self) -> None:
        self._folder = checkpoint_folder()
        self._pool.start()
        self._ticking = asyncio.create_task(self._tick_forever())

    async def close(self) -> None:
        self.end_streams()
        self._ticking.cancel()
        await asyncio.to_thread(self._pool.close)
        shutil.rmtree(self._folder, ignore_errors=True)

    def end_streams(self) -> None:
        """Lets all streams of events end."""
        self.closing = True
        for session in self._sessions.values():
            session.wake()

    # What pages ask for ----------------------------------------------------------------------

    def new_session(self) -> Session:
        while len(self._sessions) >= MOST_SESSIONS:
            idle = [s for s in self._sessions.values() if not s.active and not s.connections]
            if not idle:
                raise Refusal("Too many pages are open at once: close some.", status=503)
            self._drop(idle[0])
        session = Session()
        self._sessions[session.id] = session
        return session

    def session(self, id: Any) -> Session:
        """The page of this id; it is now the one that was heard of last."""
        session = self._sessions.get(id) if isinstance(id, str) else None
        if session is None:
            raise Refusal("This page is not known to the server: load it again.", "session", 404)
        self._sessions.move_to_end(session.id)
        session.expected = time.monotonic() + _BUSY
        return session

    def listen(self, session: Session, client: str) -> None:
        """A stream of a page begins, unless there are too many of this page or this client."""
        if session.connections >= MOST_STREAMS:
            words = f"This page has {MOST_STREAMS} streams of events, the most it may have"
            raise Refusal(f"{words}: close it where else it is open.", "session", 429)
        if self._streams[client] >= MOST_STREAMS_OF_CLIENT:
            raise Refusal("Too many pages are open at once: close some.", status=429)
        session.connections += 1
        self._streams[client] += 1

    def left(self, session: Session, client: str) -> None:
        """A stream of this page has ended: from now on it counts as away."""
        session.connections -= 1
        self._streams[client] -= 1
        session.expected = time.monotonic() + _AWAY

    def run(self, id: str, session: Session | None = None) -> Run:
        """The run of this id; with a session, one of its own."""
        owners = self._sessions.values() if session is None else [session]
        for owner in owners:
            if id in owner.runs:
                return owner.runs[id]
        raise Refusal("There is no such run any more: start it again.", "run", 404)

    def submit(
        self,
        session: Session,
        config: Config,
        title: str,
        job: str = "run",
        needs: dict[str, Any] | None = None,
        stored: dict[str, Any] | None = None,
    ) -> Run:
        """Puts a run into the queue."""
        if len(session.active) >= MOST_WAITING:
            raise Refusal(
                f"This page has {MOST_WAITING} runs waiting or under way, the most it may have: "
                "cancel one.",
                status=429,
            )
        if len(self._queue) >= MOST_WAITING_IN_ALL:
            raise Refusal("Too many runs are waiting: try again in a moment.", status=503)
        run = Run(session, config, title, job, needs or {}, stored, self._folder)
        session.runs[run.id] = run
        self._enqueue(run)
        for old in [each for each in session.runs.values() if each.state in OVER][:-MOST_KEPT]:
            session.forget(old)
        self._dispatch()
        return run

    def wish(self, run: Run, wish: str) -> None:
        """Cancels, pauses, continues or forgets a run; what it cannot be is no error, since a run
        may end while the wish is on its way."""
        if wish == "continue":
            if run.state == "paused":
                run.session.publish(run, "resumed")
                self._enqueue(run)
                self._dispatch()
            elif run.state == "running" and run.wish == "pause":
                run.wish = "resume"
            return
        if wish == "pause" and run.job != "run":
            return
        if run.state == "queued" or run.state == "paused":
            self._queue.remove(run)
            if wish == "pause":
                self._pause(run)
            else:
                self._over(run, "cancelled", message="It had not begun.")
        elif run.state in ("running", "ended") and not (run.state == "ended" and wish == "pause"):
            run.wish = wish if run.wish != "forget" else run.wish
            if run.number is not None:
                self._pool.stop(run.number, "pause" if wish == "pause" else "cancel")
            if wish in ("cancel", "forget") and run.state == "running":
                # For the page it is over now; its worker is free when it has heard of it.
                self._over(run, "cancelled", message="What was computed stays.")
        if wish == "forget" and run.id in run.session.runs:
            run.session.forget(run)

    async def ask(self, name: str, needs: dict[str, Any]) -> Any:
        """What a worker answers to a short question; it goes before runs that wait."""
        if len(self._questions) >= _MOST_QUESTIONS:
            raise Refusal("Too many questions are waiting: try again in a moment.", status=503)
        if stalled := self._stalled():
            raise Refusal(stalled, status=503)
        answer = asyncio.get_running_loop().create_future()
        self._questions.append((name, needs, answer))
        self._dispatch()
        return await answer

    # Workers ---------------------------------------------------------------------------------

    def _enqueue(self, run: Run) -> None:
        """Puts a run into the queue; one that had begun comes before the others of its page."""
        run.state, run.wish = "queued", None
        run.asked_at = time.monotonic()
        self._queue.add(run, first=run.data.count > 0)
        run.place, run.why = self._queue.place(run), self._stalled()
        about = {"hash": run.config.hash, "title": run.title, "stored": run.stored, "why": run.why}
        run.session.publish(run, "queued", place=run.place, config=run.config.given(), **about)

    def _stalled(self) -> str | None:
        """Why nothing is computed at all, if that is so."""
        failure = self._pool.failure
        if failure is None or any(worker.ready for worker in self._pool.workers):
            return None
        return f"No process can be started that computes ({failure}); the server tries again."

    def _tell_places(self) -> None:
        """Tells waiting runs their place, and why nobody comes to take them."""
        why = self._stalled()
        for place, run in enumerate(self._queue.order()):
            if (run.place, run.why) != (place, why):
                run.place, run.why = place, why
                run.session.publish(run, "queued", place=place, why=why)
        while why is not None and self._questions:
            _, _, answer = self._questions.popleft()
            if not answer.done():
                answer.set_exception(Refusal(why, status=503))

    def _dispatch(self) -> None:
        """Gives free workers what waits: short questions first."""
        if self.closing:
            return
        while free := [worker for worker in self._pool.workers if worker.free]:
            while self._questions and self._questions[0][2].done():
                self._questions.popleft()  # whoever asked has gone
            if self._questions:
                name, needs, answer = self._questions.popleft()
                self._answers[self._pool.give(free[0], name, needs)] = answer
                continue
            run = self._queue.next()
            if run is None:
                return
            # One that has compiled what this run needs is ready at once.
            fit = next((worker for worker in free if run.shape in worker.shapes), free[0])
            self._give(fit, run)

    def _give(self, worker: Worker, run: Run) -> None:
        needs = {"config": run.config.given(), **run.needs}
        if run.job == "run":
            left = {"seconds": run.seconds, "limit": LONGEST_RUN}
            needs |= {"checkpoint": str(run.checkpoint), **left, "told": run.data.count}
        worker.shapes.add(run.shape)
        run.state, run.place, run.moved = "running", None, False
        run.number = self._pool.give(worker, run.job, needs)
        self._running[run.number] = run
        run.session.publish(run, "started", seconds_waited=time.monotonic() - run.asked_at)

    def _heard(self, worker: Worker, told: Told) -> None:
        if told.kind == "ready":
            self._dispatch()
            if worker.free and self._warm is not None:
                worker.shapes.add(shape_of(self._warm))
                self._pool.give(worker, "warm", {"config": self._warm.given()})
            return
        run = self._running.get(told.number)
        if run is not None:
            self._heard_of(run, told)
        elif told.kind in ("done", "refused", "broke"):
            self._answered(told)
        if told.kind in ("done", "refused", "broke"):
            self._running.pop(told.number, None)
            self._dispatch()

    def _answered(self, told: Told) -> None:
        answer = self._answers.pop(told.number, None)
        if answer is None or answer.done():
            return
        if told.kind == "done":
            answer.set_result(told.content)
        elif told.kind == "refused":
            answer.set_exception(Refusal(told.content))
        else:
            answer.set_exception(Refusal(f"That went wrong: {told.content}.", status=500))

    def _heard_of(self, run: Run, told: Told) -> None:
        """What the worker of a run told. Of one that is over for its page nothing counts."""
        if run.state in OVER or run.id not in run.session.runs:
            return
        if told.kind == "event":
            type, text = told.content
            if type == "ended":
                run.state, run.result = "ended", json.loads(text)["result"]
            if type == "words":
                event = json.loads(text)
                run.data.words[event["from"] :] = event["moments"]
            elif type in ("panels", "theory", "claims", "ended"):
                run.data.told[type] = text
            run.session.publish(run, type, text)
        elif told.kind == "points":
            run.data.add(*told.content)
            run.moved = True
        elif told.kind == "done":
            self._left(run, told.content)
        else:
            words = told.content if told.kind == "refused" else f"That went wrong: {told.content}."
            self._over(run, "failed", message=words)

    def _left(self, run: Run, outcome: dict[str, Any]) -> None:
        """A worker has done with a run: it is over, or it was asked to leave it."""
        run.number, run.seconds = None, outcome["seconds"]
        why = outcome["left"]
        if why is None:
            self._over(run, "settled")
        elif why == "cancel":
            self._over(run, "cancelled", message="What was computed stays.")
        elif run.wish == "pause":  # whatever it was left for
            self._pause(run)
        else:  # others had their turn, or it was continued before it had paused
            self._enqueue(run)

    def _pause(self, run: Run) -> None:
        run.state, run.wish, run.place = "paused", None, None
        run.session.publish(run, "paused")

    def _over(self, run: Run, state, **content: Any) -> None:
        run.state = state
        run.session.publish(run, state, **content)
        run.close()

    def _lost(self, number: int | None, code: int | None) -> None:
        """A worker died: what it did has failed, everything else goes on."""
        words = f"The process that computed this ended unexpectedly (exit code {code})"
        run = None if number is None else self._running.pop(number, None)
        if run is not None and run.state not in OVER:
            run.number = None
            if run.state == "ended":  # all of it was told but the last words
                self._over(run, "settled")
            else:
                self._over(run, "failed", message=f"{words}: run it again.")
        answer = None if number is None else self._answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_exception(Refusal(f"{words}: try again.", status=500))
        self._dispatch()

    # Upkeep ----------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self._tick(time.monotonic())
            except Exception:
                # Without it nothing would be cancelled any more: better to go on, and say so.
                LOGGER.exception("iclflow: the upkeep of the server went wrong.")

    def _tick(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if not session.connections and now > session.expected:
                for run in session.active:
                    self.wish(run, "cancel")
        self._tell_places()
        for worker in self._pool.workers:
            if worker.job is not None:
                self._watch(worker, worker.job, now)
        self._make_room()
        self._dispatch()

    def _watch(self, worker: Worker, number: int, now: float) -> None:
        run = self._running.get(number)
        if run is None:
            if now - worker.since > _OVERDUE and number in self._answers:
                self._pool.kill(number)
            return
        over = run.state in OVER or run.id not in run.session.runs
        stopping = worker.told_to_stop
        if over and stopping is not None and now - stopping > _GRACE:
            self._pool.kill(number)
        elif now - worker.since > LONGEST_RUN + _OVERDUE:
            self._pool.kill(number)
        elif run.job == "run" and run.state == "running" and stopping is None and run.moved:
            asked = len(self._questions) > sum(w.wish == "yield" for w in self._pool.workers)
            others = now - worker.since > _SLICE and self._queue.waits_besides(run.session.id)
            if asked or others:
                self._pool.stop(number, "yield")

    def _make_room(self) -> None:
        """Forgets the oldest runs when all of them together take too much memory."""
        while sum(session.bytes for session in self._sessions.values()) > MOST_BYTES:
            done = (r for s in self._sessions.values() for r in s.runs.values() if r.state in OVER)
            oldest = min(done, key=lambda run: run.asked_at, default=None)
            if oldest is None:
                return
            oldest.session.forget(oldest)

    def _drop(self, session: Session) -> None:
        for run in list(session.runs.values()):
            session.forget(run)
        del self._sessions[session.id]

    def facts(self) -> dict[str, Any]:
        """What the server holds, for those who watch over it."""
        return {
            "sessions": len(self._sessions),
            "runs": sum(len(session.runs) for session in self._sessions.values()),
            "waiting": len(self._queue),
            "computing": len(self._running),
            "workers": sum(worker.ready for worker in self._pool.workers),
            "bytes": sum(session.bytes for session in self._sessions.values()),
        }

"""The scheduler: runs and short questions that wait for workers, and those that are under way."""

import asyncio
import json
import time
from typing import Any, Literal

from ..config import Config
from ._channel import FINAL, Message
from ._limits import LONGEST_RUN, RequestError
from ._pool import Pool, Worker
from ._queue import FairQueue, Questions
from ._session import OVER, Run, State, compile_key

Action = Literal["cancel", "pause", "continue", "forget"]
# Seconds that a run may compute while another page waits.
_SLICE = 2.0
# Seconds that a worker has to stop a job: it may be compiling, which cannot be interrupted.
_GRACE = 8.0
# A worker that is still busy this long after the limit of its run does not answer.
_OVERDUE = 60.0
_KEPT = "What was computed is kept."
# Events whose last one is part of exports, and answers requests about a run.
_REMEMBERED = ("panels", "theory", "claims", "ended")


class Scheduler:
    """Gives jobs to workers, and reports to pages what becomes of their runs.

    **Arguments:**

    - `workers`: the number of worker processes.
    - `warm`: a config that idle workers compile when they start.
    """

    def __init__(self, workers: int, warm: Config | None = None):
        self.pool = Pool(workers, self._on_message, self._on_death)
        self._warm = warm
        self._queue = FairQueue()
        self._running: dict[int, Run] = {}
        self._questions = Questions()
        self.closing = False

    def start(self) -> None:
        self.pool.start()

    async def close(self) -> None:
        await asyncio.to_thread(self.pool.close)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enqueue(self, run: Run) -> None:
        """Puts a run into the queue; one that had begun comes before the others of its page."""
        run.state, run.requested = "queued", None
        run.queued_at = time.monotonic()
        self._queue.add(run, first=run.data.count > 0)
        run.place, run.stalled = self._queue.place(run), self._why_stalled()
        run.session.publish(
            run,
            "queued",
            place=run.place,
            config=run.config.given(),
            hash=run.config.hash,
            title=run.title,
            stored=run.stored,
            why=run.stalled,
        )

    def act(self, run: Run, action: Action) -> None:
        """Cancels, pauses, continues or forgets a run. An action that does not fit the state of the
        run is ignored: the run may have ended while the request was under way."""
        if action == "continue":
            self._resume(run)
            return
        if action == "pause" and run.job != "run":
            return
        if run.state in ("queued", "paused"):
            self._queue.remove(run)
            if action == "pause":
                self._pause(run)
            else:
                self._finish(run, "cancelled", message="It had not begun.")
        elif run.state == "running" or (run.state == "ended" and action != "pause"):
            self._stop(run, action)
        if action == "forget" and run.id in run.session.runs:
            run.session.forget(run)

    def _resume(self, run: Run) -> None:
        if run.state == "paused":
            run.session.publish(run, "resumed")
            self.enqueue(run)
            self.dispatch()
        elif run.state == "running" and run.requested == "pause":
            run.requested = "continue"

    def _stop(self, run: Run, action: Action) -> None:
        run.requested = action if run.requested != "forget" else run.requested
        if run.job_number is not None:
            self.pool.stop(run.job_number, "pause" if action == "pause" else "cancel")
        if action in ("cancel", "forget") and run.state == "running":
            # For the page it is over now; its worker is free when it has stopped.
            self._finish(run, "cancelled", message=_KEPT)

    async def ask(self, name: str, arguments: dict[str, Any]) -> Any:
        """The result of a short job, which goes before runs that wait."""
        if stalled := self._why_stalled():
            raise RequestError(stalled, status=503)
        answer = self._questions.add(name, arguments)
        self.dispatch()
        return await answer

    def dispatch(self) -> None:
        """Gives free workers what waits: short questions first."""
        if self.closing:
            return
        while free := [worker for worker in self.pool.workers if worker.free]:
            if question := self._questions.next():
                number = self.pool.give(free[0], question.name, question.arguments)
                self._questions.start(number, question)
                continue
            run = self._queue.next()
            if run is None:
                return
            # A worker that has compiled what this run needs is ready at once.
            fit = (worker for worker in free if run.compile_key in worker.compiled)
            self._give(next(fit, free[0]), run)

    def _give(self, worker: Worker, run: Run) -> None:
        arguments = {"config": run.config.given(), **run.arguments}
        if run.job == "run":
            arguments |= {"checkpoint": str(run.checkpoint), "reported": run.data.count}
            arguments |= {"seconds": run.seconds, "limit": LONGEST_RUN}
        worker.compiled.add(run.compile_key)
        run.state, run.place, run.has_moved = "running", None, False
        run.job_number = self.pool.give(worker, run.job, arguments)
        self._running[run.job_number] = run
        run.session.publish(run, "started", seconds_waited=time.monotonic() - run.queued_at)

    def _on_message(self, worker: Worker, message: Message) -> None:
        if message.kind == "ready":
            self.dispatch()
            if worker.free and self._warm is not None:
                worker.compiled.add(compile_key(self._warm))
                self.pool.give(worker, "warm", {"config": self._warm.given()})
            return
        run = self._running.get(message.number)
        if run is not None:
            self._update(run, message)
        elif message.kind == "done":
            self._questions.answer(message.number, message.content)
        elif message.kind in FINAL:
            status = 422 if message.kind == "refused" else 500
            self._questions.answer(
                message.number, RequestError(_describe_failure(message), status=status)
            )
        if message.kind in FINAL:
            self._running.pop(message.number, None)
            self.dispatch()

    def _update(self, run: Run, message: Message) -> None:
        """Takes what the worker of a run sent, unless the run is over for its page."""
        if run.state in OVER or run.id not in run.session.runs:
            return
        if message.kind == "event":
            type, text = message.content
            if type == "ended":
                run.state, run.result = "ended", json.loads(text)["result"]
            if type == "words":
                event = json.loads(text)
                run.data.moments[event["from"] :] = event["moments"]
            elif type in _REMEMBERED:
                run.data.events[type] = text
            run.session.publish(run, type, text)
        elif message.kind == "points":
            run.data.add(*message.content)
            run.has_moved = True
        elif message.kind == "done":
            self._on_stopped(run, message.content)
        else:
            self._finish(run, "failed", message=_describe_failure(message))

    def _on_stopped(self, run: Run, outcome: dict[str, Any]) -> None:
        """A worker is done with a run: the run is over, or the worker has stopped it."""
        run.job_number, run.seconds = None, outcome["seconds"]
        reason = outcome["stopped"]
        if reason is None:
            self._finish(run, "settled")
        elif reason == "cancel":
            self._finish(run, "cancelled", message=_KEPT)
        elif run.requested == "pause":  # even if the worker stopped it for another page
            self._pause(run)
        else:  # other pages have their turn, or it was continued before it had paused
            self.enqueue(run)

    def _pause(self, run: Run) -> None:
        run.state, run.requested, run.place = "paused", None, None
        run.session.publish(run, "paused")

    def _finish(self, run: Run, state: State, **content: Any) -> None:
        run.state = state
        run.session.publish(run, state, **content)
        run.close()

    def _on_death(self, number: int | None, code: int | None) -> None:
        """A worker died: its job has failed, everything else goes on."""
        words = f"The process that computed this ended unexpectedly (exit code {code})"
        run = None if number is None else self._running.pop(number, None)
        if run is not None and run.state not in OVER:
            run.job_number = None
            if run.state == "ended":  # only the last descriptions are missing
                self._finish(run, "settled")
            else:
                self._finish(run, "failed", message=f"{words}: run it again.")
        if number is not None:
            self._questions.answer(number, RequestError(f"{words}: try again.", status=500))
        self.dispatch()

    def tick(self, now: float) -> None:
        """Upkeep: reports places in the queue, stops jobs that take too long, starts others."""
        self._report_places()
        for worker in self.pool.workers:
            if worker.job is not None:
                self._check(worker, worker.job, now)
        self.dispatch()

    def _why_stalled(self) -> str | None:
        """Why nothing is computed at all, if that is so."""
        failure = self.pool.failure
        if failure is None or any(worker.ready for worker in self.pool.workers):
            return None
        return f"No worker process can be started ({failure}); the server tries again."

    def _report_places(self) -> None:
        """Reports to waiting runs their places in the queue, and why no worker takes them."""
        stalled = self._why_stalled()
        for place, run in enumerate(self._queue.order()):
            if (run.place, run.stalled) != (place, stalled):
                run.place, run.stalled = place, stalled
                run.session.publish(run, "queued", place=place, why=stalled)
        if stalled is not None:
            self._questions.refuse_waiting(RequestError(stalled, status=503))

    def _check(self, worker: Worker, number: int, now: float) -> None:
        """Kills a worker that does not answer, and has a run yield to others that wait."""
        run, busy = self._running.get(number), now - worker.busy_since
        if run is None:
            if busy > _OVERDUE and number in self._questions:
                self.pool.kill(number)
            return
        over = run.state in OVER or run.id not in run.session.runs
        stopping = worker.stop_sent_at
        if over and stopping is not None and now - stopping > _GRACE:
            self.pool.kill(number)
        elif busy > LONGEST_RUN + _OVERDUE:
            self.pool.kill(number)
        # A run that has moved can yield without being stuck at its first, slow compilation.
        elif run.job == "run" and run.state == "running" and stopping is None and run.has_moved:
            yielding = sum(each.stop_reason == "yield" for each in self.pool.workers)
            others = busy > _SLICE and self._queue.waits_besides(run.session.id)
            if len(self._questions) > yielding or others:
                self.pool.stop(number, "yield")

    def health(self) -> dict[str, int]:
        """How many runs wait and compute, and how many workers are ready."""
        workers = sum(worker.ready for worker in self.pool.workers)
        return {"waiting": self.waiting, "computing": len(self._running), "workers": workers}


def _describe_failure(message: Message) -> str:
    """Why a job failed, as a sentence."""
    return message.content if message.kind == "refused" else f"It failed: {message.content}."

"""The state of a server: the pages that are open, and their runs."""

import asyncio
import collections
import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from ..config import Config
from ..files import MARKER, OwnFiles, leftovers, write_own
from ._connections import LOGGER, MOST_STREAMS, MOST_STREAMS_OF_CLIENT
from ._limits import (
    MOST_BYTES,
    MOST_KEPT,
    MOST_SESSIONS,
    MOST_WAITING,
    MOST_WAITING_IN_ALL,
    RequestError,
)
from ._scheduler import Scheduler
from ._session import OVER, Run, Session

# Seconds between two rounds of upkeep.
_TICK = 0.25
# Seconds that a page may be without a stream before its runs are cancelled: after a stream has
# ended (a reload takes about one), and after a request, since a busy machine may be slow to open
# the first stream.
_AWAY, _BUSY = 5.0, 30.0

# Checkpoints of runs that are paused, or that yield to others, are in a temporary folder.
_FOLDER_PREFIX = "iclflow-explore-"
# The names of the checkpoints in it: the id of a run is sixteen letters.
_CHECKPOINT = re.compile(r"[\w-]{16}\.safetensors")


class Hub:
    """Everything that the server knows. It belongs to the event loop.

    **Arguments:**

    - `workers`: the number of worker processes.
    - `warm`: a config that idle workers compile when they start.
    """

    def __init__(self, workers: int, warm: Config | None = None):
        self.scheduler = Scheduler(workers, warm)
        self._sessions: collections.OrderedDict[str, Session] = collections.OrderedDict()
        self._streams: collections.Counter[str] = collections.Counter()

    async def start(self) -> None:
        self._folder = make_checkpoint_folder()
        self.scheduler.start()
        self._ticking = asyncio.create_task(self._tick_forever())

    async def close(self) -> None:
        self.end_streams()
        self._ticking.cancel()
        await self.scheduler.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def end_streams(self) -> None:
        """Ends all event streams, and starts no more jobs."""
        self.scheduler.closing = True
        for session in self._sessions.values():
            session.wake()

    @property
    def closing(self) -> bool:
        return self.scheduler.closing

    def new_session(self) -> Session:
        while len(self._sessions) >= MOST_SESSIONS:
            idle = [s for s in self._sessions.values() if not s.active and not s.connections]
            if not idle:
                raise RequestError("Too many pages are open at once: close some.", status=503)
            oldest = idle[0]
            for run in list(oldest.runs.values()):
                oldest.forget(run)
            del self._sessions[oldest.id]
        session = Session()
        self._sessions[session.id] = session
        return session

    def find_session(self, id: Any) -> Session:
        """The page of this id, which becomes the most recently used one."""
        session = self._sessions.get(id) if isinstance(id, str) else None
        if session is None:
            raise RequestError("The server does not know this page: reload it.", "session", 404)
        self._sessions.move_to_end(session.id)
        session.expected = time.monotonic() + _BUSY
        return session

    def open_stream(self, session: Session, client: str) -> None:
        """Counts a stream of a page, unless this page or this client has too many."""
        if session.connections >= MOST_STREAMS:
            raise RequestError(
                f"This page has {MOST_STREAMS} event streams, the most it may have: close it in "
                "other tabs.",
                "session",
                429,
            )
        if self._streams[client] >= MOST_STREAMS_OF_CLIENT:
            raise RequestError("Too many pages are open at once: close some.", status=429)
        session.connections += 1
        self._streams[client] += 1

    def close_stream(self, session: Session, client: str) -> None:
        """A stream of this page has ended: from now on the page counts as away."""
        session.connections -= 1
        self._streams[client] -= 1
        session.expected = time.monotonic() + _AWAY

    def find_run(self, id: str, session: Session | None = None) -> Run:
        """The run of this id, among all runs or those of one session."""
        owners = self._sessions.values() if session is None else [session]
        for owner in owners:
            if id in owner.runs:
                return owner.runs[id]
        raise RequestError("This run no longer exists: start it again.", "run", 404)

    def submit(
        self,
        session: Session,
        config: Config,
        title: str,
        job: str = "run",
        arguments: dict[str, Any] | None = None,
        stored: dict[str, Any] | None = None,
    ) -> Run:
        """Puts a run into the queue."""
        if len(session.active) >= MOST_WAITING:
            raise RequestError(
                f"This page has {MOST_WAITING} runs waiting or under way, the most it may have: "
                "cancel one.",
                status=429,
            )
        if self.scheduler.waiting >= MOST_WAITING_IN_ALL:
            raise RequestError("Too many runs are waiting: try again in a moment.", status=503)
        run = Run(session, config, title, job, arguments or {}, stored, self._folder)
        session.runs[run.id] = run
        self.scheduler.enqueue(run)
        for old in [each for each in session.runs.values() if each.state in OVER][:-MOST_KEPT]:
            session.forget(old)
        self.scheduler.dispatch()
        return run

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self._tick(time.monotonic())
            except Exception:
                # Without upkeep nothing would ever be cancelled: log the error and go on.
                LOGGER.exception("iclflow: the upkeep of the server failed.")

    def _tick(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if not session.connections and now > session.expected:
                for run in session.active:
                    self.scheduler.act(run, "cancel")
        self._free_memory()
        self.scheduler.tick(now)

    def _free_memory(self) -> None:
        """Forgets the oldest runs when all runs together take too much memory."""
        while sum(session.bytes for session in self._sessions.values()) > MOST_BYTES:
            over = (r for s in self._sessions.values() for r in s.runs.values() if r.state in OVER)
            oldest = min(over, key=lambda run: run.queued_at, default=None)
            if oldest is None:
                return
            oldest.session.forget(oldest)

    def health(self) -> dict[str, Any]:
        """What the server holds, for monitoring."""
        return {
            "sessions": len(self._sessions),
            "runs": sum(len(session.runs) for session in self._sessions.values()),
            **self.scheduler.health(),
            "bytes": sum(session.bytes for session in self._sessions.values()),
        }


def make_checkpoint_folder() -> Path:
    """A new folder for this process; those of servers that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        pid = path.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        # Other programs may use such names too: our folders have our marker.
        if pid.isdecimal() and not _is_alive(int(pid)) and _is_own(path):
            _remove(path)
    made = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
    write_own(made, {})
    return made


def _is_own(folder: Path) -> bool:
    """Whether we made a folder. Anybody can put a link into the shared temporary folder."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    plain = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return plain and OwnFiles(folder).owns(MARKER)


def _remove(folder: Path) -> None:
    checkpoints = [file for file in folder.iterdir() if _CHECKPOINT.fullmatch(file.name)]
    with contextlib.suppress(OSError):  # something else is in it, or it cannot be removed
        for file in (*checkpoints, *leftovers(folder), folder / MARKER):
            file.unlink(missing_ok=True)
        folder.rmdir()


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # it belongs to another user, so it is alive
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True

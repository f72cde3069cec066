"""Limits on connections: how many, for how long, and how much is logged about them.

A server without free file descriptors can start no worker and read no file, and asyncio logs every
connection that it cannot accept. So some descriptors are kept free: when there are too many
connections, idle ones are closed.
"""

import asyncio
import collections
import logging
import time
from collections.abc import Iterable

from uvicorn.protocols.http.h11_impl import H11Protocol

# Connections that may wait to be accepted; uvicorn's own 2048 could use up all descriptors at once.
BACKLOG = 128
# Connections at most, and the share of them that one client may have.
_MOST, _CLIENT_SHARE = 1000, 0.75
# Descriptors that files, pipes and the program itself may need.
_RESERVED = 96
# Seconds in which the head of a request has to arrive, and in which a request other than an event
# stream has to be answered and its answer read.
_HEAD, _ANSWER = 10.0, 120.0
# Event streams of one page, which may be reloaded before its old stream has ended, and of all pages
# of one client.
MOST_STREAMS, MOST_STREAMS_OF_CLIENT = 4, 256
EVENTS, WATCH_EVENTS = "/api/events", "/api/watch/events"


def most_connections(workers: int) -> int:
    """How many connections leave enough file descriptors for the rest of the server."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return _MOST
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST
    # Each worker has a pipe, and a sentinel that says when it dies.
    # At least enough for one page, which opens several connections at once.
    return max(16, min(_MOST, limit - BACKLOG - _RESERVED - 4 * workers))


class LimitedProtocol(H11Protocol):
    """HTTP on one connection, which is closed when it keeps others from being served.

    **Fields:**

    - `most`: connections of the server. uvicorn creates the instances, so each server sets this on
      a subclass.
    """

    most = _MOST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._since = time.monotonic()
        self._was_idle = True
        here = [other for other in self.connections if isinstance(other, LimitedProtocol)]
        super().connection_made(transport)
        self._check = self.loop.call_later(_HEAD, self._close_if_late)
        own = [other for other in here if _host(other) == _host(self)]
        if len(own) >= max(1, int(_CLIENT_SHARE * self.most)):
            self._make_room(own)
        elif len(here) >= self.most:
            self._make_room(here)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._was_idle and not self.idle:
            self._since, self._was_idle = time.monotonic(), False

    def on_response_complete(self) -> None:
        self._since, self._was_idle = time.monotonic(), True
        super().on_response_complete()

    @property
    def idle(self) -> bool:
        """Whether every request so far is answered."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self, others: Iterable["LimitedProtocol"]) -> None:
        """Closes the connection that has been idle longest, or else this one."""
        waiting = (other for other in others if other.idle and not other.transport.is_closing())
        oldest = min(waiting, key=lambda other: other._since, default=self)
        oldest.transport.abort()

    def _close_if_late(self) -> None:
        path = "" if self.idle else self.scope["path"]
        limit = _HEAD if self.idle else float("inf") if path in (EVENTS, WATCH_EVENTS) else _ANSWER
        left = self._since + limit - time.monotonic()
        if left <= 0:
            self.transport.abort()
        else:
            self._check = self.loop.call_later(min(left, _HEAD), self._close_if_late)


def _host(connection: H11Protocol) -> str:
    return connection.client[0] if connection.client else ""


class RateLimit(logging.Filter):
    """Limits how often a message is logged; the next one says how many were left out.

    **Arguments:**

    - `most`: messages of one text within `seconds`.
    """

    def __init__(self, most: int = 3, seconds: float = 60.0):
        super().__init__()
        self._most, self._seconds = most, seconds
        self._passed: dict[str, collections.deque[float]] = {}
        self._left_out: collections.Counter[str] = collections.Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        # The beginning is the same for messages of one kind; details follow.
        text, now = str(record.msg)[:60], time.monotonic()
        if len(self._passed) > 1000:  # texts may contain what clients send
            self._passed.clear()
        passed = self._passed.setdefault(text, collections.deque())
        while passed and now - passed[0] > self._seconds:
            passed.popleft()
        if len(passed) >= self._most:
            self._left_out[text] += 1
            return False
        passed.append(now)
        if missing := self._left_out.pop(text, 0):
            record.msg = f"{record.msg} ({missing} messages like this one were left out)"
        return True


def limit_logs() -> None:
    """Keeps repeated errors from filling a disk."""
    for name in ("asyncio", "uvicorn.error", LOGGER.name):
        logger = logging.getLogger(name)
        if not any(isinstance(one, RateLimit) for one in logger.filters):
            logger.addFilter(RateLimit())


# For messages to the user who runs the server.
LOGGER = logging.getLogger("iclflow.explorer")

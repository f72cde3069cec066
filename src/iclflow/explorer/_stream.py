"""Streams of server-sent events."""

from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class EventStream(StreamingResponse):
    """A stream of events; `on_end` is called however it ends, even before its first event."""

    def __init__(self, content: AsyncIterator[str], on_end: Callable[[], None]):
        headers = {"cache-control": "no-store"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()

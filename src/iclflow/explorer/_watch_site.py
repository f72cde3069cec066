"""What the server answers to pages that show trainings of other processes."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from ._hub import Hub
from ._limits import RequestError
from ._site import STATIC
from ._stream import EventStream
from ._watched import Seen, Watched, WatchedFolders


class WatchSite:
    """Answers the requests of pages that show trainings of other processes."""

    def __init__(self, hub: Hub, watched: WatchedFolders):
        self._hub, self._watched = hub, watched

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "watch.html", headers={"cache-control": "no-cache"})

    async def trainings(self, request: Request) -> Response:
        return JSONResponse([one.about() for one in self._watched.all.values()])

    async def events(self, request: Request) -> Response:
        session = self._hub.find_session(request.query_params.get("session"))
        one = self._watched.find(request.query_params.get("training"))
        seen = Seen(request.query_params.get("have", ""), one)
        client = request.client.host if request.client else ""
        self._hub.open_stream(session, client)
        on_end = lambda: self._hub.close_stream(session, client)
        return EventStream(self._stream(one, seen), on_end)

    async def _stream(self, one: Watched, seen: Seen) -> AsyncIterator[str]:
        yield "retry: 500\n\n"
        async for text in self._watched.events(one, seen):
            # A comment keeps proxies from closing a quiet stream.
            yield text or ": still here\n\n"

    async def look(self, request: Request) -> Response:
        one = self._watched.find(request.path_params["id"])
        given, count = request.path_params["index"], len(one.follower.columns)
        is_plain = given.isascii() and given.isdecimal() and len(given) < 10
        if not is_plain or int(given) >= count:
            allowed = f"must be from 0 to {count - 1}" if count else "there is no look yet"
            raise RequestError(f"`index` = {given[:20]}: {allowed}.", "index")
        try:
            look = await asyncio.to_thread(_read_look, one, int(given))
        except (OSError, IndexError):
            raise RequestError("This look was taken back.", "index", 404) from None
        return JSONResponse(look)


def _read_look(one: Watched, index: int) -> dict:
    with one.lock:
        return one.follower.look(index)

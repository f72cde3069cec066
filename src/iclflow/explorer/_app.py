"""The web application: addresses and what they answer."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ..config import InputError, to_toml
from . import _exports
from ._changes import changed, checked
from ._connections import EVENTS
from ._facts import moment_facts, start_facts
from ._guard import Guard
from ._limits import Refusal
from ._requests import broken, cell_in, gone, not_there, read_body, refused, title_in
from ._session import OVER, Run
from ._stored import Shelf
from ._studio import Studio

_STATIC = Path(__file__).parent / "static"
# Seconds after which a quiet stream says that it is there.
_SILENCE = 15.0
_FOREVER = "public, max-age=31536000, immutable"


class Site:
    """Answers the requests of pages.

    **Arguments:**

    - `shelf`: what is on disk.
    """

    def __init__(self, studio: Studio, shelf: Shelf):
        self._studio, self._shelf = studio, shelf

    # The page --------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def start(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(start_facts))

    async def health(self, request: Request) -> Response:
        return JSONResponse(self._studio.facts())

    # Settings --------------------------------------------------------------------------------

    async def check(self, request: Request) -> Response:
        body = await read_body(request)
        return await asyncio.to_thread(_judged, lambda: (checked(body.get("config")), []))

    async def change(self, request: Request) -> Response:
        body = await read_body(request)
        asked = body.get("config"), body.get("field"), body.get("value")
        return await asyncio.to_thread(_judged, lambda: changed(*asked))

    # Runs ------------------------------------------------------------------------------------

    async def new_session(self, request: Request) -> Response:
        await read_body(request)
        return JSONResponse({"session": self._studio.new_session().id}, 201)

    async def new_run(self, request: Request) -> Response:
        body = await read_body(request)
        session = self._studio.session(body.get("session"))
        config = await asyncio.to_thread(checked, body.get("config"))
        run = self._studio.submit(session, config, title_in(body, config.name))
        return JSONResponse({"run": run.id}, 201)

    async def wish(self, request: Request) -> Response:
        body = await read_body(request)
        session = self._studio.session(body.get("session"))
        wish = request.path_params["wish"]
        if wish not in ("cancel", "pause", "continue", "forget"):
            raise HTTPException(404)
        self._studio.wish(self._studio.run(request.path_params["run"], session), wish)
        return JSONResponse({"ok": True})

    async def events(self, request: Request) -> Response:
        session = self._studio.session(request.query_params.get("session"))
        last = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        if not (last.isascii() and last.isdigit() and len(last) < 16):
            raise Refusal(f"`after` = {last[:20]!r}: must be the number of an event.", "after")
        client = request.client.host if request.client else ""
        self._studio.listen(session, client)
        ended = lambda: self._studio.left(session, client)
        return _Events(self._stream(session, int(last)), ended)

    async def _stream(self, session, last: int) -> AsyncIterator[str]:
        yield "retry: 500\n\n"
        while not self._studio.closing:
            events = session.after(last)
            if not events:
                await session.more(_SILENCE)
                if not session.after(last):
                    yield ": still here\n\n"
                continue
            last = events[-1][0]
            yield "".join(f"id: {number}\ndata: {text}\n\n" for number, text in events)

    async def moment(self, request: Request) -> Response:
        run = self._studio.run(request.path_params["run"])
        given = request.path_params["index"]
        plain = given.isascii() and given.isdecimal() and len(given) < 10
        index = int(given) if plain else -1
        if not 0 <= index < run.data.count:
            last = run.data.count - 1
            raise Refusal(f"`index` = {given[:20]}: must be from 0 to {last}.", "index")
        # Taken here, on the loop: the thread reads what nobody writes any more.
        data = run.data
        held = *data.frame(index), data.points(), data.told.get("panels", "{}")
        return JSONResponse(await asyncio.to_thread(moment_facts, index, *held))

    async def export(self, request: Request) -> Response:
        run, kind = self._studio.run(request.path_params["run"]), request.path_params["kind"]
        if kind not in _exports.KINDS:
            raise HTTPException(404)
        return Response(
            await self._exported(run, kind),
            media_type=_exports.KINDS[kind],
            headers={
                "content-disposition": f'attachment; filename="{run.config.folder_name}.{kind}"',
                "cache-control": "no-store",
            },
        )

    async def _exported(self, run: Run, kind: str) -> bytes:
        if kind == "toml":
            return _exports.as_toml(run.config)
        if kind == "py":
            return _exports.as_program(run.config, run.title)
        data = run.data
        if not data.count:
            raise Refusal("The run has no point yet: wait until it has begun.", status=409)
        # Taken here, on the loop: the thread reads what nobody writes any more.
        points, told = data.points(), dict(data.told)
        if kind == "csv":
            return await asyncio.to_thread(_exports.as_csv, points, told)
        config = run.config.given()
        if kind == "json":
            about = {"title": run.title, "config": config, "hash": run.config.hash}
            about |= {"state": run.state, "words": list(data.words)}
            return await asyncio.to_thread(_exports.as_json, about, points, told)
        if f"loss.{kind}" in data.drawn:
            return data.drawn[f"loss.{kind}"]
        whole = run.state in OVER
        needs = {"times": points.times, "losses": points.losses, "result": run.result}
        drawn = await self._studio.ask("draw", {"config": config, **needs})
        if whole:
            data.drawn = drawn
        return drawn[f"loss.{kind}"]

    # What is on disk -------------------------------------------------------------------------

    async def stored(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._shelf.listed))

    async def open_stored(self, request: Request) -> Response:
        body = await read_body(request)
        session = self._studio.session(body.get("session"))
        found = await asyncio.to_thread(self._shelf.run, request.path_params["id"])
        assert found.config is not None
        stored = {"kind": "run", "name": found.name, "words": "A run from disk, as it was stored."}
        run = self._studio.submit(
            session, found.config, found.name, "stored", {"folder": str(found.folder)}, stored
        )
        return JSONResponse({"run": run.id, "config": found.config.given(), **stored}, 201)

    async def sweep(self, request: Request) -> Response:
        id = request.path_params["id"]
        folder = str((await asyncio.to_thread(self._shelf.sweep, id)).folder)
        return JSONResponse({"id": id, **await self._studio.ask("sweep", {"folder": folder})})

    async def diagram(self, request: Request) -> Response:
        found = await asyncio.to_thread(self._shelf.sweep, request.path_params["id"])
        asked = request.query_params
        if not asked.get("x") or not asked.get("value"):
            raise Refusal("`x` and `value` are needed: a swept setting and a measurement.")
        needs = {"x": asked["x"], "y": asked.get("y") or None, "value": asked["value"]}
        folder = {"folder": str(found.folder)}
        return JSONResponse(await self._studio.ask("diagram", {**folder, **needs}))

    async def open_cell(self, request: Request) -> Response:
        body = await read_body(request)
        session = self._studio.session(body.get("session"))
        found = await asyncio.to_thread(self._shelf.sweep, request.path_params["id"])
        folder = str(found.folder)
        cell = await self._studio.ask("cell", {"folder": folder, "cell": cell_in(body)})
        number = cell["number"]
        config = await asyncio.to_thread(checked, cell["config"])
        title = f"run {number} of {found.folder.name}"
        how = "as it was stored" if cell["kept"] else "computed again: it did not keep its weights"
        stored = {"kind": "cell", "name": title, "words": f"A run of a sweep, {how}."}
        if cell["kept"]:
            needs = {"folder": folder, "number": number}
            run = self._studio.submit(session, config, title, "member", needs, stored)
        else:
            run = self._studio.submit(session, config, title, stored=stored)
        return JSONResponse({"run": run.id, "config": config.given(), **stored}, 201)


def application(
    studio: Studio, shelf: Shelf, hosts: Sequence[str], token: str | None = None
) -> Guard:
    """The application with its guard; with a `token`, for those who have it."""
    site = Site(studio, shelf)
    get, post = ["GET"], ["POST"]
    routes = [
        Route("/", site.page, methods=get),
        Route("/api/start", site.start, methods=get),
        Route("/api/health", site.health, methods=get),
        Route("/api/check", site.check, methods=post),
        Route("/api/change", site.change, methods=post),
        Route("/api/sessions", site.new_session, methods=post),
        Route(EVENTS, site.events, methods=get),
        Route("/api/runs", site.new_run, methods=post),
        Route("/api/runs/{run}/moment/{index}", site.moment, methods=get),
        Route("/api/runs/{run}/export/{kind}", site.export, methods=get),
        Route("/api/runs/{run}/{wish}", site.wish, methods=post),
        Route("/api/stored", site.stored, methods=get),
        Route("/api/stored/{id}/open", site.open_stored, methods=post),
        Route("/api/sweeps/{id}", site.sweep, methods=get),
        Route("/api/sweeps/{id}/diagram", site.diagram, methods=get),
        Route("/api/sweeps/{id}/open", site.open_cell, methods=post),
        Route("/static/plotly.min.js", _plotly, methods=get),
        Mount("/static", _Static(directory=_STATIC)),
    ]
    handlers: Any = {InputError: refused, HTTPException: not_there, Exception: broken}
    app = Starlette(routes=routes, exception_handlers={**handlers, ClientDisconnect: gone})
    return Guard(app, hosts, token)


class _Events(StreamingResponse):
    """A stream of events; `ended` is called however it ends, even before its first event."""

    def __init__(self, content: AsyncIterator[str], ended: Callable[[], None]):
        headers = {"cache-control": "no-store"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


class _Static(StaticFiles):
    """Files of the page; they are asked for again at every visit, and not sent if unchanged."""

    def file_response(self, *arguments, **options) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["cache-control"] = "no-cache"
        return response


async def _plotly(request: Request) -> Response:
    """Plotly's JavaScript, from the installed package."""
    package = importlib.metadata.distribution("plotly")
    path = Path(str(package.locate_file("plotly/package_data/plotly.min.js")))
    fresh = request.query_params.get("v") == package.version
    headers = {"cache-control": _FOREVER if fresh else "no-cache"}
    return FileResponse(path, media_type="text/javascript", headers=headers)


def _judged(make) -> Response:
    """The answer to a config that is being changed: that it cannot run is an answer too, but not to
    a request that names no setting or kind there is."""
    try:
        config, others = make()
    except Refusal as refusal:
        if refusal.status != 422:
            raise
        return JSONResponse({"ok": False, "field": refusal.field, "message": str(refusal)})
    told = {"config": config.given(), "hash": config.hash, "toml": to_toml(config.given())}
    return JSONResponse({"ok": True, **told, "changed": others})

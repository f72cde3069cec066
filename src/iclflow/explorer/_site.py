"""What the server answers to the requests of pages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from ..config import Config, to_toml
from . import _exports
from ._changes import change_config, check_config
from ._hub import Hub
from ._limits import RequestError
from ._page_data import build_start_data, describe_moment
from ._requests import read_body, read_cell, read_title
from ._session import OVER, Run, Session
from ._stored import StoredRuns
from ._stream import EventStream

STATIC = Path(__file__).parent / "static"
# Seconds of silence after which a stream sends a comment, so that no proxy closes it.
_SILENCE = 15.0
_ACTIONS = ("cancel", "pause", "continue", "forget")


class Site:
    """Answers the requests of pages. What takes long is done in a thread, or by a worker.

    **Arguments:**

    - `stored`: the runs and sweeps on disk.
    """

    def __init__(self, hub: Hub, stored: StoredRuns):
        self._hub, self._stored = hub, stored

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def start(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(build_start_data))

    async def health(self, request: Request) -> Response:
        return JSONResponse(self._hub.health())

    async def check(self, request: Request) -> Response:
        body = await read_body(request)
        return await asyncio.to_thread(_judge, lambda: (check_config(body.get("config")), []))

    async def change(self, request: Request) -> Response:
        body = await read_body(request)
        given = body.get("config"), body.get("field"), body.get("value")
        return await asyncio.to_thread(_judge, lambda: change_config(*given))

    async def new_session(self, request: Request) -> Response:
        await read_body(request)
        return JSONResponse({"session": self._hub.new_session().id}, 201)

    async def new_run(self, request: Request) -> Response:
        body, session = await self._read(request)
        config = await asyncio.to_thread(check_config, body.get("config"))
        run = self._hub.submit(session, config, read_title(body, config.name))
        return JSONResponse({"run": run.id}, 201)

    async def act(self, request: Request) -> Response:
        _, session = await self._read(request)
        action = request.path_params["action"]
        if action not in _ACTIONS:
            raise HTTPException(404)
        run = self._hub.find_run(request.path_params["run"], session)
        self._hub.scheduler.act(run, action)
        return JSONResponse({"ok": True})

    async def events(self, request: Request) -> Response:
        session = self._hub.find_session(request.query_params.get("session"))
        # Browsers send the header when they reconnect; the page itself puts it into the query.
        last = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        if not (last.isascii() and last.isdigit() and len(last) < 16):
            raise RequestError(f"`after` = {last[:20]!r}: must be the number of an event.", "after")
        client = request.client.host if request.client else ""
        self._hub.open_stream(session, client)
        on_end = lambda: self._hub.close_stream(session, client)
        return EventStream(self._stream(session, int(last)), on_end)

    async def _stream(self, session: Session, last: int) -> AsyncIterator[str]:
        yield "retry: 500\n\n"  # ms until a browser that lost the stream opens it again
        while not self._hub.closing:
            events = session.after(last)
            if not events:
                await session.wait(_SILENCE)
                if not session.after(last):
                    yield ": still here\n\n"
                continue
            last = events[-1][0]
            yield "".join(f"id: {number}\ndata: {text}\n\n" for number, text in events)

    async def moment(self, request: Request) -> Response:
        data = self._hub.find_run(request.path_params["run"]).data
        given = request.path_params["index"]
        # `isdecimal` alone also takes digits of other scripts.
        is_plain = given.isascii() and given.isdecimal() and len(given) < 10
        index = int(given) if is_plain else -1
        if not 0 <= index < data.count:
            last = data.count - 1
            raise RequestError(f"`index` = {given[:20]}: must be from 0 to {last}.", "index")
        # Read here, in the event loop: the thread gets data that no longer changes.
        held = *data.frame(index), data.points(), data.events.get("panels", "{}")
        return JSONResponse(await asyncio.to_thread(describe_moment, index, *held))

    async def export(self, request: Request) -> Response:
        run, kind = self._hub.find_run(request.path_params["run"]), request.path_params["kind"]
        if kind not in _exports.KINDS:
            raise HTTPException(404)
        return Response(
            await self._export(run, kind),
            media_type=_exports.KINDS[kind],
            headers={
                "content-disposition": f'attachment; filename="{run.config.folder_name}.{kind}"',
                "cache-control": "no-store",
            },
        )

    async def _export(self, run: Run, kind: str) -> bytes:
        if kind == "toml":
            return _exports.as_toml(run.config)
        if kind == "py":
            return _exports.as_program(run.config, run.title)
        data = run.data
        if not data.count:
            raise RequestError("The run has no points yet: wait until it has begun.", status=409)
        # Read here, in the event loop: the thread gets data that no longer changes.
        points, events = data.points(), dict(data.events)
        if kind == "csv":
            return await asyncio.to_thread(_exports.as_csv, points, events)
        config = run.config.given()
        if kind == "json":
            about = {"title": run.title, "config": config, "hash": run.config.hash}
            about |= {"state": run.state, "words": list(data.moments)}
            return await asyncio.to_thread(_exports.as_json, about, points, events)
        if f"loss.{kind}" in data.figures:
            return data.figures[f"loss.{kind}"]
        is_whole = run.state in OVER
        curve = {"times": points.times, "losses": points.losses, "result": run.result}
        figures = await self._hub.scheduler.ask("draw", {"config": config, **curve})
        # Kept only if the run was over when it was drawn: it may have grown since.
        if is_whole:
            data.figures = figures
        return figures[f"loss.{kind}"]

    async def stored(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._stored.listing))

    async def open_stored(self, request: Request) -> Response:
        _, session = await self._read(request)
        found = await asyncio.to_thread(self._stored.find_run, request.path_params["id"])
        assert found.config is not None
        about = {"kind": "run", "name": found.name, "words": "A run from disk, as it was stored."}
        arguments = {"folder": str(found.folder)}
        return self._open(session, found.config, "stored", arguments, about)

    async def sweep(self, request: Request) -> Response:
        folder = await self._find_sweep(request)
        described = await self._hub.scheduler.ask("sweep", {"folder": str(folder)})
        return JSONResponse({"id": request.path_params["id"], **described})

    async def diagram(self, request: Request) -> Response:
        folder, query = await self._find_sweep(request), request.query_params
        if not query.get("x") or not query.get("value"):
            raise RequestError("`x` and `value` are needed: a swept setting and a measurement.")
        axes = {"x": query["x"], "y": query.get("y") or None, "value": query["value"]}
        found = await self._hub.scheduler.ask("diagram", {"folder": str(folder), **axes})
        return JSONResponse(found)

    async def open_cell(self, request: Request) -> Response:
        body, session = await self._read(request)
        folder = await self._find_sweep(request)
        wanted = {"folder": str(folder), "cell": read_cell(body)}
        cell = await self._hub.scheduler.ask("cell", wanted)
        config = await asyncio.to_thread(check_config, cell["config"])
        about = {"kind": "cell", "name": f"run {cell['number']} of {folder.name}"}
        if cell["kept"]:
            about["words"] = "A run of a sweep, as it was stored."
            arguments = {"folder": str(folder), "number": cell["number"]}
            return self._open(session, config, "stored", arguments, about)
        about["words"] = "A run of a sweep, computed again: the sweep did not keep its weights."
        return self._open(session, config, "run", {}, about)

    def _open(
        self,
        session: Session,
        config: Config,
        job: str,
        arguments: dict[str, Any],
        about: dict[str, Any],
    ) -> Response:
        """Submits a run that comes from disk."""
        run = self._hub.submit(session, config, about["name"], job, arguments, about)
        return JSONResponse({"run": run.id, "config": config.given(), **about}, 201)

    async def _read(self, request: Request) -> tuple[dict[str, Any], Session]:
        """The body of a request, and the session that it names."""
        body = await read_body(request)
        return body, self._hub.find_session(body.get("session"))

    async def _find_sweep(self, request: Request) -> Path:
        found = await asyncio.to_thread(self._stored.find_sweep, request.path_params["id"])
        return found.folder


def _judge(make: Callable[[], tuple[Config, list[str]]]) -> Response:
    """The answer to a config that is being changed. That it cannot run is an answer too; a request
    that names no known setting or kind is an error."""
    try:
        config, others = make()
    except RequestError as error:
        if error.status != 422:
            raise
        return JSONResponse({"ok": False, "field": error.field, "message": str(error)})
    given = config.given()
    about = {"config": given, "hash": config.hash, "toml": to_toml(given)}
    return JSONResponse({"ok": True, **about, "changed": others})

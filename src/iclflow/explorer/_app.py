"""The web application: addresses and what they answer."""

import asyncio
import importlib.metadata
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..config import Config, InputError, to_toml
from . import _exports
from ._changes import changed, checked
from ._guard import Guard
from ._limits import LARGEST_BODY, Refusal, told_limits
from ._presets import CONTROLS, presets
from ._session import Run
from ._stored import Shelf
from ._studio import Studio

_STATIC = Path(__file__).parent / "static"
_LONGEST_TITLE = 120
# Seconds in which a body has to arrive, and after which a quiet stream says that it is there.
_PATIENCE = 10.0
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
        return JSONResponse(await asyncio.to_thread(_start_facts))

    async def health(self, request: Request) -> Response:
        return JSONResponse(self._studio.facts())

    # Settings --------------------------------------------------------------------------------

    async def check(self, request: Request) -> Response:
        body = await _body(request)
        return await asyncio.to_thread(_judged, lambda: (checked(body.get("config")), []))

    async def change(self, request: Request) -> Response:
        body = await _body(request)
        asked = body.get("config"), body.get("field"), body.get("value")
        return await asyncio.to_thread(_judged, lambda: changed(*asked))

    # Runs ------------------------------------------------------------------------------------

    async def new_session(self, request: Request) -> Response:
        await _body(request)
        return JSONResponse({"session": self._studio.new_session().id}, 201)

    async def new_run(self, request: Request) -> Response:
        body = await _body(request)
        session = self._studio.session(body.get("session"))
        config = await asyncio.to_thread(checked, body.get("config"))
        run = self._studio.submit(session, config, _title(body, config.name))
        return JSONResponse({"run": run.id}, 201)

    async def wish(self, request: Request) -> Response:
        body = await _body(request)
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
        return StreamingResponse(
            self._stream(session, int(last)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _stream(self, session, last: int) -> AsyncIterator[str]:
        session.connections += 1
        try:
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
        finally:
            session.connections -= 1
            self._studio.left(session)

    async def moment(self, request: Request) -> Response:
        run = self._studio.run(request.path_params["run"])
        index = request.path_params["index"]
        if not 0 <= index < run.data.count:
            raise Refusal(
                f"`index` = {index}: must be from 0 to {run.data.count - 1}, the saved points.",
                "index",
            )
        return JSONResponse(await asyncio.to_thread(_moment, run, index))

    async def export(self, request: Request) -> Response:
        run, kind = self._studio.run(request.path_params["run"]), request.path_params["kind"]
        if kind not in _exports.KINDS:
            raise HTTPException(404)
        return Response(
            await self._exported(run, kind),
            media_type=_exports.KINDS[kind],
            headers={
                "content-disposition": f'attachment; filename="{_exports.file_name(run, kind)}"',
                "cache-control": "no-store",
            },
        )

    async def _exported(self, run: Run, kind: str) -> bytes:
        if kind == "toml":
            return _exports.as_toml(run.config)
        if kind == "py":
            return _exports.as_program(run.config, run.title)
        if not run.data.count:
            raise Refusal("The run has no point yet: wait until it has begun.", status=409)
        if kind == "csv":
            return await asyncio.to_thread(_exports.as_csv, run)
        if kind == "json":
            return await asyncio.to_thread(_exports.as_json, run)
        if f"loss.{kind}" not in run.data.drawn:
            data = run.data.joined()
            needs = {"times": data["times"], "losses": data["losses"], "result": run.result}
            drawn = await self._studio.ask("draw", {"config": run.config.given(), **needs})
            if run.state in ("settled", "cancelled", "failed"):
                run.data.drawn = drawn
            return drawn[f"loss.{kind}"]
        return run.data.drawn[f"loss.{kind}"]

    # What is on disk -------------------------------------------------------------------------

    async def stored(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._shelf.listed))

    async def open_stored(self, request: Request) -> Response:
        body = await _body(request)
        session = self._studio.session(body.get("session"))
        found = await asyncio.to_thread(self._shelf.run, request.path_params["id"])
        assert found.config is not None
        stored = {"kind": "run", "name": found.name}
        run = self._studio.submit(
            session, found.config, found.name, "stored", {"folder": str(found.folder)}, stored
        )
        return JSONResponse({"run": run.id, "config": found.config.given()}, 201)

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
        body = await _body(request)
        session = self._studio.session(body.get("session"))
        found = await asyncio.to_thread(self._shelf.sweep, request.path_params["id"])
        folder = str(found.folder)
        cell = await self._studio.ask("cell", {"folder": folder, "cell": _cell(body)})
        number = cell["number"]
        config = await asyncio.to_thread(checked, cell["config"])
        title = f"run {number} of {found.folder.name}"
        stored = {"kind": "cell", "name": title}
        if cell["kept"]:
            needs = {"folder": folder, "number": number}
            run = self._studio.submit(session, config, title, "member", needs, stored)
            words = f"Run {number} of the sweep, as it was stored."
        else:
            run = self._studio.submit(session, config, title, stored=stored)
            words = f"Run {number} of the sweep, computed again: it did not keep its weights."
        told = {"run": run.id, "words": words, "config": config.given()}
        return JSONResponse(told, 201)


def application(studio: Studio, shelf: Shelf, hosts: Sequence[str]) -> Guard:
    """The application with its guard."""
    site = Site(studio, shelf)
    get, post = ["GET"], ["POST"]
    routes = [
        Route("/", site.page, methods=get),
        Route("/api/start", site.start, methods=get),
        Route("/api/health", site.health, methods=get),
        Route("/api/check", site.check, methods=post),
        Route("/api/change", site.change, methods=post),
        Route("/api/sessions", site.new_session, methods=post),
        Route("/api/events", site.events, methods=get),
        Route("/api/runs", site.new_run, methods=post),
        Route("/api/runs/{run}/moment/{index:int}", site.moment, methods=get),
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
    handlers: Any = {Refusal: _refused, InputError: _refused, HTTPException: _not_there}
    app = Starlette(routes=routes, exception_handlers={**handlers, ClientDisconnect: _gone})
    app.add_exception_handler(Exception, _broken)
    return Guard(app, hosts)


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


async def _body(request: Request) -> dict[str, Any]:
    """The body of a request, of limited size, as a table."""

    async def read() -> bytes:
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > LARGEST_BODY:
                raise Refusal(f"The body is larger than {LARGEST_BODY} bytes.", status=413)
        return content

    try:
        content = await asyncio.wait_for(read(), _PATIENCE)
    except TimeoutError:
        raise Refusal(f"The body did not arrive in {_PATIENCE:g} seconds.", status=408) from None
    try:
        body = json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal("The body is not JSON.", status=400) from None
    if not isinstance(body, dict):
        raise Refusal("The body must be a JSON object.", status=400)
    return body


def _no_constant(name: str):
    raise ValueError(name)


def _judged(make) -> Response:
    """The answer to a config that is being changed: what is wrong is an answer too."""
    try:
        config, others = make()
    except Refusal as refusal:
        return JSONResponse({"ok": False, "field": refusal.field, "message": str(refusal)})
    told = {"config": config.given(), "hash": config.hash, "toml": to_toml(config.given())}
    return JSONResponse({"ok": True, **told, "changed": others})


def _start_facts() -> dict[str, Any]:
    """All that the page needs to begin with."""
    known = [
        {
            "id": preset.id,
            "title": preset.title,
            "paper": preset.paper,
            "words": preset.words,
            "picture": f"/static/presets/{preset.picture}",
            "config": preset.config.given(),
            "controls": list(preset.controls),
        }
        for preset in presets()
    ]
    return {
        "version": importlib.metadata.version("iclflow"),
        "plotly": importlib.metadata.version("plotly"),
        "presets": known,
        "schema": Config.model_json_schema(),
        "controls": {name: control.data() for name, control in CONTROLS.items()},
        "kinds": _kinds(),
        "limits": told_limits(),
    }


def _kinds() -> dict[str, list[dict[str, str]]]:
    from ..config import known_keys, section_class, sections

    return {
        section: [
            {
                "value": kind,
                "label": kind.replace("_", " "),
                "words": " ".join((section_class(section, {"kind": kind}).__doc__ or "").split()),
            }
            for kind in known_keys({})[f"{section}.kind"]
        ]
        for section in sections()
    }


def _moment(run: Run, index: int) -> dict[str, Any]:
    """The weights at one saved point, head by head."""
    from ._desk import plain

    data, told = run.data.joined(), json.loads(run.data.told.get("panels", "{}"))
    place, frame = run.data.frame(index) or (index, {})
    labels = [head["label"] for head in told.get("heads", [])]
    roles = data["roles"][index] if data["roles"] is not None else [None] * len(labels)
    heads = [
        {
            "label": label,
            "role": roles[i] if i < len(roles) else None,
            "matrices": {name: part[i] for name, part in frame.items() if i < len(part)},
        }
        for i, label in enumerate(labels)
    ]
    time, loss = data["times"][index], data["losses"][index]
    return plain({"index": place, "time": time, "loss": loss, "heads": heads})


def _title(body: dict[str, Any], name: str) -> str:
    title = body.get("title")
    if not isinstance(title, str):
        return name
    return "".join(c if c.isprintable() else " " for c in title)[:_LONGEST_TITLE] or name


def _cell(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of a cell: {name: value}, from the axes that the page shows."""
    cell = {}
    for axis in ("x", "y"):
        part = body.get(axis)
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            if not isinstance(part.get("value"), str | int | float | bool):
                raise Refusal(f"`{axis}.value` must be a number or a text.", axis)
            cell[part["name"]] = part["value"]
    if not cell:
        raise Refusal("`x` is needed: the name of a swept setting and its value.", "x")
    return cell


async def _refused(request: Request, error: Exception) -> Response:
    field, status = getattr(error, "field", None), getattr(error, "status", 422)
    return JSONResponse({"message": str(error), "field": field}, status)


async def _not_there(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return JSONResponse({"message": "There is nothing at this address.", "field": None}, status)


async def _broken(request: Request, error: Exception) -> Response:
    """Answers when the program itself is at fault; the terminal shows where."""
    return JSONResponse({"message": "The server made an error of its own.", "field": None}, 500)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads this

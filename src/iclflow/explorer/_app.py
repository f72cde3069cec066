"""The web application: which address is answered by what."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..config import InputError
from ._connections import EVENTS, WATCH_EVENTS
from ._guard import Guard
from ._hub import Hub
from ._requests import answer_disconnect, answer_error, answer_input_error, answer_not_found
from ._site import STATIC, Site
from ._stored import StoredRuns
from ._watch_site import WatchSite
from ._watched import WatchedFolders

# Plotly is requested with its version: a new version has a new address.
_FOREVER = "public, max-age=31536000, immutable"


def build_application(
    hub: Hub,
    stored: StoredRuns,
    hosts: Sequence[str],
    token: str | None = None,
    watched: WatchedFolders | None = None,
) -> Guard:
    """The application behind its guard; with a `token`, only for requests that carry it."""
    site, watch = Site(hub, stored), WatchSite(hub, watched or WatchedFolders(hub))
    get = {
        "/": site.page,
        "/api/start": site.start,
        "/api/health": site.health,
        EVENTS: site.events,
        "/api/runs/{run}/moment/{index}": site.moment,
        "/api/runs/{run}/export/{kind}": site.export,
        "/api/stored": site.stored,
        "/api/sweeps/{id}": site.sweep,
        "/api/sweeps/{id}/diagram": site.diagram,
        "/watch": watch.page,
        "/api/watch": watch.trainings,
        WATCH_EVENTS: watch.events,
        "/api/watch/{id}/looks/{index}": watch.look,
        "/static/plotly.min.js": _plotly,
    }
    post = {
        "/api/check": site.check,
        "/api/change": site.change,
        "/api/sessions": site.new_session,
        "/api/runs": site.new_run,
        "/api/runs/{run}/{action}": site.act,
        "/api/stored/{id}/open": site.open_stored,
        "/api/sweeps/{id}/open": site.open_cell,
    }
    routes: list[Route | Mount] = [
        Route(path, endpoint, methods=[method])
        for method, table in (("GET", get), ("POST", post))
        for path, endpoint in table.items()
    ]
    routes.append(Mount("/static", _Static(directory=STATIC)))
    handlers: Any = {
        InputError: answer_input_error,
        HTTPException: answer_not_found,
        ClientDisconnect: answer_disconnect,
        Exception: answer_error,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), hosts, token)


class _Static(StaticFiles):
    """Files of the page; browsers check at every visit whether they have changed."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["cache-control"] = "no-cache"
        return response


async def _plotly(request: Request) -> Response:
    """Plotly's JavaScript, from the installed package."""
    package = importlib.metadata.distribution("plotly")
    path = Path(str(package.locate_file("plotly/package_data/plotly.min.js")))
    is_current = request.query_params.get("v") == package.version
    headers = {"cache-control": _FOREVER if is_current else "no-cache"}
    return FileResponse(path, media_type="text/javascript", headers=headers)

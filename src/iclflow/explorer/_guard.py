"""What stands before every request: who may ask, from where, and how much."""

from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._limits import LARGEST_BODY

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


class Guard:
    """Refuses requests for other hosts, from other origins, and that are too large.

    A page of another site can make a browser send requests to this machine: such carry its origin,
    or a name for this machine that is not ours.

    **Arguments:**

    - `hosts`: the names under which the server may be asked for, with their port.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]):
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *ours]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, words = refusal
            await JSONResponse({"message": words, "field": None}, status)(scope, receive, sealed)
            return
        await self._app(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self._hosts:
            return 421, "The host of this request is not one that this server answers for."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Only GET and POST are answered."
        site = headers.get("sec-fetch-site", "same-origin")
        page = scope["path"] == "/" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if site not in ("same-origin", "none") and not page:
            return 403, "This request comes from another site: it is not answered."
        if scope["method"] == "POST":
            return self._unsafe(headers)
        return None

    def _unsafe(self, headers: Any) -> tuple[int, str] | None:
        """What is wrong with a request that changes something."""
        if headers.get("origin", "").lower() != f"http://{headers['host'].lower()}":
            return (
                403,
                "What changes something must come from the page itself: `Origin` is another.",
            )
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "The body must be JSON, and say so in its `Content-Type`."
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()) or int(length) > LARGEST_BODY:
            return 413, f"The body is larger than {LARGEST_BODY} bytes, the most that is read."
        return None

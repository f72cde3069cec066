"""Checks before every request: who may send it, from where, and how large it may be."""

import hmac
import ipaddress
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
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
# What one opens in a browser; everything else is fetched by these pages.
_PAGES = ("/", "/watch")
# Hidden from scripts, and not sent with requests from other sites.
_COOKIE = "Path=/; HttpOnly; SameSite=Strict"


class Guard:
    """Refuses requests for other hosts, from other origins, without the token, or too large.

    A page of another site can make a browser send requests to this machine. They carry the origin
    of that site, or a host name for this machine that is not ours (DNS rebinding).

    **Arguments:**

    - `hosts`: the names of the server that are accepted, with their port.
    - `token`: for a server that others can reach, what every request must carry: the first request
      for the page in its address, later ones in the cookie that comes with the page. Such a server
      accepts any IP address of this machine as well: other sites can point a name at it, but not
      an address.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str | None = None):
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        given = self._token is not None and self._in_address(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                if given and message["status"] < 400:
                    cookie = f"{_cookie_name(scope)}={self._token}; {_COOKIE}"
                    ours.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": [*message.get("headers", []), *ours]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, words = refusal
            answer = JSONResponse({"message": words, "field": None}, status)
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or not self._is_ours(headers["host"].lower()):
            return 421, "This server does not answer for the host of this request."
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie_name(scope), "")
        has_token = self._is_token(cookie) or self._in_address(scope)
        if self._token is not None and not has_token:
            return 401, "A token is needed: open the address that `iclflow explore` printed."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Only GET and POST are allowed."
        # Old browsers do not send these headers: for them `Origin` decides, below. A link from
        # another site may open the page, but not read anything from it.
        site = headers.get("sec-fetch-site", "same-origin")
        page = scope["path"] in _PAGES and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if site not in ("same-origin", "none") and not page:
            return 403, "Requests from other sites are refused."
        if scope["method"] == "POST":
            return self._refuse_post(headers)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host is one of our names or, where there is a token, any IP address."""
        if host in self._hosts:
            return True
        if self._token is None:
            return False
        try:
            parts = urlsplit(f"//{host}")
            number = ipaddress.ip_address(parts.hostname or "")
            port = "" if parts.port is None else f":{parts.port}"
        except ValueError:
            return False
        # Compared as text: `urlsplit` also takes user names and odd spellings of numbers.
        written = f"[{number}]" if number.version == 6 else str(number)
        return host == written + port and f"127.0.0.1{port}" in self._hosts

    def _in_address(self, scope: Scope) -> bool:
        """Whether the address has the token; only that of a page may: others end up in logs."""
        if scope["path"] not in _PAGES or scope["method"] not in ("GET", "HEAD"):
            return False
        query = parse_qs(scope["query_string"].decode("latin-1"))
        return any(self._is_token(value) for value in query.get("token", ()))

    def _is_token(self, text: str) -> bool:
        # In constant time: the duration of a comparison must not reveal how much of it is right.
        return hmac.compare_digest(text.encode(), (self._token or "").encode())

    def _refuse_post(self, headers: Any) -> tuple[int, str] | None:
        """Why a request that changes something is refused, if it is."""
        if headers.get("origin", "").lower() != f"http://{headers['host'].lower()}":
            return 403, "Only the page itself may change something: `Origin` is another site."
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "The body must be JSON, with the `Content-Type` of JSON."
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()) or int(length) > LARGEST_BODY:
            return 413, f"The body is larger than {LARGEST_BODY} bytes."
        return None


def _cookie_name(scope: Scope) -> str:
    """One per port: cookies are kept per host, and a machine may run several explorers."""
    server = scope.get("server") or ("", 0)
    return f"iclflow-explorer-{server[1]}"

"""Reading requests, and refusing them in one sentence."""

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ._limits import LARGEST_BODY, RequestError

# Seconds in which a body has to arrive.
_TIMEOUT = 10.0
_LONGEST_TITLE = 120
# A config has tables of lists of lists; deeper ones could exhaust the recursion of a parser.
_DEEPEST = 12


async def read_body(request: Request) -> dict[str, Any]:
    """The body of a request, of limited size, as a table."""

    async def read() -> bytes:
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > LARGEST_BODY:
                raise RequestError(f"The body is larger than {LARGEST_BODY} bytes.", status=413)
        return content

    try:
        content = await asyncio.wait_for(read(), _TIMEOUT)
    except TimeoutError:
        late = f"The body did not arrive in {_TIMEOUT:g} seconds."
        raise RequestError(late, status=408) from None
    try:
        body = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
        # JSON can spell half of a surrogate pair, which cannot be encoded again.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise RequestError("The body is not JSON.", status=400) from None
    if not isinstance(body, dict):
        raise RequestError("The body must be a JSON object.", status=400)
    if _depth(body) > _DEEPEST:
        raise RequestError(f"The body is nested deeper than {_DEEPEST} levels.", status=400)
    return body


def _depth(value: Any) -> int:
    """How deep lists and tables are nested."""
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level, depth = [part for parts in inner for part in parts], depth + 1
    return depth


def _refuse_constant(name: str):
    raise ValueError(name)


def read_title(body: dict[str, Any], name: str) -> str:
    title = body.get("title")
    if not isinstance(title, str):
        return name
    return "".join(c if c.isprintable() else " " for c in title)[:_LONGEST_TITLE] or name


def read_cell(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of a cell: {name: value}, from the axes that the page shows."""
    cell = {}
    for axis in ("x", "y"):
        part = body.get(axis)
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            if not isinstance(part.get("value"), str | int | float | bool):
                raise RequestError(f"`{axis}.value` must be a number or a text.", axis)
            cell[part["name"]] = part["value"]
    if not cell:
        raise RequestError("`x` is needed: the name of a swept setting and its value.", "x")
    return cell


async def answer_input_error(request: Request, error: Exception) -> Response:
    field, status = getattr(error, "field", None), getattr(error, "status", 422)
    return JSONResponse({"message": str(error), "field": field}, status)


async def answer_not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return JSONResponse({"message": "There is nothing at this address.", "field": None}, status)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answers when the program itself fails; the terminal shows the traceback."""
    message = "The server has failed: its terminal shows the error."
    return JSONResponse({"message": message, "field": None}, 500)


async def answer_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client is gone: only our own log may show this

"""The server: its address, the application behind it, and an orderly shutdown."""

import asyncio
import contextlib
import ipaddress
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..config import InputError
from ..runtime import usable_cores

# Ports that are tried in turn when none is given.
FIRST_PORT, _PORTS = 8765, 20
# Hosts that mean all interfaces, and the address of this machine that one opens instead.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# One page seldom has more runs under way than this.
_MOST_WORKERS = 4
# Bytes of the head of a request: the token, a cookie and a path are far smaller.
_LARGEST_HEAD = 2**16
# Seconds that open requests have to end when the server shuts down.
_SHUTDOWN = 2


def explore(
    host: str = "127.0.0.1",
    port: int | None = None,
    roots: Sequence[Path] = (Path("runs"), Path("sweeps")),
    workers: int | None = None,
    names: Sequence[str] = (),
    ready: Callable[[str], None] | None = None,
    allow_remote: bool = False,
    watch: Sequence[Path] = (),
) -> None:
    """Serves the explorer until it is interrupted.

    **Arguments:**

    - `port`: None for the first free one from `FIRST_PORT` on, 0 for any.
    - `roots`: the folders with runs and sweeps.
    - `workers`: worker processes (default: one per core, at most 4).
    - `names`: further host names of the server.
    - `ready`: called with the address once the server answers.
    - `allow_remote`: whether `host` may be one that others can reach; then the address has a token
      that every request must carry.
    - `watch`: folders of trainings in other processes; then the address is that of their page.
    """
    if not is_local(host) and not allow_remote:
        raise InputError(
            "host",
            host,
            "allow it by --allow-remote (in Python, allow_remote=True), or leave it at 127.0.0.1",
            "is one that others may reach",
        )
    with _listen(host, port) as listener:
        asyncio.run(_serve(listener, host, roots, workers, names, ready, watch))


@contextlib.contextmanager
def _listen(host: str, port: int | None) -> Iterator[socket.socket]:
    """Opens a socket that listens; an `InputError` if no port can be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = range(FIRST_PORT, FIRST_PORT + _PORTS) if port is None else [port]
    failure: OSError | None = None
    for number in tried:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)  # at once: a port that is only bound can be bound again
        except (OSError, OverflowError) as error:
            listener.close()
            failure = error if isinstance(error, OSError) else None
            continue
        try:
            yield listener
        finally:
            listener.close()
        return
    reason = failure.strerror if failure is not None else "not a port"
    if port is None:
        problem = f"cannot be used with any port from {tried[0]} to {tried[-1]} ({reason})"
        raise InputError("host", host, "choose another, or a port", problem)
    problem = f"cannot be used at {host} ({reason})"
    raise InputError("port", port, "choose another, or another host", problem)


async def _serve(
    listener: socket.socket,
    host: str,
    roots: Sequence[Path],
    workers: int | None,
    names: Sequence[str],
    ready: Callable[[str], None] | None,
    watch: Sequence[Path],
) -> None:
    import uvicorn

    from ._app import build_application
    from ._connections import BACKLOG, LimitedProtocol, limit_logs, most_connections
    from ._hub import Hub
    from ._presets import presets
    from ._stored import StoredRuns
    from ._watched import WatchedFolders

    port = listener.getsockname()[1]
    known = presets()
    # The page opens with this preset: workers compile it before it is requested.
    first = next((p.config for p in known if p.id == "linear/staircase"), known[0].config)
    most_workers = 1 if watch else min(_MOST_WORKERS, usable_cores())
    count = most_workers if workers is None else workers
    # Trainings that are watched may need this machine: nothing is compiled that nobody asked for.
    hub = Hub(count, None if watch else first)
    watched = WatchedFolders(hub, watch)
    token = None if is_local(host) else secrets.token_urlsafe(32)
    hosts = [*_accepted_hosts(host, port), *_with_port(names, port)]
    app = build_application(hub, StoredRuns(list(roots)), hosts, token, watched)
    most = {"most": most_connections(count)}
    config = uvicorn.Config(
        app,
        http=type("Protocol", (LimitedProtocol,), most),
        backlog=BACKLOG,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_SHUTDOWN,
        ws="none",
        h11_max_incomplete_event_size=_LARGEST_HEAD,
    )
    limit_logs()
    server = uvicorn.Server(config)
    # Signals are handled here: event streams must end before uvicorn can shut down.
    setattr(server, "capture_signals", contextlib.nullcontext)
    loop = asyncio.get_running_loop()

    def end() -> None:
        hub.end_streams()
        server.should_exit = True

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))
    await hub.start()
    watched.start()
    try:
        serving = asyncio.create_task(server.serve([listener]))
        # uvicorn has no event for this.
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if ready is not None and server.started:
            query = "" if token is None else f"?token={token}"
            page = "watch" if watch else ""
            ready(f"http://{_bracket(_ANY.get(host, host))}:{port}/{page}{query}")
        await serving
    finally:
        await watched.close()
        await hub.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _accepted_hosts(host: str, port: int) -> list[str]:
    """The names that browsers on this machine, or on the network, may use."""
    names = ["127.0.0.1", "localhost", "[::1]"]
    if host in _ANY:
        names += [socket.gethostname(), socket.getfqdn()]
    else:
        names.append(_bracket(host))
    return _with_port(names, port)


def _with_port(names: Sequence[str], port: int) -> list[str]:
    # Browsers leave out the default port of HTTP.
    return [f"{name}:{port}" for name in names] + (list(names) if port == 80 else [])


def is_local(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracket(host: str) -> str:
    """A host as it is written in an address: IPv6 addresses contain colons."""
    return f"[{host}]" if ":" in host else host

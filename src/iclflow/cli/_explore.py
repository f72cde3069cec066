"""`iclflow explore`: the explorer in the browser."""

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ._arguments import Parser


def main(arguments: Sequence[str]) -> int:
    """Serves the explorer until Ctrl-C."""
    parser = Parser(
        "explore",
        "Opens a page in your browser where you change settings and watch attention learn: the "
        "loss with theory on top, the weights, a description in words, and the claims that the "
        "run tests. Ctrl-C ends it.",
    )
    words = "where stored runs and sweeps are (may be repeated; default: runs and sweeps)"
    parser.flag("--root", words, "DIR", action="append")
    words = "show a training that `icl.watch` records in this folder (may be repeated)"
    parser.flag("--watch", words, "FOLDER", action="append", default=[])
    parser.flag("--port", "port (default: the first free one)", "N", type=int)
    words = "address to listen at (default: 127.0.0.1, which only this machine can reach)"
    parser.flag("--host", words, "HOST", default="127.0.0.1")
    words = "let --host be an address that others can reach; the page then requires a token"
    parser.switch("--allow-remote", words)
    words = "another name under which browsers may request the page (may be repeated)"
    parser.flag("--allow-host", words, "NAME", action="append", default=[])
    words = "worker processes (default: one per core, at most 4; 1 with --watch)"
    parser.flag("--workers", words, "N", type=int)
    parser.switch("--no-browser", "do not open a browser")
    parser.switch("--json", "print the address as JSON once the page answers")
    options = parser.parse_args(arguments)
    _check(options)
    from ..explorer import explore, is_local

    roots = [Path(root) for root in options.root or ("runs", "sweeps")]

    def ready(address: str) -> None:
        local = is_local(options.host)
        if not local:
            words = "anyone with the address and its token can start runs on this machine"
            print(f"iclflow: `--host` = {options.host}: {words}.", file=sys.stderr)
        if options.json:
            print(json.dumps({"address": address}), flush=True)
        else:
            print(f"The explorer is at {address} (Ctrl-C ends it)", flush=True)
        # Every user of this machine can see how a browser was started: no token goes there.
        if local and not options.no_browser:
            _open(address)

    names, remote = options.allow_host, options.allow_remote
    watch = [Path(folder) for folder in options.watch]
    with parser.name_flags(arguments):
        explore(options.host, options.port, roots, options.workers, names, ready, remote, watch)
    return 0


def _check(options) -> None:
    if options.port is not None and not 0 <= options.port <= 65535:
        raise InputError(f"`--port` = {options.port}: must be from 0 (any that is free) to 65535.")
    if options.workers is not None and not 1 <= options.workers <= 64:
        raise InputError(f"`--workers` = {options.workers}: must be from 1 to 64.")
    for folder in options.watch:
        if not Path(folder).is_dir() and Path(folder).exists():
            raise InputError(f"`--watch` = {folder!r} is not a folder: give the `out` of a watch.")
    for root in options.root or ():
        if not Path(root).is_dir():
            raise InputError(f"`--root` = {root!r} is not a folder: give one with runs or sweeps.")


def _open(address: str) -> None:
    """Opens the page without waiting for the browser, which may block until it is closed."""
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

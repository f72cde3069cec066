"""`iclflow runs`: what is on disk; `runs verify` checks it and `runs gc` tidies it."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ._errors import Parser, add_json

ACTIONS = ("list", "verify", "gc")


def main(arguments: Sequence[str]) -> int:
    """Lists, checks or tidies the runs below a folder."""
    action, rest = "list", list(arguments)
    if rest and not rest[0].startswith("-"):
        action, *rest = rest
        if action not in ACTIONS:
            raise InputError(f"`runs {action}`: must be `runs`, `runs verify` or `runs gc`.")
    options = _parser(action).parse_args(rest)
    root = Path(options.root)
    return {"list": _list, "verify": _verify, "gc": _gc}[action](root, options)


def _parser(action: str) -> Parser:
    words = {
        "list": "Lists the runs below a folder.",
        "verify": "Reads every file of every complete run, and compares it with its hash.",
        "gc": "Removes what processes that died left behind, and runs that are not complete.",
    }
    command = "runs" if action == "list" else f"runs {action}"
    parser = Parser(command, words[action], epilog=None if action != "list" else (
        "`iclflow runs verify` checks hashes, `iclflow runs gc` removes what is incomplete."
    ))  # fmt: skip
    parser.add_argument("--root", default="runs", metavar="DIR", help="where (default: runs)")
    if action == "list":
        parser.add_argument("--name", metavar="PATTERN", help="only names like this, with * and ?")
        parser.add_argument(
            "--status", choices=("complete", "stopped", "unfinished"), help="only these"
        )
        parser.add_argument(
            "--where", action="append", default=[], metavar="SETTING=VALUE",
            help="only runs with this setting, such as model.heads=4; may be repeated",
        )  # fmt: skip
    if action == "gc":
        parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)
    return parser


def _list(root: Path, options) -> int:
    from ..store import list_runs, matching

    runs = matching(list_runs(root), options.name, options.status, options.where)
    if options.json:
        print(json.dumps([run.as_json() for run in runs], indent=2))
        return 0
    if not runs:
        print(f"No such runs below {root}.")
        return 0
    from rich.console import Console

    from ._tables import plain_table

    table = plain_table("run", "status", "result", "task", "model", "heads", "loss", "seconds")
    for run in runs:
        number = lambda value, form: "–" if value is None else format(value, form)
        table.add_row(
            str(run.folder), run.status, run.result or "–", run.config.task.kind,
            run.config.model.kind, str(run.config.model.heads), number(run.final_loss, ".6g"),
            number(run.seconds, ".2f"),
        )  # fmt: skip
    # Off a terminal there is no width to keep to, and names must stay whole.
    Console(highlight=False, width=None if sys.stdout.isatty() else 240).print(table)
    return 0


def _verify(root: Path, options) -> int:
    from ..store import damage, list_runs

    runs = [run for run in list_runs(root) if run.status != "unfinished"]
    found = [sentence for run in runs for sentence in damage(run.folder)]
    if options.json:
        print(json.dumps({"runs": len(runs), "damage": found}, indent=2))
    else:
        print(f"{len(runs)} run{'' if len(runs) == 1 else 's'} read, {len(found)} damaged files.")
    if found and not options.json:
        for sentence in found:
            print(f"iclflow: {sentence}", file=sys.stderr)
    return 2 if found else 0


def _gc(root: Path, options) -> int:
    from ..store import list_runs, litter

    files = litter(root)
    folders = [run.folder for run in list_runs(root) if run.status != "complete"]
    removed = {"files": [str(path) for path in files], "runs": [str(path) for path in folders]}
    if not files and not folders:
        print(json.dumps(removed) if options.json else f"Nothing to remove below {root}.")
        return 0
    if not options.yes and not _agreed(files, folders):
        raise InputError("nothing was removed: answer y, or give --yes.")
    for path in files:
        path.unlink(missing_ok=True)
    for folder in folders:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(removed, indent=2))
    else:
        print(f"Removed {len(files)} files and {len(folders)} incomplete runs.")
    return 0


def _agreed(files: list[Path], folders: list[Path]) -> bool:
    """Whether the user agrees that these are removed."""
    for path in (*files, *folders):
        print(path, file=sys.stderr)
    print(
        f"Remove {len(files)} leftover files and {len(folders)} incomplete runs? [y/N] ",
        end="", file=sys.stderr, flush=True,
    )  # fmt: skip
    return sys.stdin.readline().strip().lower() in ("y", "yes")

"""`iclflow runs`: what is on disk; `runs verify` checks it and `runs gc` tidies it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..store import STATUSES
from ._errors import Parser, add_json

ACTIONS = ("list", "verify", "gc")
_REMOVED = ("files", "runs", "busy")


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
        "gc": "Removes what processes that died left behind, and runs that are not complete. Files "
        "that no run wrote stay, and so do runs that a process is computing.",
    }
    command = "runs" if action == "list" else f"runs {action}"
    parser = Parser(command, words[action], epilog=None if action != "list" else (
        "`iclflow runs verify` checks hashes, `iclflow runs gc` removes what is incomplete."
    ))  # fmt: skip
    parser.add_argument("--root", default="runs", metavar="DIR", help="where (default: runs)")
    if action == "list":
        parser.add_argument("--name", metavar="PATTERN", help="only names like this, with * and ?")
        parser.add_argument("--status", choices=STATUSES, help="only these")
        parser.add_argument(
            "--where", action="append", default=[], metavar="SETTING=VALUE",
            help="only runs with this setting, such as model.heads=4; may be repeated",
        )  # fmt: skip
    if action == "gc":
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--stopped", action="store_true", help="remove runs that were stopped by their user too"
        )
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
    from ._tables import plain_table, print_wide

    columns = ("status", "result", "task", "model", "heads", "risk", "flow", "seed", "loss")
    table = plain_table("run", *columns, "seconds")
    number = lambda value, form: "–" if value is None else format(value, form)
    for run in runs:
        config = run.config
        kinds = ("–",) * 6
        if config is not None:
            sections = (config.task, config.model, config.risk, config.flow)
            task, model, risk, flow = (section.kind for section in sections)
            kinds = (task, model, str(config.model.heads), risk, flow, str(config.seed))
        numbers = number(run.final_loss, ".6g"), number(run.seconds, ".2f")
        table.add_row(str(run.folder), run.status, run.result or "–", *kinds, *numbers)
    print_wide(table, 240)
    return 0


def _verify(root: Path, options) -> int:
    from ..store import damage, list_runs
    from ._tables import counted

    runs = [run for run in list_runs(root) if run.status != "unfinished"]
    found = [sentence for run in runs for sentence in damage(run.folder)]
    if options.json:
        print(json.dumps({"runs": len(runs), "damage": found}, indent=2))
    else:
        print(f"{counted(len(runs), 'run')} read, {counted(len(found), 'file')} damaged.")
        for sentence in found:
            print(f"iclflow: {sentence}", file=sys.stderr)
    return 2 if found else 0


def _gc(root: Path, options) -> int:
    from ..store import litter, remove
    from ._tables import counted

    found = litter(root, options.stopped)
    if not (found.files or found.runs):
        empty = {"files": [], "runs": [], "busy": []}
        print(json.dumps(empty) if options.json else f"Nothing to remove below {root}.")
        return 0
    if not options.yes and not _agreed(found.files, found.runs):
        print("Nothing was removed.", file=sys.stderr)
        return 0
    removed = remove(found)
    told = {name: [str(path) for path in getattr(removed, name)] for name in _REMOVED}
    if options.json:
        print(json.dumps(told, indent=2))
        return 0
    files, runs = counted(len(removed.files), "file"), counted(len(removed.runs), "run")
    print(f"Removed {files} and {runs}.")
    for folder in removed.busy:
        print(f"Left {folder}: a process is computing it.")
    return 0


def _agreed(files: Sequence[Path], folders: Sequence[Path]) -> bool:
    """Whether the user agrees that these are removed."""
    from ._tables import counted

    for path in (*files, *folders):
        print(path, file=sys.stderr)
    what = f"{counted(len(files), 'leftover file')} and {counted(len(folders), 'incomplete run')}"
    print(f"Remove {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

"""`iclflow runs`: what is on disk, sweeps too; `runs verify` checks it and `runs gc` tidies it."""

import fnmatch
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import printable
from ..store import STATUSES
from ._errors import Parser, add_json

ACTIONS = ("list", "verify", "gc")
_REMOVED = ("files", "runs", "sweeps", "busy")
# Where runs and sweeps are written unless they are told otherwise.
_ROOTS = ("runs", "sweeps")


def main(arguments: Sequence[str]) -> int:
    """Lists, checks or tidies the runs and the sweeps below a folder."""
    action, rest = "list", list(arguments)
    if rest and not rest[0].startswith("-"):
        action, *rest = rest
        if action not in ACTIONS:
            raise InputError(f"`runs {action}`: must be `runs`, `runs verify` or `runs gc`.")
    options = _parser(action).parse_args(rest)
    roots = [Path(options.root)] if options.root else [Path(p) for p in _ROOTS if Path(p).is_dir()]
    # Where neither is there, the first is missed.
    roots = roots or [Path(_ROOTS[0])]
    return {"list": _list, "verify": _verify, "gc": _gc}[action](roots, options)


def _parser(action: str) -> Parser:
    words = {
        "list": "Lists the runs and the sweeps below a folder.",
        "verify": "Reads every file of every run and sweep, and compares it with its hash.",
        "gc": "Removes what processes that died left behind, and runs that are not complete. Files "
        "that no run and no sweep wrote stay, and so does what a process is computing.",
    }
    command = "runs" if action == "list" else f"runs {action}"
    parser = Parser(command, words[action], epilog=None if action != "list" else (
        "`iclflow runs verify` checks hashes, `iclflow runs gc` removes what is incomplete."
    ))  # fmt: skip
    parser.add_argument("--root", metavar="DIR", help="where (default: runs and sweeps)")
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
            "--stopped",
            action="store_true",
            help="remove runs that were stopped by their user and sweeps that are not complete too",
        )
    add_json(parser)
    return parser


def _list(roots: Sequence[Path], options) -> int:
    from ..store import list_runs, list_sweeps, matching

    every = [run for root in roots for run in list_runs(root)]
    runs = matching(every, options.name, options.status, options.where)
    if options.json:
        print(json.dumps([run.as_json() for run in runs], indent=2))
        return 0
    sweeps = [
        sweep
        for root in ([] if options.where else roots)
        for sweep in list_sweeps(root)
        if options.status in (None, sweep.status)
        and fnmatch.fnmatch(sweep.folder.name, options.name or "*")
    ]
    if not (runs or sweeps):
        print(f"No such runs below {_named(roots)}.")
    if runs:
        _print_runs(runs)
    if sweeps:
        _print_sweeps(sweeps)
    return 0


def _print_runs(runs) -> None:
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
        table.add_row(printable(run.folder), _status(run), run.result or "–", *kinds, *numbers)
    print_wide(table, 240)


def _print_sweeps(sweeps) -> None:
    from ._tables import plain_table, print_wide

    table = plain_table("sweep", "status", "runs", "batches done")
    for sweep in sweeps:
        runs = "–" if sweep.runs is None else str(sweep.runs)
        table.add_row(printable(sweep.folder), _status(sweep), runs, str(sweep.batches))
    print_wide(table, 240)


def _status(stored) -> str:
    return f"{stored.status}: {stored.reason}" if stored.reason else stored.status


def _verify(roots: Sequence[Path], options) -> int:
    from ..store import damage, list_runs, list_sweeps, sweep_damage
    from ._tables import counted

    every = [run for root in roots for run in list_runs(root)]
    runs = [run for run in every if run.status != "unfinished"]
    sweeps = [sweep for root in roots for sweep in list_sweeps(root)]
    found = [sentence for run in runs for sentence in damage(run.folder) or _reason(run)]
    found += [sentence for sweep in sweeps for sentence in sweep_damage(sweep)]
    if options.json:
        told = {"runs": len(runs), "sweeps": len(sweeps), "damage": list(map(printable, found))}
        print(json.dumps(told, indent=2))
    else:
        read = f"{counted(len(runs), 'run')} and {counted(len(sweeps), 'sweep')} read"
        print(f"{read}, {counted(len(found), 'file')} damaged.")
        for sentence in found:
            print(f"iclflow: {printable(sentence)}", file=sys.stderr)
    return 2 if found else 0


def _reason(run) -> list[str]:
    """Why a run cannot be read, where no manifest says how its files should be."""
    return [] if run.reason is None else [f"`{run.folder}` is unreadable: {run.reason}."]


def _gc(roots: Sequence[Path], options) -> int:
    from ..store import litter, remove
    from ._tables import counted

    found = litter(roots, options.stopped)
    if not found.folders:
        empty = {name: [] for name in _REMOVED}
        print(json.dumps(empty) if options.json else f"Nothing to remove below {_named(roots)}.")
        return 0
    if not options.yes and not _agreed(found.files, found.runs, found.sweeps):
        print("Nothing was removed.", file=sys.stderr)
        return 0
    removed = remove(found)
    told = {name: [printable(path) for path in getattr(removed, name)] for name in _REMOVED}
    for folder, reason in removed.left:
        print(f"iclflow: left {printable(folder)} as it is: {reason}.", file=sys.stderr)
    if options.json:
        print(json.dumps(told, indent=2))
        return 0
    whats = ("file", "run", "sweep")
    files, runs, sweeps = (counted(len(told[f"{what}s"]), what) for what in whats)
    print(f"Removed {files}, {runs} and {sweeps}.")
    for folder in removed.busy:
        print(f"Left {printable(folder)}: a process is computing it.")
    return 0


def _named(roots: Sequence[Path]) -> str:
    return " and ".join(map(str, roots))


def _agreed(files: Sequence[Path], runs: Sequence[Path], sweeps: Sequence[Path]) -> bool:
    """Whether the user agrees that these are removed."""
    from ._tables import counted

    for path in (*files, *runs, *sweeps):
        print(printable(path), file=sys.stderr)
    whats = (("leftover file", files), ("incomplete run", runs), ("incomplete sweep", sweeps))
    what = [counted(len(paths), name) for name, paths in whats if paths]
    print(f"Remove {' and '.join(what)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

"""`iclflow runs`: runs and sweeps on disk; `runs verify` checks them, `runs gc` cleans up."""

import fnmatch
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import printable
from ..store import CONFIG, STATUSES
from ._arguments import WATCHED, Parser
from ._streams import note, print_json, say

ACTIONS = ("list", "verify", "gc")
# What `gc` reports: removed files, runs and sweeps, and folders that a process is computing.
_REMOVED = ("files", "runs", "sweeps", "busy")
# Characters of a table where no terminal has a width: folders may have long names.
_WIDTH = 240
_COLUMNS = (
    *("run", "status", "result", "task", "model", "heads", "risk", "flow", "seed", "loss"),
    "seconds",
)
# What a narrow terminal leaves out, the first ones first: names, which commands take, stay whole.
_LEAST_NEEDED = ("seconds", "risk", "heads", "flow", "task", "result", "model", "seed", "loss")
# Where runs and sweeps are written by default.
_ROOTS = ("runs", "sweeps")


def main(arguments: Sequence[str]) -> int:
    """Lists, checks or cleans up the runs and the sweeps below a folder."""
    action, rest = "list", list(arguments)
    if rest and not rest[0].startswith("-"):
        action, *rest = rest
        if action not in ACTIONS:
            raise InputError(f"`runs {action}`: must be `runs`, `runs verify` or `runs gc`.")
    options = _parser(action).parse_args(rest)
    roots = [Path(options.root)] if options.root else [Path(p) for p in _ROOTS if Path(p).is_dir()]
    # If neither exists, the message names the first.
    roots = roots or [Path(_ROOTS[0])]
    return {"list": _list, "verify": _verify, "gc": _gc}[action](roots, options)


def _parser(action: str) -> Parser:
    words = {
        "list": "Lists the runs and the sweeps below a folder.",
        "verify": "Reads every file of every run and sweep, and compares it with its hash.",
        "gc": "Removes temporary files of killed processes, and runs that are not complete. Files "
        "that no run or sweep wrote stay, and so does what a process is computing.",
    }
    command = "runs" if action == "list" else f"runs {action}"
    parser = Parser(command, words[action])
    parser.flag("--root", "where (default: runs and sweeps)", "DIR")
    if action == "list":
        others = (
            "`iclflow runs verify` checks hashes, `iclflow runs gc` removes what is incomplete."
        )
        parser.epilog = others
        parser.flag("--name", "only names that match, with * and ?", "PATTERN")
        parser.flag("--status", "only this status", choices=STATUSES)
        each = "only runs with this setting, such as model.heads=4; may be repeated"
        parser.flag("--where", each, "SETTING=VALUE", action="append", default=[])
    if action == "gc":
        parser.switch("--yes", "do not ask")
        also = "also remove runs that their user stopped, and sweeps that are not complete"
        parser.switch("--stopped", also)
    parser.add_json()
    return parser


def _list(roots: Sequence[Path], options) -> int:
    from ..store import filter_runs, list_runs, list_sweeps

    every = [run for root in roots for run in list_runs(root)]
    runs = filter_runs(every, options.name, options.status, options.where)
    if options.json:
        print_json([run.as_json() for run in runs])
        return 0
    sweeps = [
        sweep
        for root in ([] if options.where else roots)  # a sweep has no single config
        for sweep in list_sweeps(root)
        if options.status in (None, sweep.status)
        and fnmatch.fnmatch(sweep.folder.name, options.name or "*")
    ]
    trainings = [] if options.where or options.status else _watched(roots, options.name)
    if trainings:
        note(
            f"`icl.watch` recorded a training in {' and in '.join(trainings)}: `iclflow query "
            "FOLDER` shows its tables, `iclflow explore --watch FOLDER` draws it."
        )
    if not (runs or sweeps or trainings):
        print(f"No such runs below {_join(roots)}.")
    if runs:
        _print_runs(runs)
    if sweeps:
        _print_sweeps(sweeps)
    begun = ("stopped", "unfinished")
    resumable = [run.folder for run in runs if run.resumable and run.status in begun]
    if resumable:
        file, one = (shlex.quote(printable(each)) for each in (resumable[0] / CONFIG, resumable[0]))
        others = "" if len(resumable) == 1 else ", and likewise the others"
        say(f"`iclflow run {file} --out {one}` resumes {printable(resumable[0])}{others}.")
    return 0


def _watched(roots: Sequence[Path], pattern: str | None) -> list[str]:
    """The folders of watched trainings."""
    return [
        printable(path.parent)
        for root in roots
        for path in sorted(root.rglob(WATCHED))
        if fnmatch.fnmatch(path.parent.name, pattern or "*")
    ]


def _print_runs(runs) -> None:
    from ._tables import print_columns

    rows = []
    number = lambda value, form: "–" if value is None else format(value, form)
    for run in runs:
        config = run.config
        kinds = ("–",) * 6
        if config is not None:
            sections = (config.task, config.model, config.risk, config.flow)
            task, model, risk, flow = (section.kind for section in sections)
            kinds = (task, model, str(config.model.heads), risk, flow, str(config.seed))
        numbers = number(run.final_loss, ".6g"), number(run.seconds, ".2f")
        rows.append((printable(run.folder), _status(run), run.result or "–", *kinds, *numbers))
    print_columns(_COLUMNS, rows, _WIDTH, _LEAST_NEEDED)


def _print_sweeps(sweeps) -> None:
    from ._tables import plain_table, print_wide

    table = plain_table("sweep", "status", "runs", "batches done")
    for sweep in sweeps:
        runs = "–" if sweep.runs is None else str(sweep.runs)
        table.add_row(printable(sweep.folder), _status(sweep), runs, str(sweep.batches))
    print_wide(table, _WIDTH)


def _status(stored) -> str:
    return f"{stored.status}: {stored.reason}" if stored.reason else stored.status


def _verify(roots: Sequence[Path], options) -> int:
    from ..report import count_of
    from ..store import find_damage, find_sweep_damage, list_runs, list_sweeps

    every = [run for root in roots for run in list_runs(root)]
    # An unfinished run has no manifest yet, so no hashes to compare with.
    runs = [run for run in every if run.status != "unfinished"]
    sweeps = [sweep for root in roots for sweep in list_sweeps(root)]
    found = [sentence for run in runs for sentence in find_damage(run.folder) or _reason(run)]
    found += [sentence for sweep in sweeps for sentence in find_sweep_damage(sweep)]
    if options.json:
        result = {"runs": len(runs), "sweeps": len(sweeps), "damage": list(map(printable, found))}
        print_json(result)
    else:
        read = f"{count_of(len(runs), 'run')} and {count_of(len(sweeps), 'sweep')} read"
        print(f"{read}, {count_of(len(found), 'file')} damaged.")
        for sentence in found:
            note(printable(sentence))
    return 2 if found else 0


def _reason(run) -> list[str]:
    """Why a run cannot be read, where no manifest lists its files."""
    return [] if run.reason is None else [f"`{run.folder}` is unreadable: {run.reason}."]


def _gc(roots: Sequence[Path], options) -> int:
    from ..report import count_of
    from ..store import plan_removal, remove

    found = plan_removal(roots, options.stopped)
    if not found.folders:
        if options.json:
            print_json({name: [] for name in _REMOVED})
        else:
            print(f"Nothing to remove below {_join(roots)}.")
        return 0
    # Questions go to standard error: standard output may be read by a program.
    if not options.yes and not _confirm(found.files, found.runs, found.sweeps):
        print("Nothing was removed.", file=sys.stderr)
        return 0
    removed = remove(found)
    result = {name: [printable(path) for path in getattr(removed, name)] for name in _REMOVED}
    for folder, reason in removed.left:
        note(f"left {printable(folder)} as it is: {reason}.")
    if options.json:
        print_json(result)
        return 0
    whats = ("file", "run", "sweep")
    files, runs, sweeps = (count_of(len(result[f"{what}s"]), what) for what in whats)
    print(f"Removed {files}, {runs} and {sweeps}.")
    for folder in removed.busy:
        print(f"Left {printable(folder)}: a process is computing it.")
    return 0


def _join(roots: Sequence[Path]) -> str:
    return " and ".join(map(str, roots))


def _confirm(files: Sequence[Path], runs: Sequence[Path], sweeps: Sequence[Path]) -> bool:
    """Whether the user agrees to remove these."""
    from ..report import count_of

    for path in (*files, *runs, *sweeps):
        print(printable(path), file=sys.stderr)
    whats = (("leftover file", files), ("incomplete run", runs), ("incomplete sweep", sweeps))
    what = [count_of(len(paths), name) for name, paths in whats if paths]
    print(f"Remove {' and '.join(what)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

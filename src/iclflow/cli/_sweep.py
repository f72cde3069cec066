"""`iclflow sweep FILE`: many runs, one table."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..config import InputError, named, read_toml, with_flags
from ..runtime import Activity, start, use_one_thread
from ._arguments import Parser, check_kind
from ._interrupts import Interrupts, ignore_signals, report_kept
from ._streams import note_waiting, print_json, say

ENGINES = ("local", "ray")
# Keys of the file outside of [base], by the flag that a user might try.
_IN_FILE = {"seed": "seeds"} | {key: key for key in ("seeds", "name", "batch", "zip", "measure")}


def main(arguments: Sequence[str]) -> int:
    """Computes a sweep and writes its table."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    if arguments[0] == "--measurements":
        return _list_measurements("--json" in arguments)
    file, options, flags = parser.parse_resumable(arguments)
    check_kind(file, "file of a sweep")
    if options.address is not None and options.engine != "ray":
        raise InputError(f"`--address` = {options.address} needs --engine ray.")
    data = _with_base_flags(named(read_toml(file), file), flags)
    use_one_thread()  # rows must not depend on how many cores a machine has
    # With Ray its workers use the devices: this process only checks and gathers.
    start(processor_only=options.engine == "ray")
    from ..store import SWEEP, check_input
    from ..sweeps import LocalEngine, RayEngine, parse_sweep, sweep_text

    with parser.name_flags(arguments):
        engine = RayEngine(options.address) if options.engine == "ray" else LocalEngine()
    sweep = parse_sweep(data)
    path = Path(options.out) if options.out else Path("sweeps") / sweep.folder_name
    check_input(file, path, {SWEEP: sweep_text(sweep)})
    with parser.name_flags(arguments):
        return _run(sweep, path, options, engine)


def _parser() -> Parser:
    parser = Parser(
        "sweep",
        "Runs every combination of the swept settings and seeds in a TOML file, runs of one shape "
        "as one program, and writes one table with one row per run. A sweep that is complete is "
        "shown at once; one that was stopped resumes.",
        usage="iclflow sweep FILE [--out DIR] [--engine local|ray] [--address ADDRESS]\n"
        f"{' ' * 21}[--fresh] [--checkpoint-every SECONDS] [--json]\n"
        f"{' ' * 21}[--SECTION.SETTING VALUE …]\n       iclflow sweep --measurements",
        epilog="Every setting in [base] can be overridden by a flag, such as --model.heads 8; "
        "`iclflow sweep --measurements` lists what can be measured.",
        add_help=False,
    )
    parser.flag("--out", "where to write (default: sweeps/NAME-HASH)", "DIR")
    words = "where to compute: on the devices of this machine (default), or as tasks of Ray"
    parser.flag("--engine", words, choices=ENGINES, default="local")
    parser.flag(
        "--address",
        "HOST:PORT of a Ray cluster that this machine is a node of, or auto for the one that runs "
        "here (default: start Ray on this machine for this sweep)",
        "ADDRESS",
    )
    parser.add_resume()
    parser.add_json()
    return parser


def _with_base_flags(data: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The data of a sweep with its base overridden by flags."""
    base = data.get("base")
    if not flags or not isinstance(base, dict):
        return data
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if flag.startswith("--") and name in _IN_FILE:
            raise InputError(f"`{flag}` is not a flag: set `{_IN_FILE[name]}` in the file instead.")
    merged = with_flags(base, flags)
    axes = data.get("axes", {})
    axes = axes if isinstance(axes, dict) else {}  # `parse_sweep` refuses anything else
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        section, _, key = name.partition(".")
        inside = axes.get(section)
        if flag.startswith("--") and (name in axes or isinstance(inside, dict) and key in inside):
            raise InputError(f"`{flag}` is an axis of this sweep: change it in the file.")
    return data | {"base": merged}


def _run(sweep, path: Path, options, engine) -> int:
    from ..sweeps import complete, emergence

    with report_kept(path), Interrupts(), Activity(sweep.name) as activity:
        found = complete(
            sweep,
            path,
            engine,
            activity.update,
            fresh=options.fresh,
            checkpoint_every=options.checkpoint_every,
            waiting=partial(note_waiting, "sweep"),
        )
    manifest, written = found.manifest, found.written
    ignore_signals()
    result = {key: manifest[key] for key in ("name", "runs", "batches", "results", "statistics")}
    result |= {"hash": sweep.hash, "folder": str(path), "written": written}
    shares = emergence(found.table())
    result["emergence"] = [dataclasses.asdict(share) for share in shares]
    if options.json:
        print_json(result)
    else:
        from ..report import count_of
        from ._tables import print_emergence

        counts = ", ".join(f"{count} {name}" for name, count in manifest["results"].items())
        batches = f"{manifest['batches']} batch{'es' * (manifest['batches'] != 1)}"
        print(f"{count_of(manifest['runs'], 'run')} in {batches}: {counts}")
        print(f"{manifest['statistics']['seconds']:.1f} seconds")
        print_emergence(shares)
        print(f"{'written to' if written else 'was already in'} {path}; query it with")
        print(f'iclflow query {path} "SELECT * FROM results LIMIT 5"')
    return 0


def _list_measurements(as_json: bool) -> int:
    from ..sweeps import MEASUREMENTS

    if as_json:
        listed = [
            {"name": m.name, "words": m.words, "columns": dict(m.columns)}
            for m in MEASUREMENTS.values()
        ]
        print_json(listed)
        return 0
    for each in MEASUREMENTS.values():
        say(f"{each.name}\n    {each.words}\n    adds {', '.join(each.columns)}", 4)
    return 0

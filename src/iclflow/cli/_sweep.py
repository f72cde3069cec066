"""`iclflow sweep FILE`: many runs, one table."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError, named, read_toml, with_flags
from ._activity import Activity
from ._errors import Parser, add_json, add_lasting, lasting_options
from ._interrupts import Interrupts, ignore_signals, report_kept
from ._kinds import check_kind
from ._start import start
from ._streams import note
from ._sweep_progress import completed
from ._sweep_progress import use_one_thread as _use_one_thread

ENGINES = ("local", "ray")
# What a file says of the sweep itself, and what one might give for it.
_IN_FILE = {"seed": "seeds"} | {key: key for key in ("seeds", "name", "batch", "zip", "measure")}


def main(arguments: Sequence[str]) -> int:
    """Computes a sweep and writes its table."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    if arguments[0] == "--measurements":
        return _list_measurements("--json" in arguments)
    file, options, flags = lasting_options(parser, arguments)
    check_kind(file, "file of a sweep")
    if options.address is not None and options.engine != "ray":
        raise InputError(f"`--address` = {options.address} needs --engine ray.")
    data = _with_base_flags(named(read_toml(file), file), flags)
    _use_one_thread()
    if options.engine == "ray":
        _use_one_core()
    start()
    engine = _engine(options)
    from ..store import SWEEP, check_input
    from ..sweep import batches_of, check_ends, parse_sweep, sweep_text

    sweep = parse_sweep(data)
    batches = batches_of(sweep)
    check_ends(sweep, batches)
    path = Path(options.out) if options.out else Path("sweeps") / sweep.folder_name
    check_input(file, path, {SWEEP: sweep_text(sweep)})
    return _run(sweep, batches, path, options, engine)


def _parser() -> Parser:
    parser = Parser(
        "sweep",
        "Runs every combination of the swept settings and seeds of a TOML file, those of one shape "
        "as one program, and writes one table with a row a run. A sweep that is there already is "
        "shown at once; one that was stopped goes on where it stood.",
        usage="iclflow sweep FILE [--out DIR] [--engine local|ray] [--address ADDRESS] "
        "[--fresh] [--json] [--SECTION.SETTING VALUE …]\n       iclflow sweep --measurements",
        epilog="Every setting of [base] can be put over by a flag, such as --model.heads 8; "
        "`iclflow sweep --measurements` lists what can be measured.",
        add_help=False,
    )
    parser.add_argument("--out", metavar="DIR", help="where to write (default: sweeps/NAME-HASH)")
    parser.add_argument(
        "--engine", choices=ENGINES, default="local",
        help="where to compute: on the devices of this machine (default), or as tasks of Ray",
    )  # fmt: skip
    parser.add_argument(
        "--address", metavar="ADDRESS",
        help="HOST:PORT of a Ray cluster that this machine is a node of, or auto for the one that "
        "runs here (default: Ray on this machine alone, for as long as it takes)",
    )  # fmt: skip
    add_lasting(parser)
    add_json(parser)
    return parser


def _with_base_flags(data: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The data of a sweep with flags put over its base."""
    base = data.get("base")
    if not flags or not isinstance(base, dict):
        return data
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if flag.startswith("--") and name in _IN_FILE:
            raise InputError(f"`{flag}` is no flag: `{_IN_FILE[name]}` stands in the sweep's file.")
    merged = with_flags(base, flags)
    axes = data.get("axes", {})
    axes = axes if isinstance(axes, dict) else {}
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        section, _, key = name.partition(".")
        inside = axes.get(section)
        if flag.startswith("--") and (name in axes or isinstance(inside, dict) and key in inside):
            raise InputError(f"`{flag}` is an axis of this sweep: change it in the file.")
    return data | {"base": merged}


def _use_one_core() -> None:
    """Leaves the devices to the processes of Ray: this one only checks and gathers."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _engine(options):
    from ..engines import LocalEngine, RayEngine

    return RayEngine(options.address) if options.engine == "ray" else LocalEngine()


def _facts(engine) -> dict[str, Any]:
    """What the manifest says of the engine: its `device` is that of this process, which with Ray
    only gathers."""
    from ..engines import RayEngine

    if isinstance(engine, RayEngine):
        return {"engine": "ray", "devices": dict(engine.devices)}
    return {}


def _run(sweep, batches, path: Path, options, engine) -> int:
    from ..store import RESULTS
    from ..sweep import SweepFolder, Table, emergence

    activity = Activity(sweep.name)

    def waiting() -> None:
        words = "waiting for another process that computes this sweep"
        activity.update(f"{sweep.name}: {words}")
        if not sys.stderr.isatty():
            note(f"{words}.")

    with report_kept(path), Interrupts(), activity:
        manifest, written = None if options.fresh else SweepFolder.found(path, sweep), False
        if manifest is None:
            with SweepFolder.locked(path, sweep, waiting, options.fresh) as folder:
                written = folder.manifest is None
                every = options.checkpoint_every
                facts = lambda: _facts(engine)
                manifest = completed(sweep, batches, folder, engine, activity, every, facts)
    ignore_signals()
    result = {key: manifest[key] for key in ("name", "runs", "batches", "results", "statistics")}
    result |= {"hash": sweep.hash, "folder": str(path), "written": written}
    shares = emergence(Table([path / RESULTS]))
    result["emergence"] = [dataclasses.asdict(share) for share in shares]
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        from ._tables import counted, print_emergence

        counts = ", ".join(f"{count} {name}" for name, count in manifest["results"].items())
        batches = f"{manifest['batches']} batch{'es' * (manifest['batches'] != 1)}"
        print(f"{counted(manifest['runs'], 'run')} in {batches}: {counts}")
        print(f"{manifest['statistics']['seconds']:.1f} seconds")
        print_emergence(shares)
        print(f"{'written to' if written else 'was already in'} {path}; ask it with")
        print(f'iclflow query {path} "SELECT * FROM results LIMIT 5"')
    return 0


def _list_measurements(as_json: bool) -> int:
    from ..sweep import MEASUREMENTS

    if as_json:
        listed = [
            {"name": m.name, "words": m.words, "columns": dict(m.columns)}
            for m in MEASUREMENTS.values()
        ]
        print(json.dumps(listed, indent=2))
        return 0
    for each in MEASUREMENTS.values():
        print(f"{each.name}\n    {each.words}\n    adds {', '.join(each.columns)}")
    return 0

"""`iclflow sweep FILE`: many runs, one table."""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError, named, read_toml, with_flags
from ._activity import Activity
from ._errors import Parser, add_json, add_lasting, lasting_options
from ._interrupts import Interrupted, Interrupts
from ._start import start

ENGINES = ("local",)


def main(arguments: Sequence[str]) -> int:
    """Computes a sweep and writes its table."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    if arguments[0] == "--measurements":
        return _list_measurements("--json" in arguments)
    file, options, flags = lasting_options(parser, arguments)
    data = _with_base_flags(named(read_toml(file), file), flags)
    _use_all_cores()
    start()
    from ..sweep import batches_of, check_ends, parse_sweep

    sweep = parse_sweep(data)
    batches = batches_of(sweep)
    check_ends(sweep, batches)
    path = Path(options.out) if options.out else Path("sweeps") / sweep.folder_name
    return _run(sweep, batches, path, options)


def _parser() -> Parser:
    parser = Parser(
        "sweep",
        "Runs every combination of the swept settings and seeds of a TOML file, those of one shape "
        "as one program, and writes one table with a row a run. A sweep that is there already is "
        "shown at once; one that was stopped goes on where it stood.",
        usage="iclflow sweep FILE [--out DIR] [--engine local] [--fresh] [--json] "
        "[--SECTION.SETTING VALUE …]\n       iclflow sweep --measurements",
        epilog="Every setting of [base] can be put over by a flag, such as --model.heads 8; "
        "`iclflow sweep --measurements` lists what can be measured.",
        add_help=False,
    )
    parser.add_argument("--out", metavar="DIR", help="where to write (default: sweeps/NAME-HASH)")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="where to compute")
    add_lasting(parser)
    add_json(parser)
    return parser


def _with_base_flags(data: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The data of a sweep with flags put over its base."""
    base = data.get("base")
    if not flags or not isinstance(base, dict):
        return data
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


def _use_all_cores() -> None:
    """A device for every core, where the processor is what computes: each takes a batch."""
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # Once there are devices, as in a program that calls this one, there are as many as there are.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores or 1)


def _run(sweep, batches, path: Path, options) -> int:
    from ..sweep import SweepFolder

    activity, begin = Activity(sweep.name), time.perf_counter()

    def waiting() -> None:
        activity.update(f"{sweep.name}: waiting for another process that computes it")

    with Interrupts(), activity, SweepFolder.locked(path, sweep, waiting, options.fresh) as folder:
        manifest = folder.manifest
        written = manifest is None
        if manifest is None:
            manifest = _computed(sweep, batches, folder, activity, begin, options.checkpoint_every)
        else:
            folder.tidy()
    result = {key: manifest[key] for key in ("name", "runs", "batches", "results", "statistics")}
    result |= {"hash": sweep.hash, "folder": str(path), "written": written}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        counts = ", ".join(f"{count} {name}" for name, count in manifest["results"].items())
        print(f"{manifest['runs']} runs in {manifest['batches']} batches: {counts}")
        print(f"{manifest['statistics']['seconds']:.1f} seconds")
        print(f"{'written to' if written else 'was already in'} {path}; ask it with")
        print(f'iclflow query {path} "SELECT * FROM results LIMIT 5"')
    return 0


def _computed(sweep, batches, folder, activity: Activity, begin: float, every: float) -> dict:
    from ..engines import LocalEngine

    parts = folder.done()
    left = [batch for batch in batches if batch.number not in parts]
    shares = {number: 1.0 for number in parts}

    def progress(number: int, share: float) -> None:
        shares[number] = share
        done = sum(len(batch.runs) * shares.get(batch.number, 0.0) for batch in batches)
        state = f"{len(parts)} of {len(batches)} batches"
        activity.update(sweep.name, done / len(sweep), state)

    finished = LocalEngine().compute(sweep, left, folder.parts, every, progress)
    try:
        with contextlib.closing(finished):
            for each in finished:
                parts[each.batch.number] = folder.keep(each)
                progress(each.batch.number, 1.0)
    except KeyboardInterrupt:
        parts = folder.done()  # it may have come between the writing of a part and our noting it
        kept = sum(len(batch.runs) for batch in batches if batch.number in parts)
        raise Interrupted(
            f"{kept} of {len(sweep)} runs are in {folder.path}, and the same command goes on"
        ) from None
    activity.update(f"{sweep.name}: joining the results")
    seconds = time.perf_counter() - begin
    return folder.complete([parts[n] for n in sorted(parts)], {"seconds": seconds})


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

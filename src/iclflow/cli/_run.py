"""`iclflow run FILE`: one experiment, its folder, and a summary."""

import json
from collections.abc import Sequence
from pathlib import Path

from ..config import Config, InputError, named, parse_config, read_toml, with_flags
from ._activity import Activity
from ._errors import Parser, add_json
from ._interrupts import INTERRUPTED, Interrupts
from ._start import start


def main(arguments: Sequence[str]) -> int:
    """Runs a config and writes `config.toml`, the trajectory, its manifest and its figure."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    file, *rest = arguments
    if file.startswith("-"):
        raise InputError(f"`FILE` comes first, before {file}: give the path of a TOML file.")
    options, flags = parser.parse_known_args(rest)
    if {"-h", "--help"} & set(flags):
        parser.print_help()  # the settings of the file follow
    config = read_config(file, flags)
    folder = Path(options.out) if options.out else Path("runs") / config.folder_name
    return _run(config, folder, options.force, options.json)


def read_config(file: str, flags: Sequence[str] = ()) -> Config:
    """The config in a file, with flags put over it: defaults < file < flags."""
    data = named(read_toml(file), file)
    return parse_config(with_flags(data, flags) if flags else data)


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Runs the experiment that a TOML file describes, and writes a folder with its resolved "
        "config, its trajectory and a figure of its loss with whatever theory applies.",
        usage="iclflow run FILE [--out DIR] [--force] [--json] [--SECTION.SETTING VALUE …]",
        epilog="Every setting of the file can be put over by a flag, such as --seed 3 or "
        "--model.heads 8; `iclflow run FILE --help` lists those of that file.",
        add_help=False,
    )
    parser.add_argument("--out", metavar="DIR", help="where to write (default: runs/NAME-HASH)")
    parser.add_argument("--force", action="store_true", help="overwrite another run there")
    add_json(parser)
    return parser


def _run(config: Config, folder: Path, force: bool, as_json: bool) -> int:
    from ..experiment import (
        build_task,
        check_free,
        keeps_its_run,
        loss_figure,
        overlay,
        prepare,
        result_folder,
        summarise,
        train,
        write_run,
    )
    from ..trajectory import Result

    start()
    check_free(folder, config, force)
    build_task(config)
    with Interrupts(), result_folder(folder), Activity(config.name) as activity:

        def show(status) -> None:
            state = f"{status.clock:.4g}, {status.steps} steps, loss {status.loss:.5g}"
            activity.update(config.name, status.fraction, state)

        experiment = prepare(config)
        run = train(experiment, show)
        activity.update(f"{config.name}: drawing")
        predicted, floor = overlay(experiment), experiment.floor()
        figures = loss_figure(run, predicted, floor, config.name)
        summary = summarise(config, run, floor, predicted, experiment.task)
        written = not keeps_its_run(folder, config, run)
        if written:
            write_run(folder, config, run, figures)
    if as_json:
        result = {**summary.as_json(), "folder": str(folder), "written": written}
        print(json.dumps(result, indent=2))
    else:
        from ._tables import print_summary

        words = "written to" if written else "not written: the run that reached its end stays in"
        print_summary(summary, f"{words} {folder}")
    if run.result is Result.cancelled:
        return INTERRUPTED
    return 0 if run.result.ok else 1

"""`iclflow run FILE`: one experiment, its folder, and a summary."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..config import Config, named, parse_config, read_toml, with_flags
from ._activity import Activity
from ._errors import Parser, add_json, add_lasting, lasting_options
from ._interrupts import INTERRUPTED, Interrupts, ignore_signals, report_kept
from ._kinds import check_kind
from ._start import start
from ._streams import note


def main(arguments: Sequence[str]) -> int:
    """Runs a config and writes `config.toml`, the trajectory, its manifest and its figure."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    file, options, flags = lasting_options(parser, arguments)
    check_kind(file, "file of a run")
    config = read_config(file, flags)
    folder = Path(options.out) if options.out else Path("runs") / config.folder_name
    return _run(config, folder, options, file)


def read_config(file: str, flags: Sequence[str] = ()) -> Config:
    """The config in a file, with flags put over it: defaults < file < flags."""
    data = named(read_toml(file), file)
    return parse_config(with_flags(data, flags) if flags else data)


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Runs the experiment that a TOML file describes, and writes a folder with its resolved "
        "config, its trajectory and a figure of its loss with whatever theory applies. A run that "
        "is there already is shown at once; one that was stopped goes on where it stood.",
        usage="iclflow run FILE [--out DIR] [--fresh] [--force] [--checkpoint-every SECONDS] "
        "[--json] [--SECTION.SETTING VALUE …]",
        epilog="Every setting of the file can be put over by a flag, such as --seed 3 or "
        "--model.heads 8; `iclflow run FILE --help` lists those of that file.",
        add_help=False,
    )
    parser.add_argument("--out", metavar="DIR", help="where to write (default: runs/NAME-HASH)")
    add_lasting(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite files that have the names of a run's in this folder, "
        "whoever wrote them; others stay",
    )
    add_json(parser)
    return parser


def _run(config: Config, path: Path, options, file: str) -> int:
    from ..experiment import build_task, prepare, summarise
    from ..store import CONFIG, RunFolder, check_free, check_input, config_text
    from ..trajectory import Result

    start()
    check_input(file, path, {CONFIG: config_text(config)})
    check_free(path, config, options.force)
    build_task(config)
    with report_kept(path), Interrupts(), Activity(config.name) as activity:
        folder = RunFolder(path, config)
        # A run that is over is shown as it is: that needs no lock, and no disk to write on.
        run = None if options.fresh else folder.stored()
        written, resumed = False, False
        if run is not None:
            theory, made = _theory(prepare(config)), folder.made_elsewhere()
            outcome = f"was already in {path}" + (f" (computed by {made})" if made else "")
        else:
            theory, run, written, resumed = _computed(config, path, options, activity)
            stays = "not written: the run that reached its end stays in"
            outcome = f"{'written to' if written else stays} {path}"
        summary = summarise(config, run, theory.floor, theory.predicted, theory.task)
    ignore_signals()
    if options.json:
        facts = {"folder": str(path), "written": written, "resumed": resumed}
        print(json.dumps({**summary.as_json(), **facts}, indent=2))
    else:
        from ._tables import print_summary

        print_summary(summary, f"{'taken up where it stood; ' if resumed else ''}{outcome}")
    if run.result is Result.cancelled:
        return INTERRUPTED
    return 0 if run.result.ok else 1


class _Theory(NamedTuple):
    """The task of a run, what theory says about it, and the smallest loss that it could reach."""

    task: Any
    predicted: Any
    floor: float | None


def _theory(experiment) -> _Theory:
    from ..experiment import overlay

    return _Theory(experiment.task, overlay(experiment), experiment.floor())


def _computed(config: Config, path: Path, options, activity: Activity):
    """The theory of the run, the run, whether it was written, and whether it had been begun."""
    from ..experiment import loss_figure, prepare, train
    from ..store import RunFolder

    def waiting() -> None:
        words = "waiting for another process that computes this run"
        activity.update(f"{config.name}: {words}")
        if not sys.stderr.isatty():
            note(f"{words}.")

    def show(status) -> None:
        state = f"{status.clock:.4g}, {status.steps} steps, loss {status.loss:.5g}"
        activity.update(config.name, status.fraction, state)

    # A folder that cannot be used is refused before anything is computed.
    with RunFolder.locked(path, config, waiting, options.force) as folder:
        experiment = prepare(config)
        run = None if options.fresh else folder.stored()
        if run is not None:  # the process that was waited for has made it
            return _theory(experiment), run, True, False
        checkpoint = folder.checkpoint(options.checkpoint_every, options.fresh)
        resumed = checkpoint.path.exists()
        activity.update(f"{config.name}: {'taking it up' if resumed else 'compiling'}")
        run = train(experiment, show, checkpoint)
        activity.update(f"{config.name}: drawing")
        theory = _theory(experiment)
        figures = loss_figure(run, theory.predicted, theory.floor, config.name)
        return theory, run, folder.keep(run, figures), resumed

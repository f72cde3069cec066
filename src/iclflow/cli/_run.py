"""`iclflow run FILE`: one experiment, its folder, and a summary."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..config import Config, parse_config, with_flags
from ..runtime import Activity, start
from ._arguments import Parser, check_kind
from ._interrupts import INTERRUPTED, Interrupts, ignore_signals, report_kept
from ._streams import note_waiting, print_json


def main(arguments: Sequence[str]) -> int:
    """Runs a config and writes `config.toml`, the trajectory, its manifest and its figure."""
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    file, options, flags = parser.parse_resumable(arguments)
    check_kind(file, "file of a run")
    # Before JAX is loaded: a config that cannot work is refused at once.
    config = read_config(file, flags)
    folder = Path(options.out) if options.out else Path("runs") / config.folder_name
    return _run(config, folder, options, file)


def read_config(file: str, flags: Sequence[str] = ()) -> Config:
    """The config in a file or of a study, overridden by flags: defaults < file < flags."""
    from ..studies import read_settings

    data = read_settings(file)
    return parse_config(with_flags(data, flags) if flags else data)


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Runs the experiment in a TOML file, or a study by its name, such as linear/staircase, and "
        "writes a folder with its resolved config, its trajectory and a figure of its loss with "
        "the theory that applies. A run that is complete is shown at once; one that was stopped "
        "resumes.",
        usage="iclflow run FILE|STUDY [--out DIR] [--fresh] [--force] [--json]\n"
        f"{' ' * 19}[--checkpoint-every SECONDS] [--SECTION.SETTING VALUE …]",
        epilog="Every setting in the file can be overridden by a flag, such as --seed 3 or "
        "--model.heads 8; `iclflow run FILE --help` lists those of that file.",
        add_help=False,
    )
    parser.flag("--out", "where to write (default: runs/NAME-HASH)", "DIR")
    parser.add_resume()
    parser.switch(
        "--force",
        "overwrite files in this folder that have the names of a run's files, whoever wrote them; "
        "other files stay",
    )
    parser.add_json()
    return parser


def _run(config: Config, path: Path, options, file: str) -> int:
    from ..experiment import run
    from ..store import CONFIG, check_input, config_text
    from ..trajectory import Result

    start()
    check_input(file, path, {CONFIG: config_text(config)})
    with report_kept(path, config.hash), Interrupts(), Activity(config.name) as activity:
        found = run(
            config,
            path,
            fresh=options.fresh,
            force=options.force,
            checkpoint_every=options.checkpoint_every,
            progress=activity.update,
            waiting=partial(note_waiting, "run"),
        )
        summary = found.summary()
    ignore_signals()  # everything is on disk: an interrupt must not look like a loss
    if options.json:
        facts = {"folder": str(path), "written": found.written, "resumed": found.resumed}
        print_json({**summary.as_json(), **facts})
    else:
        from ._tables import print_summary

        print_summary(summary, _outcome(found), found.engine if found.computed else None)
    if found.trajectory.result is Result.cancelled:
        return INTERRUPTED
    return 0 if found.trajectory.result.ok else 1


def _outcome(found) -> str:
    """Whether a run was computed, resumed or found, as the end of a summary."""
    if not found.computed:
        from ..store import RunFolder

        made = RunFolder(found.folder, found.config).other_versions()
        return f"was already in {found.folder}" + (f" (computed by {made})" if made else "")
    stays = "not written: the complete run stays in"
    resumed = "resumed; " if found.resumed else ""
    return f"{resumed}{'written to' if found.written else stays} {found.folder}"

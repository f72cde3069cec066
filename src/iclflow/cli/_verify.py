"""`iclflow verify`: computes claims, prints verdicts as they come, writes the report."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..config import InputError
from ..runtime import Activity, start
from ..studies import PAPERS
from ._arguments import Parser
from ._interrupts import Interrupts, ignore_signals
from ._streams import say, wrap

_VERBS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "misstated": ("is misstated", "are misstated"),
    "overread": ("is overread", "are overread"),
}


def main(arguments: Sequence[str]) -> int:
    """Runs claims; 1 if one fails (with --falsify: if one does not), or a figure breaks."""
    options = _parser().parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"`--jobs` = {options.jobs}: must be at least 1.")
    if options.record and options.tier != "paper":
        raise InputError("--record", options.record, "needs `--tier paper`, whose results it keeps")
    if (options.recorded or options.record) and options.falsify:
        raise InputError("`--falsify` makes results wrong: must not be given with records.")
    start(brief=True)
    from ..papers import Outcome
    from ..store import result_folder
    from ..verification import PAGES, select, verify, write_records
    from ._tables import LATER, verdict_line

    keys = ("paper", "tier", "recorded")
    selected = {key: getattr(options, key) for key in keys}
    # Unknown ids are refused here, before a folder is made.
    chosen, _ = select(options.claim or (), **selected)
    width = max(len(claim.id) for claim in chosen)
    quiet = options.json == "-"
    if options.json and not quiet:
        _check_writable(Path(options.json))
    with (
        # Made and tried before anything is computed, and removed if that fails.
        result_folder(Path(options.record)) if options.record else contextlib.nullcontext(),
        Interrupts("no report was written") as interrupts,
        Activity("verifying") as activity,
    ):

        def show(result) -> None:
            interrupts.check()  # a claim may have taken Ctrl-C for its own failure
            if isinstance(result, Outcome):
                line = verdict_line(result, width, f"{result.seconds:7.1f} s  ")
            else:
                line = f"✗ figure {result.name}: {result.problem}" if result.problem else ""
            if line and not quiet:
                activity.line(wrap(line, LATER))

        folder = _folder(options)
        report = verify(
            options.claim or (),
            **selected,
            falsify=options.falsify,
            jobs=options.jobs,
            out=folder,
            progress=activity.update,
            each=show,
        )
    ignore_signals()
    if options.record:
        with _name_unwritable(options.record):
            for path in write_records(report.outcomes, report.info, Path(options.record)):
                print(f"recorded: {path}", file=sys.stderr)
    if quiet:
        print(report.json_text(), end="")
    else:
        if options.json:
            _write_json(Path(options.json), report.json_text())
        if report.compared:
            _print_differences(report, width)
        _print_closing(report, folder / PAGES[0])
    return 0 if report.ok else 1


def _parser() -> Parser:
    parser = Parser("verify", "Computes the claims of the papers and writes a report.")
    words = "a claim, or the beginning of names, such as linear/; may be repeated"
    parser.flag("--claim", words, "ID", action="append")
    parser.flag("--paper", "the claims of one paper", choices=PAPERS)
    parser.add_tier()
    parser.switch("--falsify", "compare with wrong predictions: every claim must fail")
    parser.switch("--recorded", "repeat the claims that have a recorded result, and compare")
    parser.flag("--record", "with --tier paper: keep each result as a file in DIR", "DIR")
    parser.flag("--json", "results as JSON, printed or in FILE", "FILE", nargs="?", const="-")
    parser.flag("--jobs", "workers (default: one per core, up to four)", "N", type=int)
    parser.flag(
        "--out",
        "where to write (default: out/verify; out/verify-part for a part of the claims; "
        "out/falsify and out/falsify-part with --falsify)",
        "DIR",
    )
    return parser


def _folder(options) -> Path:
    """Where to write: by default a report never replaces one of another kind."""
    if options.out:
        return Path(options.out)
    kind = "falsify" if options.falsify else "verify"
    # The paper tier computes more than the default, so that it is a whole report as well.
    part = options.claim or options.paper or options.recorded or options.tier == "smoke"
    return Path("out") / (f"{kind}-part" if part else kind)


def _print_differences(report, width: int) -> None:
    """How each fresh result compares with its record."""
    for id, (kind, where) in report.differences().items():
        words = {
            "same bits": "has the same bits as the record",
            "agrees": "agrees with the record",
            "differs": "differs from the record",
        }[kind]
        info = report.records[id].info
        say(f"{id:{width}}  {words} of {info.date} ({info.machine}){where and ': ' + where}", 2)


def _print_closing(report, page: Path) -> None:
    from ..report import count_of, left_out_text

    count = count_of(len(report.outcomes), "claim")
    say(f"{count} in {report.info.seconds:.1f} s: {_count_verdicts(report)}")
    if report.not_drawn:
        figures = count_of(len(report.not_drawn), "figure")
        say(f"{figures} could not be drawn: {', '.join(report.not_drawn)}.")
    if report.left_out:
        say(left_out_text(report.left_out))
    own = {outcome.claim.id for outcome in report.outcomes}
    if elsewhere := [id for id in report.records if id not in own]:
        results = count_of(len(elsewhere), "claim")
        say(f"The report shows what was recorded elsewhere for {results} of them.")
    print(f"report: {page}")


def _count_verdicts(report) -> str:
    """How many claims got each verdict, as the end of a sentence."""
    counts, falsify = report.verdicts, report.info.falsify
    if falsify and report.ok:
        return "all fail, as they should"
    words = {v: f"{counts[v]} {_VERBS[v][counts[v] > 1]}" for v in _VERBS if counts[v]}
    if falsify:
        must = {"fails": ", as they must", "holds": ", but none should"}
        return "; ".join(words[v] + must.get(v, "") for v in words)
    return ", ".join(words.values())


def _check_writable(path: Path) -> None:
    """Refuses a file that cannot be written before anything is computed."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"`--json` = {path}: must be a file that can be written.")


def _write_json(path: Path, text: str) -> None:
    from ..files import write_atomic

    with _name_unwritable(path):
        write_atomic(path, text)


@contextlib.contextmanager
def _name_unwritable(path: Path | str) -> Iterator[None]:
    """A failure to write as one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f"`{path}` cannot be written to: {error.strerror}.") from None

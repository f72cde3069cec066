"""`iclflow verify`: computes claims, prints verdicts as they come, writes the report."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..runtime import Activity, start
from ..studies import PAPERS
from ._errors import Parser
from ._interrupts import Interrupts, ignore_signals

MARKS = {"holds": "✓", "fails": "✗", "inconclusive": "?", "misstated": "≠"}
_VERBS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "misstated": ("is misstated", "are misstated"),
}


def main(arguments: Sequence[str]) -> int:
    """Runs claims; 1 if one fails (with --falsify: if one does not), or a figure breaks."""
    options = _parser().parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"`--jobs` = {options.jobs}: must be at least 1.")
    start(brief=True)
    from ..papers import Outcome
    from ..verification import PAGES, select, verify

    selected = {"paper": options.paper, "tier": options.tier}
    chosen, _ = select(options.claim or (), **selected)
    width = max(len(claim.id) for claim in chosen)
    quiet = options.json == "-"
    if options.json and not quiet:
        _check_writable(Path(options.json))
    with Interrupts("no report was written") as interrupts, Activity("verifying") as activity:

        def show(result) -> None:
            interrupts.check()
            if isinstance(result, Outcome):
                line = _line(result, width)
            else:
                line = f"✗ figure {result.name}: {result.problem}" if result.problem else ""
            if line and not quiet:
                activity.line(line)

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
    if quiet:
        print(report.json_text(), end="")
    else:
        if options.json:
            _write_json(Path(options.json), report.json_text())
        _print_closing(report, folder / PAGES[0])
    return 0 if report.ok else 1


def _parser() -> Parser:
    parser = Parser("verify", "Computes the claims of the papers and writes a report.")
    add = parser.add_argument
    add("--claim", action="append", metavar="ID", help="a claim; `linear/` means all that begin so")
    add("--paper", choices=PAPERS, help="the claims of one paper")
    add("--tier", choices=("smoke", "default", "paper"), default="default", help="how much to do")
    add("--falsify", action="store_true", help="against wrong predictions: every claim must fail")
    add("--json", nargs="?", const="-", metavar="FILE", help="results as JSON, printed or in FILE")
    add("--jobs", type=int, metavar="N", help="workers (default: one per core, up to four)")
    add("--out", metavar="DIR", help="where to write (default: out/verify; out/verify-part for a "
        "part of the claims; out/falsify and out/falsify-part with --falsify)")  # fmt: skip
    return parser


def _folder(options) -> Path:
    """Where to write: by default a report never replaces one of another kind."""
    if options.out:
        return Path(options.out)
    kind = "falsify" if options.falsify else "verify"
    whole = not (options.claim or options.paper or options.tier == "smoke")
    return Path("out") / (kind if whole else f"{kind}-part")


def _line(outcome, width: int) -> str:
    from ..report import error_text

    worst = outcome.worst
    error = "" if worst is None else error_text(worst)
    mark = f"{MARKS[outcome.verdict]} {outcome.verdict:<12}"
    line = f"{mark} {outcome.claim.id:<{width}}  {error:<19} {outcome.seconds:7.1f} s"
    return f"{line}  {outcome.reason}".rstrip()


def _print_closing(report, page: Path) -> None:
    from ..report import left_out_text

    count = len(report.outcomes)
    seconds = round(report.info.seconds, 3)
    print(f"{count} claim{'' if count == 1 else 's'} in {seconds:.1f} s: {_closing(report)}")
    if report.not_drawn:
        figures = "figure" if len(report.not_drawn) == 1 else "figures"
        print(
            f"{len(report.not_drawn)} {figures} could not be drawn: {', '.join(report.not_drawn)}."
        )
    if report.left_out:
        print(left_out_text(report.left_out))
    print(f"report: {page}")


def _closing(report) -> str:
    """How many claims got each verdict, as a sentence."""
    counts, falsify = report.verdicts, report.info.falsify
    if falsify and report.ok:
        return "all fail, as they should"
    words = {v: f"{counts[v]} {_VERBS[v][counts[v] > 1]}" for v in MARKS if counts[v]}
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

    try:
        write_atomic(path, text)
    except OSError as error:
        raise InputError(f"`{path}` cannot be written to: {error.strerror}.") from None

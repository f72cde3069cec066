"""`iclflow verify`: computes the claims, shows verdicts as they come, writes the report."""

import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import OwnFiles, write_own
from ._activity import Activity, alone
from ._claims import PAPERS
from ._errors import OTHER_FOLDER, Parser
from ._interrupts import Interrupts, ignore_signals
from ._start import start

# The report, and the same as data.
_PAGES = ("report.html", "claims.json")
MARKS = {"holds": "✓", "fails": "✗", "inconclusive": "?", "misstated": "≠"}
_VERBS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "misstated": ("is misstated", "are misstated"),
}


def main(arguments: Sequence[str]) -> int:
    """Runs claims; 1 if one fails (with --falsify: if one does not)."""
    options = _parser().parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"`--jobs` = {options.jobs}: must be at least 1.")
    start(briefly=True)
    from ..claims import TIERS, select_claims
    from ..store import result_folder
    from ._gallery import names_of

    try:
        chosen = select_claims(options.claim or (), options.paper, options.tier)
        everything = select_claims(options.claim or (), options.paper, TIERS[-1])
    except ValueError as error:
        raise InputError(str(error)) from None
    if not chosen:
        raise InputError("No claim was selected: `iclflow claims` lists them.")
    quiet = options.json == "-"
    if options.json and not quiet:
        _check_writable(Path(options.json))
    begin, place = time.perf_counter(), _folder(options)
    OwnFiles(place, remedy=OTHER_FOLDER).check([*_PAGES, *names_of(_figures_of(chosen, options))])
    with (
        Interrupts("no report was written") as interrupts,
        result_folder(place) as folder,
        Activity("verifying") as activity,
        alone(),
    ):
        outcomes, figures, files = _computed(chosen, options, folder, activity, interrupts, quiet)
        left_out = [claim for claim in everything if claim not in chosen]
        seconds = time.perf_counter() - begin
        result = _write(folder, outcomes, figures, files, options, seconds, left_out)
    ignore_signals()
    if quiet:
        print(_as_text(result))
    else:
        if options.json:
            _write_json(Path(options.json), result)
        count = f"{len(outcomes)} claim{'' if len(outcomes) == 1 else 's'}"
        print(f"{count} in {result['seconds']:.1f} s: {_closing(outcomes, options.falsify)}")
        if left_out:
            from ..report import left_out_text

            print(left_out_text(left_out))
        print(f"report: {folder / _PAGES[0]}")
    return _exit_code(outcomes, options.falsify)


def _parser() -> Parser:
    parser = Parser("verify", "Computes the claims of the papers and writes a report.")
    add = parser.add_argument
    add("--claim", action="append", metavar="ID", help="this claim; `linear/` stands for all of it")
    add("--paper", choices=PAPERS, help="the claims of one paper")
    add("--tier", choices=("smoke", "default", "paper"), default="default", help="how much to do")
    add("--falsify", action="store_true", help="against wrong predictions: every claim must fail")
    add("--json", nargs="?", const="-", metavar="FILE", help="results as JSON, printed or in FILE")
    add("--jobs", type=int, metavar="N", help="processes at once (default: one a core, up to four)")
    add("--out", metavar="DIR", help="where to write (default: out/verify; out/verify-part for a "
        "part of the claims; out/falsify and out/falsify-part with --falsify)")  # fmt: skip
    return parser


def _folder(options) -> Path:
    """Where to write: by default a report never takes the place of one of another kind."""
    if options.out:
        return Path(options.out)
    kind = "falsify" if options.falsify else "verify"
    whole = not (options.claim or options.paper or options.tier == "smoke")
    return Path("out") / (kind if whole else f"{kind}-part")


def _figures_of(chosen, options) -> list[str]:
    """The names of the figures that show some claims."""
    from ..figures import FIGURES

    named = dict.fromkeys(name for claim in chosen for name in claim.figures)
    return [] if options.falsify else [name for name in named if name in FIGURES]


def _computed(chosen, options, folder: Path, activity: Activity, interrupts, quiet: bool):
    """Outcomes and figures in the order of the report, and the files of these; verdicts are shown
    as they come."""
    from ._gallery import contents_of
    from ._jobs import Outcome, Settings, compute, sensible_jobs, topics_of

    names = _figures_of(chosen, options)
    width = max(len(claim.id) for claim in chosen)
    jobs = options.jobs or sensible_jobs()
    outcomes, figures = {}, {}
    with tempfile.TemporaryDirectory(prefix=".figures-", dir=folder) as workshop:
        settings = Settings(options.tier, options.falsify, Path(workshop))
        # Closed before the folder is removed: other processes write into it.
        with contextlib.closing(compute(topics_of(chosen, names), settings, jobs)) as results:
            for result in results:
                interrupts.check()
                if isinstance(result, Outcome):
                    outcomes[result.claim.id] = result
                    line = _line(result, width)
                else:
                    figures[result.name] = result
                    line = f"✗ figure {result.name}: {result.problem}" if result.problem else ""
                if line and not quiet:
                    activity.line(line)
                done = f"{len(outcomes)}/{len(chosen)} claims, {len(figures)}/{len(names)} figures"
                share = (len(outcomes) + len(figures)) / (len(chosen) + len(names))
                activity.update(done, share)
        figures = [figures[name] for name in names]
        files = contents_of(figures, settings.figures)
    return [outcomes[claim.id] for claim in chosen], figures, files


def _line(outcome, width: int) -> str:
    from ..report import error_text

    worst = outcome.worst
    error = "" if worst is None else error_text(worst)
    mark = f"{MARKS[outcome.verdict]} {outcome.verdict:<12}"
    line = f"{mark} {outcome.claim.id:<{width}}  {error:<19} {outcome.seconds:7.1f} s"
    return f"{line}  {outcome.reason}".rstrip()


def _closing(outcomes, falsify: bool) -> str:
    """How many claims got each verdict, as a sentence."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    if falsify and counts["fails"] == len(outcomes):
        return "all fail, as they must"
    words = {v: f"{counts[v]} {_VERBS[v][counts[v] > 1]}" for v in MARKS if counts[v]}
    if falsify:
        must = {"fails": ", as they must", "holds": ", though none may"}
        return "; ".join(words[v] + must.get(v, "") for v in words)
    return ", ".join(words.values())


def _write(folder: Path, outcomes, figures, files: dict, options, seconds: float, left_out) -> dict:
    """Writes the report and its figures; those of an earlier report that are not in this one go."""
    from ..figures import FIGURES
    from ..report import RunInfo, render_report
    from ._gallery import names_of

    info = RunInfo.of_this_machine(options.tier, options.falsify, seconds)
    result = {
        "date": info.date,
        "tier": info.tier,
        "falsify": info.falsify,
        "seconds": round(info.seconds, 3),
        "machine": info.machine,
        "versions": info.versions,
        "verdicts": dict(Counter(outcome.verdict for outcome in outcomes)),
        "claims": [outcome.as_json() for outcome in outcomes],
        "left_out": [{"id": claim.id, "tier": claim.tier} for claim in left_out],
        "figures": [{"name": f.name, "seconds": round(f.seconds, 3)} for f in figures],
    }
    page, claims = _PAGES
    pages = {
        page: render_report(outcomes, figures, info, left_out),
        claims: _as_text(result) + "\n",
    }
    earlier = [name for name in names_of(FIGURES) if name not in files]
    write_own(folder, files | pages, earlier)
    return result


def _check_writable(path: Path) -> None:
    """Refuses a file that cannot be written, before anything is computed."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"`--json` = {path}: must be a file that can be written.")


def _write_json(path: Path, result: dict) -> None:
    from ..files import write_atomic

    try:
        write_atomic(path, _as_text(result) + "\n")
    except OSError as error:
        raise InputError(f"`{path}` cannot be written to: {error.strerror}.") from None


def _as_text(result: dict) -> str:
    # Settings that claims note may be objects, such as save points: they are written as they read.
    return json.dumps(result, indent=2, default=str)


def _exit_code(outcomes, falsify: bool) -> int:
    failed = [outcome.verdict == "fails" for outcome in outcomes]
    return int(not all(failed) if falsify else any(failed))

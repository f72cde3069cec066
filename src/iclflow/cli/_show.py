"""`iclflow show RUN`: the summary and the figure of a run on disk."""

import json
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import write_atomic
from ..runtime import start
from ._errors import Parser, add_json
from ._kinds import check_kind


def main(arguments: Sequence[str]) -> int:
    """Shows a run, and draws its loss if asked."""
    parser = Parser(
        "show",
        "Shows the summary of a run on disk: a folder, the name of a run, or the beginning of its "
        "hash.",
    )
    parser.add_argument("run", metavar="RUN", help="folder, name or hash")
    parser.add_argument("--root", default="runs", metavar="DIR", help="where (default: runs)")
    parser.add_argument(
        "--figure", metavar="FILE", help="draw the loss with theory into this .png or .pdf"
    )
    parser.add_argument(
        "--claims", action="store_true", help="list the claims that the run tests, with verdicts"
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    kind = Path(options.figure).suffix if options.figure else ".png"
    if kind not in (".png", ".pdf"):
        raise InputError(f"`--figure` = {options.figure}: must end in .png or .pdf.")
    check_kind(options.run, "folder of a run")
    from ..store import find_damage, find_run

    found = find_run(Path(options.root), options.run)
    if found.config is None:
        raise InputError(f"`{found.folder}/config.toml` is not a config of this version.")
    if found.status == "unfinished":
        raise InputError(
            f"`{found.folder}` is not complete: `iclflow run {found.folder}/config.toml --out "
            f"{found.folder}` resumes it."
        )
    harm = find_damage(found.folder)
    if harm:
        raise InputError(harm[0])
    config = found.config
    from ..experiment import Run, prepare
    from ..trajectory import Trajectory

    start()
    run = Run(prepare(config), Trajectory.load(found.folder), found.folder, computed=False)
    summary = run.summary()
    drawn = found.folder / "loss.png"
    if options.figure:
        drawn = Path(options.figure)
        write_atomic(drawn, run.figures()[f"loss{kind}"])
    outcomes = ()
    if options.claims:
        from ..papers import check_run

        outcomes = check_run(config, run.trajectory, run.experiment.task)
    if options.json:
        result = {**summary.as_json(), "folder": str(found.folder)}
        if options.claims:
            result["claims"] = [outcome.as_json() for outcome in outcomes]
        print(json.dumps(result, indent=2))
        return 0
    from ._tables import print_summary

    print_summary(summary, f"in {found.folder}; its loss is drawn in {drawn}")
    if options.claims:
        print(_format_verdicts(outcomes))
    return 0


def _format_verdicts(outcomes) -> str:
    """The verdicts of the claims that a run tests, one per line."""
    if not outcomes:
        return "no claim applies to this run"
    from ..report import error_text
    from ._verify import MARKS

    width = max(len(outcome.claim.id) for outcome in outcomes)
    lines = []
    for outcome in outcomes:
        error = "" if outcome.worst is None else error_text(outcome.worst)
        mark = f"{MARKS[outcome.verdict]} {outcome.verdict:<12}"
        line = f"{mark} {outcome.claim.id:<{width}}  {error:<19} {outcome.reason}"
        lines.append(line.rstrip())
    return "\n".join(lines)

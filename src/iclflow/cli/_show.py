"""`iclflow show RUN`: the summary and the figure of a run on disk."""

from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import write_atomic
from ..runtime import start
from ._arguments import Parser, check_kind
from ._streams import print_json, say


def main(arguments: Sequence[str]) -> int:
    """Shows a run, and draws its loss with `--figure`."""
    parser = Parser(
        "show",
        "Shows the summary of a run on disk: a folder, the name of a run, or the beginning of its "
        "hash.",
    )
    parser.flag("run", "folder, name or hash", "RUN")
    parser.flag("--root", "where (default: runs)", "DIR", default="runs")
    parser.flag("--figure", "draw the loss with theory into this .png or .pdf", "FILE")
    parser.switch("--claims", "list the claims that the run tests, with verdicts")
    parser.add_json()
    options = parser.parse_args(arguments)
    kind = Path(options.figure).suffix if options.figure else ".png"
    if kind not in (".png", ".pdf"):
        raise InputError(f"`--figure` = {options.figure}: must end in .png or .pdf.")
    # All refusals come before JAX is loaded, which takes seconds.
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
        print_json(result)
        return 0
    from ._tables import LATER, print_summary, verdict_line

    print_summary(summary, f"in {found.folder}; its loss is drawn in {drawn}")
    width = max((len(outcome.claim.id) for outcome in outcomes), default=0)
    for outcome in outcomes:
        say(verdict_line(outcome, width), LATER)
    if options.claims and not outcomes:
        print("no claim applies to this run")
    return 0

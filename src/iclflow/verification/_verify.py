"""`icl.verify`: claims and the figures that show them, computed into a report."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import InputError
from ..files import OTHER_FOLDER, OwnFiles
from ..papers import FIGURES, PAPERS, TIERS, Claim, Outcome, select_claims
from ..report import ReportFigure, RunInfo
from ..runtime import Progress, hide_progress, show_progress
from ..runtime.precision import require_float64
from ..store import result_folder
from ._gallery import figure_files, read_figures
from ._jobs import Result, Settings, compute, default_jobs, topics_of
from ._record import TIER, read_records
from ._report import PAGES, Report


def verify(
    claims: Sequence[str] = (),
    *,
    paper: str | None = None,
    tier: str = "default",
    falsify: bool = False,
    recorded: bool = False,
    jobs: int | None = None,
    out: Path | str | None = None,
    progress: Progress | bool | None = None,
    each: Callable[[Result], None] | None = None,
) -> Report:
    """Computes claims, and draws the figures that show them. A selection that cannot be computed
    raises an `InputError`.

    **Arguments:**

    - `claims`: ids; `linear/` means all that begin so. By default all claims of the tier.
    - `paper`: the claims of one paper.
    - `tier`: how much to do: "smoke", "default" or "paper".
    - `falsify`: compare with wrong predictions: every claim must fail. No figure is drawn.
    - `recorded`: those claims alone that have a recorded result, at the tier of the records; the
      report says how each compares with its record.
    - `jobs`: worker processes (default: one per core, up to four).
    - `out`: the folder for the page, its data and its figures; None keeps them in memory.
    - `progress`: whether to show a bar (default: on a terminal), or a function that is called with
      what is being done, the share that is done, and some numbers as text.
    - `each`: called with every outcome and every figure as it comes.

    **Example:**

    ```pycon
    >>> report = icl.verify(["softmax/centring-costs-a-sample"], jobs=1, progress=False)
    >>> outcome = report.outcomes[0]
    >>> report.ok, outcome.verdict, [check.passed for check in outcome.checks]
    (True, 'holds', [True, True])
    ```
    """
    # In this process claims would run in its precision: most tolerances are far below single.
    require_float64("Verification")
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` = {jobs}: must be at least 1.")
    if recorded and falsify:
        raise InputError("`falsify` makes results wrong: they cannot be compared with records.")
    tier = TIER if recorded else tier
    chosen, left_out = select(claims, paper, tier, recorded)
    names = [] if falsify else _figures_of(chosen)
    about = {claim.id for claim in (*chosen, *left_out)}
    # Before anything is computed: a damaged record is refused.
    records = {} if falsify else {id: r for id, r in read_records().items() if id in about}
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        tell = stack.enter_context(show_progress("verifying", progress))
        stack.enter_context(hide_progress())
        if out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            OwnFiles(Path(out), remedy=OTHER_FOLDER).check([*PAGES, *figure_files(names)])
            folder = stack.enter_context(result_folder(Path(out)))
        # Inside the folder of the report, so that a killed process leaves nothing elsewhere.
        with tempfile.TemporaryDirectory(prefix=".figures-", dir=folder) as drawn:
            settings = Settings(tier, falsify, Path(drawn))
            outcomes, figures = _compute(chosen, names, settings, jobs, tell, each)
            files = read_figures(figures, settings.figures)
        info = RunInfo.of_this_machine(tier, falsify, time.perf_counter() - begin)
        report = Report(tuple(outcomes), tuple(figures), files, info, left_out, records, recorded)
        if out is not None:
            report.write(folder)
    return report


def select(
    claims: Sequence[str] = (),
    paper: str | None = None,
    tier: str = "default",
    recorded: bool = False,
) -> tuple[tuple[Claim, ...], tuple[Claim, ...]]:
    """The claims that `verify` would compute, and those that slower tiers would add.

    **Example:**

    ```pycon
    >>> from iclflow import verification
    >>> chosen, slower = verification.select(paper="linear", tier="smoke")
    >>> len(chosen) > 0, {claim.paper for claim in chosen}
    (True, {'linear'})
    ```
    """
    if tier not in TIERS:
        raise InputError("tier", tier, f"must be one of {', '.join(TIERS)}")
    if paper is not None and paper not in PAPERS:
        raise InputError("paper", paper, f"must be one of {', '.join(PAPERS)}")
    if recorded:
        return _select_recorded(claims, paper), ()
    chosen = select_claims(claims, paper, tier)
    everything = select_claims(claims, paper, TIERS[-1])
    if not chosen:
        raise InputError("No claim was selected: `iclflow claims` lists them.")
    return chosen, tuple(claim for claim in everything if claim not in chosen)


def _select_recorded(claims: Sequence[str], paper: str | None) -> tuple[Claim, ...]:
    """The claims that have a recorded result."""
    records = read_records()
    found = tuple(each for each in select_claims(claims, paper, TIER) if each.id in records)
    if not found:
        raise InputError("None of these claims has a recorded result: docs/results lists them.")
    return found


def _figures_of(chosen: Sequence[Claim]) -> list[str]:
    """The names of the figures that show some claims."""
    named = dict.fromkeys(name for claim in chosen for name in claim.figures)
    return [name for name in named if name in FIGURES]


def _compute(
    chosen: Sequence[Claim],
    names: Sequence[str],
    settings: Settings,
    jobs: int | None,
    tell: Progress,
    each: Callable[[Result], None] | None,
) -> tuple[list[Outcome], list[ReportFigure]]:
    """Outcomes and figures, in the order of the report."""
    outcomes: dict[str, Outcome] = {}
    figures: dict[str, ReportFigure] = {}
    found = compute(topics_of(chosen, names), settings, jobs or default_jobs())
    # Closed before the folder of the figures is removed: workers write into it.
    with contextlib.closing(found) as results:
        for result in results:
            if isinstance(result, Outcome):
                outcomes[result.claim.id] = result
            else:
                figures[result.name] = result
            if each is not None:
                each(result)
            done = f"{len(outcomes)}/{len(chosen)} claims, {len(figures)}/{len(names)} figures"
            tell(done, (len(outcomes) + len(figures)) / (len(chosen) + len(names)), "")
    return [outcomes[claim.id] for claim in chosen], [figures[name] for name in names]

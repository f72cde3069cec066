"""Claims on runs: what the claims say about one run that somebody made."""

from typing import Any

from ..config import Config, InputError
from ._claim import CLAIMS, Claim, Outcome, select_claims


def claims_on_runs() -> tuple[Claim, ...]:
    """Every claim that speaks of runs, in the order of the registry."""
    return tuple(claim for claim in CLAIMS.values() if claim.on_run is not None)


def claims_on(config: Config) -> tuple[Claim, ...]:
    """The claims that a run of this config tests."""
    return tuple(claim for claim in claims_on_runs() if claim.refuses(config) is None)


def find_claim_on_runs(id: str) -> Claim:
    """The claim of this name; an `InputError` if there is none, or if it speaks of no run."""
    select_claims([id])
    # What begins many names is the name of none.
    found = CLAIMS.get(id)
    if found is None or found.on_run is None:
        raise InputError(
            "claim", id, f"`iclflow verify --claim {id}` computes it", "is not about single runs"
        )
    return found


def check_run(
    config: Config, run: Any, task: Any = None, falsify: bool = False
) -> tuple[Outcome, ...]:
    """The verdicts of all claims that a run tests.

    **Arguments:**

    - `task`: of `config`; built if it is None.
    - `falsify`: compares with predictions that are deliberately wrong.
    """
    from ..experiment import build_task

    task = build_task(config) if task is None else task
    return tuple(claim.check(run, task, config, falsify) for claim in claims_on(config))


def strain(outcome: Outcome) -> float | None:
    """The largest error over its tolerance: at most 1 where a claim holds, infinite where a count
    or an order is wrong; None where nothing was checked."""
    return None if outcome.worst is None else outcome.worst.strain

"""Claims on runs: what the claims say about any one run."""

from typing import Any

from ..config import Config, InputError
from ._claim import CLAIMS, Claim, Outcome, select_claims


def claims_on_runs() -> tuple[Claim, ...]:
    """Every claim that can be checked on one run, in the order of the registry.

    **Example:**

    ```pycon
    >>> len(icl.papers.claims_on_runs()) > 20
    True
    ```
    """
    return tuple(claim for claim in CLAIMS.values() if claim.on_run is not None)


def claims_on(config: Config) -> tuple[Claim, ...]:
    """The claims that a run of this config tests.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase")
    >>> "linear/cascade" in {claim.id for claim in icl.papers.claims_on(config)}
    True
    ```
    """
    return tuple(claim for claim in claims_on_runs() if claim.refuses(config) is None)


def find_claim_on_runs(id: str) -> Claim:
    """The claim of this name, if there is one and it is about single runs; else an `InputError`.

    **Example:**

    ```pycon
    >>> icl.papers.find_claim_on_runs("linear/cascade").id
    'linear/cascade'
    ```
    """
    select_claims([id])
    # A prefix such as `linear/` selects claims, but is the name of none.
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

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/merged", flow={"end": 1.0})
    >>> run = icl.run(config, progress=False).trajectory
    >>> verdicts = {outcome.verdict for outcome in icl.papers.check_run(config, run)}
    >>> verdicts <= set(icl.papers.VERDICTS)
    True
    ```
    """
    from ..experiment import build_task

    task = build_task(config) if task is None else task
    return tuple(claim.check(run, task, config, falsify) for claim in claims_on(config))


def strain(outcome: Outcome) -> float | None:
    """The largest ratio of an error to its tolerance: at most 1 if a claim holds, infinite if a
    count or an order is wrong, None if nothing was checked.

    **Example:**

    ```pycon
    >>> claim = icl.papers.CLAIMS["softmax/centring-costs-a-sample"]
    >>> icl.papers.strain(icl.papers.run_claim(claim, icl.papers.Lab("smoke"))) <= 1
    True
    ```
    """
    return None if outcome.worst is None else outcome.worst.strain

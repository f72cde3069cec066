"""Claims on runs: what a claim says about one run that somebody made, and whether it holds there.

A claim of the registry makes runs of its own, with the settings of its paper. Many of them say
something about any run in their assumptions too. Here such a claim says of which configs it speaks,
and checks a run of one of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..config import Config, InputError
from ..experiment import build_task
from ..tasks import AbstractTask
from ..trajectory import Result, Trajectory
from ._base import Check, Claim, Inconclusive, Outcome, run_claim
from ._lab import Lab
from ._refusals import is_refusal
from ._registry import all_claims, select_claims

# What a config must have; the answer is the end of a sentence that begins with the claim, or None.
Need = Callable[[Config], str | None]


@dataclasses.dataclass(frozen=True)
class Given:
    """A run and what it was made from: task and models are such as the needs of a claim ask for."""

    config: Config
    task: Any
    run: Trajectory[Any]

    @property
    def end(self) -> float:
        return float(self.run.times[-1])


@dataclasses.dataclass(frozen=True)
class RunCheck:
    """A claim as far as it speaks of one run.

    **Fields:**

    - `claim`: of the registry.
    - `tolerance_reason`: why the tolerances are right for any run that it speaks of.
    - `needs`: what a config must have, one after the other.
    - `test`: the checks of one run, with all predictions taken through `lab.predict`. It raises
      `Inconclusive` where this run cannot decide, such as one that is not at its end.
    """

    claim: Claim
    tolerance_reason: str
    needs: tuple[Need, ...]
    test: Callable[[Given, Lab], list[Check]]

    @property
    def id(self) -> str:
        return self.claim.id

    def refuses(self, config: Config) -> str | None:
        """Why the claim does not speak of runs of this config; None if it does."""
        return next((reason for need in self.needs if (reason := need(config)) is not None), None)

    def refuses_all(self, configs: Sequence[Config]) -> str | None:
        """Why the claim speaks of no run of these configs, for the one that comes nearest; None if
        it speaks of one."""
        # Needs are asked one after the other: the more a config meets, the nearer it is. Of several
        # the first is taken: values mostly rise, and most claims are about small ones.
        best, nearest = -1, None
        for config in configs:
            told = ((i, reason) for i, need in enumerate(self.needs) if (reason := need(config)))
            met, reason = next(told, (len(self.needs), None))
            if reason is None:
                return None
            if met > best:
                best, nearest = met, reason
        return nearest

    def check(
        self,
        run: Trajectory,
        task: AbstractTask | None,
        config: Config,
        falsify: bool = False,
    ) -> Outcome:
        """The verdict on one run.

        **Arguments:**

        - `run`: of `config`, finished or under way.
        - `task`: of `config`; built if it is None.
        - `falsify`: compares with predictions that are deliberately wrong, so that every check has
          to fail.
        """
        reason = self.refuses(config)
        if reason is not None:
            raise ValueError(f"The claim `{self.id}` {reason}.")
        task = build_task(config) if task is None else task
        given = Given(config, task, run)

        def test(lab: Lab) -> list[Check]:
            if len(run) < 2:
                raise Inconclusive("the run has fewer than two points")
            if run.result is Result.diverged:
                raise Inconclusive("the run diverged")
            try:
                return self.test(given, lab)
            except ValueError as refusal:
                if not is_refusal(refusal):
                    raise
                # Theory and analysis refuse what they cannot say of a run in a sentence.
                raise Inconclusive(" ".join(str(refusal).split()).rstrip(".")) from None

        here = dataclasses.replace(self.claim, tolerance_reason=self.tolerance_reason, test=test)
        return run_claim(here, Lab(falsify=falsify))


_RUN_CHECKS: dict[str, RunCheck] = {}


def on_run(
    id: str, *needs: Need, tolerance_reason: str
) -> Callable[[Callable[[Given, Lab], list[Check]]], RunCheck]:
    """Says how a claim of the registry is checked on a run, and of which configs it speaks."""

    def register(test: Callable[[Given, Lab], list[Check]]) -> RunCheck:
        if id in _RUN_CHECKS:
            raise ValueError(f"The claim {id!r} is said to speak of runs twice.")
        claim = next(claim for claim in all_claims() if claim.id == id)
        _RUN_CHECKS[id] = RunCheck(claim, tolerance_reason, needs, test)
        return _RUN_CHECKS[id]

    return register


def all_run_checks() -> tuple[RunCheck, ...]:
    """Every claim that speaks of runs, in the order of the registry."""
    return tuple(_RUN_CHECKS[c.id] for c in all_claims() if c.id in _RUN_CHECKS)


def run_checks(config: Config) -> tuple[RunCheck, ...]:
    """The claims that a run of this config tests."""
    return tuple(check for check in all_run_checks() if check.refuses(config) is None)


def find_run_check(id: str) -> RunCheck:
    """The claim of this name, as far as it speaks of runs; an `InputError` if it does not."""
    if id not in _RUN_CHECKS:
        try:
            select_claims([id])
        except ValueError as error:
            raise InputError(str(error)) from None
        raise InputError(
            f"`claim` = {id!r} speaks of no single run: `iclflow verify --claim {id}` computes it."
        )
    return _RUN_CHECKS[id]


def check_run(
    config: Config, run: Trajectory, task: AbstractTask | None = None, falsify: bool = False
) -> tuple[Outcome, ...]:
    """The verdicts of all claims that a run tests."""
    task = build_task(config) if task is None else task
    return tuple(each.check(run, task, config, falsify) for each in run_checks(config))


def strain(outcome: Outcome) -> float | None:
    """The largest error over its tolerance: at most 1 where a claim holds, infinite where a count
    or an order is wrong; None where nothing was checked."""
    worst = outcome.worst
    if worst is None:
        return None
    if worst.tolerance > 0:
        return worst.error / worst.tolerance
    return float("inf") if worst.error > 0 else 0.0

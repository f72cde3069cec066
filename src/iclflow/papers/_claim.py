"""A claim: one sentence of a paper as something that runs and can fail."""

import copyreg
import dataclasses
import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

from ..config import Config
from ..errors import InputError, Refusal
from ..studies import TIERS, Tier
from ._check import Check, plain
from ._given import Given, Need, OnRun, RunTest, on_run
from ._lab import Lab
from ._power import power_of
from ._registry import Registry, join_lines

Verdict = Literal["holds", "fails", "inconclusive", "misstated", "overread"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""What a claim can turn out to be.

**Example:**

```pycon
>>> icl.papers.VERDICTS
('holds', 'fails', 'inconclusive', 'misstated', 'overread')
```
"""


# A check that passes with a prediction that is wrong by this share and more tests nothing.
_HOLLOW = 1.0


class Inconclusive(Exception):
    """Raised by a claim that cannot be decided with what was computed; its text says why.

    **Example:**

    ```pycon
    >>> def too_short(lab):
    ...     raise icl.papers.Inconclusive("The run is too short.")
    ```
    """


@dataclasses.dataclass(frozen=True)
class Claim:
    """One sentence, how it is tested, and why with that tolerance.

    **Fields:**

    - `id`: `paper/name`.
    - `source`: the equation, figure or section of the paper.
    - `tolerance_reason`: where the tolerance comes from.
    - `test`: computes the checks, with all predictions taken through `lab.predict`.
    - `figures`: names of the figures that show it.
    - `on_run`: how it is checked on any one run, if it can be.
    - `corrected_by`: the claim with the right sentence, if this one is known to be wrong.
    - `overread`: whether the sentence drops a condition that its source states, so that a
      refutation shows the edge of a result and no error of the paper.
    - `undecided`: why what is computed cannot decide the sentence of the source, if it cannot.

    **Example:**

    ```pycon
    >>> claim = icl.papers.CLAIMS["linear/merged-network"]
    >>> claim.tier, claim.misstated
    ('smoke', False)
    ```
    """

    id: str
    paper: str
    statement: str
    source: str
    tier: Tier
    tolerance_reason: str
    test: Callable[[Lab], Iterable[Check]]
    figures: tuple[str, ...] = ()
    on_run: OnRun | None = None
    corrected_by: str | None = None
    overread: bool = False
    undecided: str = ""

    @property
    def misstated(self) -> bool:
        """Whether the sentence is known to be wrong as its source states it."""
        return self.fault == "misstated"

    @property
    def fault(self) -> Literal["misstated", "overread"] | None:
        """The verdict if a measurement refutes the sentence, as it is known to; None if it is not
        known to be wrong."""
        if self.corrected_by is None or self.undecided:
            return None
        return "overread" if self.overread else "misstated"

    def refuses(self, config: Config) -> str | None:
        """Why the claim is not about runs of this config; None if it is."""
        return self._on_run.refuses(config)

    def refuses_all(self, configs: Sequence[Config]) -> str | None:
        """Why the claim is about no run of these configs; None if it is about one."""
        return self._on_run.refuses_all(configs)

    def check(self, run: Any, task: Any, config: Config, falsify: bool = False) -> "Outcome":
        """The verdict on one run.

        **Arguments:**

        - `run`: of `config`, finished or under way.
        - `task`: of `config`; built if it is None.
        - `falsify`: compares with wrong predictions, so that every check has to fail.
        """
        reason = self.refuses(config)
        if reason is not None:
            raise ValueError(f"The claim `{self.id}` {reason}.")
        # Here, since `papers` is loaded to list studies, which needs no JAX.
        from ..experiment import build_task

        given = Given(config, build_task(config) if task is None else task, run)

        def test(lab: Lab) -> Iterable[Check]:
            if len(run) < 2:
                raise Inconclusive("the run has fewer than two points")
            if run.result.name == "diverged":
                raise Inconclusive("the run diverged")
            try:
                return tuple(self._on_run.test(given, lab))
            except Refusal as refusal:
                # Theory and analysis say in one sentence why they do not apply to a run.
                raise Inconclusive(" ".join(str(refusal).split()).rstrip(".")) from None

        reason = self._on_run.tolerance_reason
        here = dataclasses.replace(self, tolerance_reason=reason, test=test)
        return run_claim(here, Lab(falsify=falsify))

    @property
    def _on_run(self) -> OnRun:
        if self.on_run is None:
            raise ValueError(f"The claim `{self.id}` is not about single runs.")
        return self.on_run


# In the report's JSON.
_CHECK_KEYS = (
    *("name", "predicted", "measured", "error", "tolerance", "comparison", "standard_error"),
    *("scale", "passed"),
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The verdict on one claim, and the checks that it rests on.

    **Fields:**

    - `config`: the settings under which it was tested.
    - `hashes`: the SHA-256 of the trajectories that it used, by name.

    **Example:**

    ```pycon
    >>> claim = icl.papers.CLAIMS["softmax/centring-costs-a-sample"]
    >>> outcome = icl.papers.run_claim(claim, icl.papers.Lab("smoke"))
    >>> outcome.verdict, outcome.power is not None, outcome.worst.passed
    ('holds', True, True)
    ```
    """

    claim: Claim
    checks: tuple[Check, ...]
    verdict: Verdict
    reason: str
    seconds: float
    config: dict[str, Any]
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def worst(self) -> Check | None:
        """The check that comes closest to failing, or fails worst."""
        return max(self.checks, key=lambda check: check.strain, default=None)

    @property
    def power(self) -> float | None:
        """The smallest relative change of its predictions that every check would have noticed; None
        if no check has a prediction that can change by a share."""
        powers = [power for check in self.checks if (power := power_of(check)) is not None]
        return max(powers, default=None)

    def as_json(self) -> dict[str, Any]:
        """The outcome as plain data; infinite errors are spelled out, since JSON has none."""
        worst = self.worst
        return {
            "id": self.claim.id,
            "paper": self.claim.paper,
            "statement": self.claim.statement,
            "source": self.claim.source,
            "predicted": {check.name: plain(check.predicted) for check in self.checks},
            "measured": {check.name: plain(check.measured) for check in self.checks},
            "error": None if worst is None else plain(worst.error),
            "tolerance": None if worst is None else worst.tolerance,
            "comparison": None if worst is None else worst.comparison,
            "tolerance_reason": self.claim.tolerance_reason,
            "power": plain(self.power),
            "verdict": self.verdict,
            "reason": self.reason,
            "corrected_by": self.claim.corrected_by,
            "seconds": round(self.seconds, 3),
            "config": plain(self.config),
            "hashes": self.hashes,
            "checks": [
                {key: plain(getattr(check, key)) for key in _CHECK_KEYS}
                | {"power": plain(power_of(check))}
                for check in self.checks
            ],
        }


def run_claim(claim: Claim, lab: Lab) -> Outcome:
    """Runs one claim and gives its verdict.

    Against wrong predictions (`lab.falsify`) a claim has to fail. Checks that are too coarse to
    notice 3 % are named in the reason; a claim with a check that would not notice twice its
    prediction is reported as holding, because that check cannot fail.

    **Example:**

    ```pycon
    >>> claim = icl.papers.CLAIMS["softmax/centring-costs-a-sample"]
    >>> icl.papers.run_claim(claim, icl.papers.Lab("smoke", falsify=True)).verdict
    'fails'
    ```
    """
    start = time.perf_counter()
    lab.begin()
    try:
        checks = tuple(claim.test(lab))
    except Inconclusive as stop:
        return Outcome(
            claim, (), "inconclusive", str(stop), time.perf_counter() - start, lab.config
        )
    seconds = time.perf_counter() - start
    # Plain data, as in the report: a claim may note objects of any kind.
    config = plain(lab.config)
    if not checks:
        raise ValueError(f"The claim {claim.id} made no check.")
    verdict, reason = _judge_falsified(checks) if lab.falsify else _judge(claim, checks)
    return Outcome(claim, checks, verdict, reason, seconds, config, lab.hashes())


def _judge(claim: Claim, checks: Sequence[Check]) -> tuple[Verdict, str]:
    """The verdict on a claim, and why."""
    if claim.undecided:
        return "inconclusive", claim.undecided
    failed = "; ".join(_describe(check) for check in checks if not check.passed)
    if not failed:
        return "holds", ""
    return (claim.fault, f"refuted by: {failed}") if claim.fault else ("fails", f"failed: {failed}")


def _judge_falsified(checks: Sequence[Check]) -> tuple[Verdict, str]:
    """The verdict on a claim whose predictions were made wrong, and what did not notice it."""
    passed = [check for check in checks if check.passed]
    hollow = [check for check in passed if _is_hollow(check)]
    if hollow:
        return "holds", f"cannot fail: {'; '.join(map(_describe, hollow))}"
    if len(passed) == len(checks):
        return "holds", "no check notices predictions that are wrong by 3 %"
    if passed:
        return "fails", f"too coarse to notice: {'; '.join(map(_describe, passed))}"
    return "fails", ""


def _is_hollow(check: Check) -> bool:
    power = power_of(check)
    return power is None or power > _HOLLOW


def _describe(check: Check) -> str:
    """The name of a check, and why its two sides cannot be compared if they cannot."""
    return f"{check.name} ({check.mismatch})" if check.mismatch else check.name


CLAIMS: Registry[Claim] = Registry("claims")
"""The claims by name.

**Example:**

```pycon
>>> icl.papers.CLAIMS["linear/merged-network"].paper
'linear'
```
"""


def claim(
    id: str,
    statement: str,
    *,
    source: str,
    tolerance_reason: str,
    tier: Tier = "default",
    **fields: Any,
) -> Callable[[Callable[[Lab], Iterable[Check]]], Claim]:
    """Registers a function that makes runs and computes checks as a claim."""

    def register(test: Callable[[Lab], Iterable[Check]]) -> Claim:
        paper = id.partition("/")[0]
        sentence, reason = join_lines(statement), join_lines(tolerance_reason)
        new = Claim(id, paper, sentence, join_lines(source), tier, reason, test, **fields)
        return CLAIMS.add(id, new)

    return register


def claim_on_run(
    id: str,
    statement: str,
    *,
    on: Callable[[Lab], Given | Iterable[Given]],
    needs: tuple[Need, ...],
    tolerance_on_any_run: str,
    **fields: Any,
) -> Callable[[RunTest], Claim]:
    """Registers a function that checks one run as a claim: its own run, and any that meets `needs`.

    **Arguments:**

    - `on`: makes the claim's own run, or several that are checked one after the other. One with
      many seeds is checked on all of them at once: `Given.runs`.
    - `tolerance_on_any_run`: why the tolerances are right on other runs.
    - `fields`: as those of `claim`.

    **Example:**

    ```pycon
    >>> claim = icl.papers.CLAIMS["linear/cascade"]
    >>> claim.on_run is not None
    True
    ```
    """

    def register(check: RunTest) -> Claim:
        on_any_run = on_run(*needs, tolerance_reason=tolerance_on_any_run)(check)

        def test(lab: Lab) -> Iterable[Check]:
            made = on(lab)
            for given in (made,) if isinstance(made, Given) else made:
                yield from check(given, lab)

        # Claims are grouped into topics by the module of their test.
        test.__module__ = check.__module__
        return claim(id, statement, on_run=on_any_run, **fields)(test)

    return register


def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers.

    **Example:**

    ```pycon
    >>> len(icl.papers.all_claims()) > 100
    True
    ```
    """
    return tuple(CLAIMS.values())


def select_claims(
    ids: Iterable[str] = (), paper: str | None = None, tier: Tier = "default"
) -> tuple[Claim, ...]:
    """The selected claims.

    **Arguments:**

    - `ids`: exactly these; a prefix such as `linear/` means all that begin with it.
    - `paper`: those of one paper.
    - `tier`: those of this tier and of the quicker ones. Ignored if there are `ids`.

    **Example:**

    ```pycon
    >>> {claim.paper for claim in icl.papers.select_claims(paper="softmax", tier="smoke")}
    {'softmax'}
    ```
    """
    ids = tuple(ids)
    for wanted in ids:
        if not any(_matches(known, wanted) for known in CLAIMS):
            close = difflib.get_close_matches(wanted, CLAIMS, n=1, cutoff=0.8)
            remedy = f"did you mean {close[0]}?" if close else "`iclflow claims` lists them"
            raise InputError("claim", wanted, remedy, "is not a claim")
    chosen = [c for c in CLAIMS.values() if paper is None or c.paper == paper]
    if ids:
        return tuple(c for c in chosen if any(_matches(c.id, wanted) for wanted in ids))
    return tuple(c for c in chosen if TIERS.index(c.tier) <= TIERS.index(tier))


def _find_claim(id: str) -> Claim:
    return CLAIMS[id]


# A claim is pickled by its name: pickle cannot find its test, which is a local function.
copyreg.pickle(Claim, lambda claim: (_find_claim, (claim.id,)))


def _matches(id: str, wanted: str) -> bool:
    return id == wanted or (wanted.endswith("/") and id.startswith(wanted))

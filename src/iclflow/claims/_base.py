"""A claim: one sentence of a paper as something that runs and can fail."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ._lab import Lab

Paper = Literal["linear", "softmax", "multitask"]
Tier = Literal["smoke", "default", "paper"]
TIERS: tuple[Tier, ...] = ("smoke", "default", "paper")
Verdict = Literal["holds", "fails", "inconclusive", "misstated"]
Comparison = Literal["absolute", "relative", "standard errors", "equal", "at least", "at most"]


class Inconclusive(Exception):
    """Raised by a claim that cannot be decided with what was computed; its text says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a prediction with a measurement.

    **Fields:**

    - `comparison`: `"absolute"` and `"relative"`: the largest deviation must stay within
      `tolerance`; `"standard errors"`: the same in units of `standard_error`; `"equal"`: the same
      to the last digit; `"at least"`, `"at most"`: the measurement must be on the right side of
      the prediction, with `tolerance` to spare in its favour.
    """

    name: str
    predicted: Any
    measured: Any
    tolerance: float = 0.0
    comparison: Comparison = "absolute"
    standard_error: Any = None

    @property
    def error(self) -> float:
        """The deviation that the tolerance bounds; infinite if the two cannot be compared."""
        if self.comparison == "equal":
            return 0.0 if _plain(self.predicted) == _plain(self.measured) else math.inf
        predicted = np.asarray(self.predicted, float)
        measured = np.asarray(self.measured, float)
        if measured.size == 0 or (predicted.shape != measured.shape and predicted.ndim):
            return math.inf
        difference = measured - predicted
        if self.comparison == "at least":
            difference = np.maximum(-difference, 0)
        elif self.comparison == "at most":
            difference = np.maximum(difference, 0)
        elif self.comparison == "relative":
            difference = np.abs(difference) / np.abs(predicted)
        elif self.comparison == "standard errors":
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # nothing but equality is within no error at all
                share = np.abs(difference) / np.asarray(self.standard_error, float)
            difference = np.where(difference == 0, 0.0, share)
        worst = float(np.max(np.abs(difference), initial=0.0))
        return worst if math.isfinite(worst) else math.inf

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance

    @staticmethod
    def sampled(name: str, predicted: Any, measured: Any, standard_error: Any) -> "Check":
        """A measurement that was drawn: it must be within four standard errors."""
        return Check(name, predicted, measured, 4.0, "standard errors", standard_error)


@dataclasses.dataclass(frozen=True)
class Claim:
    """One sentence, how it is tested, and why with that tolerance.

    **Fields:**

    - `id`: `paper/name`.
    - `source`: the equation, figure or section of the paper.
    - `tolerance_reason`: where the tolerance comes from.
    - `test`: computes the checks, with all predictions taken through `lab.predict`.
    - `figures`: names of the figures that show it.
    - `misstated`: the sentence is known to be wrong as stated; `corrected_by` names the claim
      that says it right.
    """

    id: str
    paper: Paper
    statement: str
    source: str
    tier: Tier
    tolerance_reason: str
    test: Callable[[Lab], list[Check]]
    figures: tuple[str, ...] = ()
    misstated: bool = False
    corrected_by: str | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one claim gave in one run."""

    claim: Claim
    checks: tuple[Check, ...]
    verdict: Verdict
    reason: str
    seconds: float
    config: dict[str, Any]

    @property
    def worst(self) -> Check | None:
        """The check that comes closest to failing, or fails worst."""
        return max(self.checks, key=_strain, default=None)

    def as_json(self) -> dict[str, Any]:
        """The outcome as plain data; infinite errors are spelled out, since JSON has none."""
        worst = self.worst
        return {
            "id": self.claim.id,
            "paper": self.claim.paper,
            "statement": self.claim.statement,
            "source": self.claim.source,
            "predicted": {check.name: _plain(check.predicted) for check in self.checks},
            "measured": {check.name: _plain(check.measured) for check in self.checks},
            "error": None if worst is None else _plain(worst.error),
            "tolerance": None if worst is None else worst.tolerance,
            "comparison": None if worst is None else worst.comparison,
            "tolerance_reason": self.claim.tolerance_reason,
            "verdict": self.verdict,
            "reason": self.reason,
            "corrected_by": self.claim.corrected_by,
            "seconds": round(self.seconds, 3),
            "config": _plain(self.config),
            "checks": [
                {
                    "name": check.name,
                    "predicted": _plain(check.predicted),
                    "measured": _plain(check.measured),
                    "error": _plain(check.error),
                    "tolerance": check.tolerance,
                    "comparison": check.comparison,
                    "standard_error": _plain(check.standard_error),
                    "passed": check.passed,
                }
                for check in self.checks
            ],
        }


def run_claim(claim: Claim, lab: Lab) -> Outcome:
    """Runs one claim and gives its verdict.

    Against bent predictions (`lab.falsify`) every single check has to fail: a claim in which one
    still passes is reported as holding, since that check could not have failed.
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
    # Plain data, as the report has it: what a claim noted may be an object of any kind.
    config = _plain(lab.config)
    if not checks:
        raise ValueError(f"The claim {claim.id} made no check.")
    failed = [check for check in checks if not check.passed]
    if lab.falsify:
        verdict = "fails" if len(failed) == len(checks) else "holds"
        passed = "; ".join(check.name for check in checks if check.passed)
        reason = f"still passes against a wrong prediction: {passed}" if passed else ""
    elif claim.misstated:
        verdict = "misstated" if failed else "holds"
        reason = f"refuted by: {'; '.join(check.name for check in failed)}" if failed else ""
    else:
        verdict = "fails" if failed else "holds"
        reason = f"failed: {'; '.join(check.name for check in failed)}" if failed else ""
    return Outcome(claim, checks, verdict, reason, seconds, config)


def _strain(check: Check) -> float:
    if check.tolerance > 0:
        return check.error / check.tolerance
    return math.inf if check.error > 0 else 0.0


def _plain(value: Any) -> Any:
    """Numbers, lists and dictionaries of Python's own, fit for JSON."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)

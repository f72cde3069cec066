"""A run that a claim is checked on, and which runs a claim is about."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..config import Config
from ._lab import Lab
from ._registry import join_lines

T = TypeVar("T")

# What a config must have: None if it has it, else the end of a sentence that begins with the claim.
Need = Callable[[Config], str | None]
"""Why a claim is not about runs of a config; None if it is.

**Example:**

```pycon
>>> def white(config):
...     return None if config.task.kind == "linear_regression" else "is about linear regression"
>>> need: icl.papers.Need = white
>>> need(icl.papers.study("linear/staircase"))
```
"""


@dataclasses.dataclass(frozen=True)
class Given:
    """A run with its config and its task, which meet the needs of a claim.

    **Fields:**

    - `own`: whether the claim itself made the run, from its study. Its tolerances are then those of
      that study, which are mostly tighter than what holds on any run.
    - `seeds`: all runs, where the claim made several that differ in their initial weights alone.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase")
    >>> given = icl.papers.Given(config, task=None, run=None, own=True)
    >>> given.tolerance(1e-6, on_any_run=1e-3)
    1e-06
    ```
    """

    config: Config
    task: Any
    run: Any
    own: bool = False
    seeds: Sequence[Any] = ()

    @property
    def runs(self) -> Sequence[Any]:
        """All runs: those of every seed, or the only one."""
        return self.seeds or (self.run,)

    def each(self, measure: Callable[[Any], T]) -> T | list[T]:
        """A quantity of every seed; of a single run, the quantity itself."""
        return [measure(run) for run in self.seeds] if self.seeds else measure(self.run)

    @property
    def end(self) -> float:
        return float(self.run.times[-1])

    @staticmethod
    def study(lab: Lab, config: Config, weights: int | None = None, **notes: Any) -> "Given":
        """The run of a claim's own study, computed once; `weights` as in `Lab.run`.

        The report shows the settings that the study gives its task and its model, and `notes`.
        """
        # Here, since `papers` is loaded to list studies, which needs no JAX.
        from ..experiment import build_task

        for part in (config.task, config.model):
            lab.note(**part.model_dump(mode="json", exclude_unset=True, exclude={"kind"}))
        lab.note(**notes)
        return Given(config, build_task(config), lab.run(config, weights), own=True)

    def tolerance(self, own: float, on_any_run: Callable[[], float] | float) -> float:
        """The tolerance on the claim's own run, or that on any other run."""
        if self.own:
            return own
        return on_any_run() if callable(on_any_run) else on_any_run


# Takes predictions through the lab, and raises `Inconclusive` if the run cannot decide.
RunTest = Callable[[Given, Lab], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class OnRun:
    """How a claim is checked on any one run.

    **Fields:**

    - `needs`: what a config must have, from the most general to the most special.
    - `tolerance_reason`: why the tolerances are right for any run that the claim is about.

    **Example:**

    ```pycon
    >>> claim = icl.papers.find_claim_on_runs("linear/cascade")
    >>> claim.on_run.refuses(icl.papers.study("softmax/pair"))
    'is about separate attention: `model.kind` = "structured"'
    ```
    """

    needs: tuple[Need, ...]
    tolerance_reason: str
    test: RunTest

    def refuses(self, config: Config) -> str | None:
        """Why the claim is not about runs of this config; None if it is."""
        return self.refuses_all([config])

    def refuses_all(self, configs: Sequence[Config]) -> str | None:
        """Why the claim is about no run of these configs, for the nearest of them; None if it is
        about one."""
        # The more needs a config meets, the nearer it is. Of several the first is taken: values
        # mostly rise, and most claims are about small ones.
        best, nearest = -1, None
        for config in configs:
            unmet = ((i, reason) for i, need in enumerate(self.needs) if (reason := need(config)))
            met, reason = next(unmet, (len(self.needs), None))
            if reason is None:
                return None
            if met > best:
                best, nearest = met, reason
        return nearest


def on_run(*needs: Need, tolerance_reason: str) -> Callable[[RunTest], OnRun]:
    """Says how a claim about many different runs is checked on one: `claim(on_run=…)`.

    **Example:**

    ```pycon
    >>> only = icl.papers.on_run(lambda config: None, tolerance_reason="Whole numbers.")
    >>> only(lambda given, lab: iter(())).tolerance_reason
    'Whole numbers.'
    ```
    """
    return lambda test: OnRun(needs, join_lines(tolerance_reason), test)

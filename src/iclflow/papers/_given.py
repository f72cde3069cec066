"""A run that a claim is checked on, and of which runs a claim speaks."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..config import Config
from ._lab import Lab
from ._registry import join_lines

T = TypeVar("T")

# What a config must have; the answer is the end of a sentence that begins with the claim, or None.
Need = Callable[[Config], str | None]


@dataclasses.dataclass(frozen=True)
class Given:
    """A run and what it was made from: task and models are such as the needs of a claim ask for.

    **Fields:**

    - `own`: whether the claim itself made the run, from its study. Its tolerances are then those of
      that study, which are mostly tighter than what holds on any run.
    - `seeds`: all runs, where the claim made several that differ in their initial weights alone.
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

        The settings that the study gives its task and its model are noted, and `notes` beside them.
        """
        # Here, since `papers` is loaded to list studies, which needs no JAX.
        from ..experiment import build_task

        for part in (config.task, config.model):
            lab.note(**part.model_dump(mode="json", exclude_unset=True, exclude={"kind"}))
        lab.note(**notes)
        return Given(config, build_task(config), lab.run(config, weights), own=True)

    def tolerance(self, own: float, on_any_run: Callable[[], float] | float) -> float:
        """The tolerance on the claim's own run, or that on a run of others."""
        if self.own:
            return own
        return on_any_run() if callable(on_any_run) else on_any_run


# Predictions are taken through the lab. A test raises `Inconclusive` where a run cannot decide.
RunTest = Callable[[Given, Lab], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class OnRun:
    """How a claim is checked on any one run.

    **Fields:**

    - `needs`: what a config must have, one after the other.
    - `tolerance_reason`: why the tolerances are right for any run that the claim speaks of.
    """

    needs: tuple[Need, ...]
    tolerance_reason: str
    test: RunTest

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
            unmet = ((i, reason) for i, need in enumerate(self.needs) if (reason := need(config)))
            met, reason = next(unmet, (len(self.needs), None))
            if reason is None:
                return None
            if met > best:
                best, nearest = met, reason
        return nearest


def on_run(*needs: Need, tolerance_reason: str) -> Callable[[RunTest], OnRun]:
    """Says how a claim that makes many runs of its own is checked on one: `claim(on_run=…)`."""
    return lambda test: OnRun(needs, join_lines(tolerance_reason), test)

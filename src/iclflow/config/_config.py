"""The config of one experiment: task, model, risk, flow, saving, seed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from ..limits import RiskKind, best_kind
from ._base import Flag, Settings, Text
from ._checks import check, check_memory, risk_kinds
from ._kinds import ModelSettings, TaskSettings
from ._training import (
    BestRisk,
    FlowSettings,
    GradientFlow,
    RiskSettings,
    SaveDrops,
    SaveSettings,
)


class Config(Settings):
    """Everything that decides a run. Equal configs give equal bits on equal machines.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase", seed=3)
    >>> config.seed, config.task.kind, config.model.kind, config.risk_kind
    (3, 'linear_regression', 'separate', 'exact')
    >>> config.hash == icl.papers.study("linear/staircase", seed=3).hash
    True
    ```
    """

    name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)] = Field(
        default="run", description="Name of the run, and of its folder."
    )
    seed: Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)] = Field(
        default=0, description="Of the initial weights, the data set and the random stream."
    )
    theory: Flag = Field(default=True, description="Whether to draw whatever theory applies.")
    task: Annotated[TaskSettings, Field(discriminator="kind")]
    model: Annotated[ModelSettings, Field(discriminator="kind")]
    risk: Annotated[RiskSettings, Field(discriminator="kind")] = BestRisk()
    flow: Annotated[FlowSettings, Field(discriminator="kind")] = GradientFlow()
    save: Annotated[SaveSettings, Field(discriminator="kind")] = SaveDrops()

    @model_validator(mode="before")
    @classmethod
    def _with_default_kinds(cls, data: Any) -> Any:
        """A section without a kind has the kind of its default."""
        if not isinstance(data, Mapping):
            return data
        completed = dict(data)
        for name, field in cls.model_fields.items():
            if isinstance(field.default, Settings) and isinstance(data.get(name), Mapping):
                completed[name] = {"kind": getattr(field.default, "kind"), **data[name]}
        return completed

    @model_validator(mode="after")
    def _check(self, info: Any) -> "Config":  # pydantic's protocol for this type is not checkable
        check(self)
        if not (info.context or {}).get("stored"):
            check_memory(self)
        return self

    @property
    def risk_kind(self) -> RiskKind:
        """The kind of risk that is minimised, with `best` resolved."""
        kind = self.risk.kind
        return best_kind(risk_kinds(self.task, self.model)) if kind == "best" else kind

    @property
    def sampled(self) -> bool:
        """Whether every step draws fresh sequences."""
        return self.risk_kind == "sampled"

    @property
    def exact(self) -> bool:
        """Whether training sees the population itself, without any randomness."""
        return self.risk_kind == "exact"

    @property
    def exact_exists(self) -> bool:
        """Whether the population risk of this model on this task can be computed."""
        return "exact" in risk_kinds(self.task, self.model)

    @property
    def stochastic(self) -> bool:
        """Whether steps are random."""
        return self.risk_kind in ("minibatch", "sampled")

    @property
    def hash(self) -> str:
        """The SHA-256 of everything that decides the result; the name does not.

        Settings that have their default are left out, so that a new setting does not change the
        hash of earlier runs.
        """
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
        for section in ("task", "model", "risk", "flow", "save"):
            kind = getattr(self, section).kind
            content[section] = {**content.get(section, {}), "kind": kind}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.hash[:8]}"

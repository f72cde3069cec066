"""Claims on a watched training: those that hold for a run of ours with the same config."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..checkpoints import load_model, save_model
from ..config import Config, parse_config
from ..errors import InputError
from ..models import AbstractModel
from ..runtime.precision import in_float64
from ..studies import read_settings
from ..tasks import AbstractTask
from ..trajectory import Trajectory
from ._look import Look

if TYPE_CHECKING:
    from ..papers import Outcome

# Looks without weights that are named.
_MOST_MISSING = 5


@dataclasses.dataclass(frozen=True)
class ClaimOnWatch:
    """What one claim on single runs says of a watched training.

    **Fields:**

    - `outcome`: its verdict; None if it is not about such a training.
    - `reason`: why it is not, or why the verdict is open; else empty.

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> refused = watching.ClaimOnWatch("linear/cascade", "Drops in order.", None, "is too short")
    >>> refused.as_json()["verdict"] is None
    True
    ```
    """

    id: str
    statement: str
    outcome: "Outcome | None"
    reason: str

    def __str__(self) -> str:
        if self.outcome is None:
            return f"– {self.id} {self.reason}"
        return f"{self.outcome.verdict}: {self.id}{f' ({self.reason})' if self.reason else ''}"

    def as_json(self) -> dict[str, Any]:
        """The claim as plain data; its verdict is None if it is not about such a training."""
        verdict = None if self.outcome is None else self.outcome.verdict
        return {"id": self.id, "statement": self.statement, "verdict": verdict,
                "reason": self.reason}  # fmt: skip


class Likeness:
    """A config of ours that describes somebody else's training.

    No claim is written for watched trainings: with the config it is known what a claim is about,
    and the weights at the looks are the run that it is checked on.
    """

    def __init__(self, like: Any, task: AbstractTask, folder: Path | None = None):
        """**Arguments:**

        - `like`: a config, its plain data, its file, or the name of a study.
        - `task`: the one that is watched, in float64.
        - `folder`: for the weights at the looks; None keeps them in memory alone.
        """
        from ..experiment import build_model, build_task, keys_of

        self.config = _parse(like)
        if self.config.flow.kind == "gradient_flow":
            raise InputError(
                "`like` has a gradient flow, and a training in steps is none: give a config whose "
                "flow is a descent."
            )
        with in_float64():
            self.task = build_task(self.config)
            make = lambda: build_model(self.config, keys_of(self.config.seed).weights)[0]
            self._shapes = _shapes(jax.eval_shape(make))
        if _shapes(self.task) != _shapes(task) or not _same_numbers(self.task, task):
            raise InputError(
                "`like` has another task than the one that is watched: must be the same."
            )
        self._folder, self._models = folder, dict[int, AbstractModel]()
        # The step of the last look of this process.
        self._last: int | None = None

    def check(self, model: AbstractModel) -> None:
        """Refuses a model of another kind or size than that of the config."""
        if _shapes(model) != self._shapes:
            settings = self.config.model
            raise InputError(
                f'`like` has a model of the kind "{settings.kind}" with {settings.heads} heads, of '
                "other weights than those that are read: must be the same attention."
            )

    def begin(self, step: int) -> None:
        """A look at this step begins: weights from there on, which a training that repeats steps
        left behind, are dropped."""
        is_later, self._last = self._last is not None and step > self._last, step
        if is_later:
            return
        self._models = {at: model for at, model in self._models.items() if at < step}
        for path in () if self._folder is None else self._folder.glob("*.safetensors"):
            if path.stem.isdecimal() and int(path.stem) >= step:
                path.unlink(missing_ok=True)

    def keep(self, step: int, model: AbstractModel) -> None:
        """Keeps the weights of a look, also for a process that resumes the training."""
        self._models[step] = model
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            save_model(model, self._path(step))

    def _path(self, step: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{step}.safetensors"

    def _find(self, step: int) -> AbstractModel | None:
        """The weights of a look, of this process or of one before."""
        if step not in self._models and self._folder is not None and self._path(step).is_file():
            self._models[step] = load_model(self._path(step))
        return self._models.get(step)

    def claims(self, looks: Sequence[Look]) -> tuple[ClaimOnWatch, ...]:
        """What each claim on single runs says of this training."""
        from ..papers import claims_on_runs

        with in_float64():
            run = self._trajectory(looks)
            return tuple(self._check(claim, run) for claim in claims_on_runs())

    def _check(self, claim: Any, run: Trajectory | str) -> ClaimOnWatch:
        refused = claim.refuses(self.config)
        if refused is not None:
            return ClaimOnWatch(claim.id, claim.statement, None, refused)
        if isinstance(run, str):
            return ClaimOnWatch(claim.id, claim.statement, None, run)
        outcome = claim.check(run, self.task, self.config)
        return ClaimOnWatch(claim.id, claim.statement, outcome, outcome.reason)

    def _trajectory(self, looks: Sequence[Look]) -> Trajectory | str:
        """The looks as a run; or why they are none, if the weights of some of them are not here: a
        claim could take the middle of the training for its beginning."""
        from ..experiment import as_run, prepare

        found = {look.step: self._find(look.step) for look in looks}
        missing = [str(step) for step, model in found.items() if model is None]
        if len(looks) < 2:
            return "needs the weights of at least two looks"
        if missing:
            more = f" and {len(missing) - _MOST_MISSING} more" if missing[_MOST_MISSING:] else ""
            steps = ", ".join(missing[:_MOST_MISSING])
            return f"needs the weights of every look, and has none of step {steps}{more}"
        models = [model for model in found.values() if model is not None]
        return as_run(prepare(self.config), [float(step) for step in found], models)


def _parse(like: Any) -> Config:
    if isinstance(like, Config):
        return like
    if isinstance(like, Path | str):
        like = read_settings(like)
    if not isinstance(like, Mapping):
        raise InputError(
            "like", like, "must be a config of iclflow, its file or the name of a study"
        )
    return parse_config(like)


def _shapes(tree: Any) -> Any:
    """Kind and sizes, without numbers."""
    leaves, structure = jax.tree.flatten(tree)
    return [getattr(leaf, "shape", None) for leaf in leaves], structure


def _same_numbers(one: AbstractTask, other: AbstractTask) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other))
    # A task that was made in float32 has rounded numbers.
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in pairs)

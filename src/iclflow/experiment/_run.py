"""`icl.run`: one experiment from its config to its trajectory, in memory or in a folder."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..analysis import TestLosses, test_losses
from ..config import Config, InputError, parse_config
from ..errors import shorten
from ..flows import Status
from ..risks.fused import AbstractFusedRisk, Engine, can_be_fused, engine
from ..runtime import Progress, show_progress
from ..store import CONFIG, RunFolder, check_free, check_input, config_text
from ..studies import read_settings
from ..tasks import AbstractTask
from ..trajectory import Trajectory
from ._build import Experiment, build_task, prepare
from ._figure import load_early, loss_figure
from ._overlay import overlay
from ._prediction import Overlay
from ._share import Share
from ._summary import Summary, summarise
from ._train import train


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, with what it started from.

    **Fields:**

    - `folder`: where it is kept; None in memory.
    - `computed`: whether it was computed now; otherwise it was in the folder already.
    - `written`: whether the folder holds this run. A run that does not reach its end never replaces
      one that did.
    - `resumed`: whether it went on from a checkpoint.

    **Example:**

    ```pycon
    >>> run = icl.run("linear/white", progress=False)
    >>> run.trajectory.result.name, round(float(run.floor), 3), run.theory is not None
    ('converged', 0.139, True)
    ```
    """

    experiment: Experiment
    trajectory: Trajectory
    folder: Path | None = None
    computed: bool = True
    written: bool = False
    resumed: bool = False

    @property
    def config(self) -> Config:
        return self.experiment.config

    @functools.cached_property
    def theory(self) -> Overlay | None:
        """The prediction for this run; None if theory has none."""
        return overlay(self.experiment)

    @property
    def engine(self) -> Engine | None:
        """Which path the steps of a sampled softmax run in float32 take here; None for others."""
        chosen, risk = _engine(self.experiment), self.experiment.risk
        if chosen is None or not isinstance(risk, AbstractFusedRisk):
            return None
        fused = can_be_fused(risk.white, self.experiment.model, risk.labels_drawn, risk.batch)
        if fused or chosen.name == "stored batches":
            return chosen
        return Engine("stored batches", "there is no fused pass for this model on this task")

    @functools.cached_property
    def floor(self) -> float | None:
        """The smallest loss that weights of this shape can reach; None if it is not known."""
        return self.experiment.floor()

    def test_losses(self, other: AbstractTask | None = None) -> TestLosses:
        """The losses on training tasks and on unseen ones over the run; see
        `analysis.test_losses`."""
        ridge = getattr(self.config.risk, "ridge", 0.0)
        return test_losses(self.trajectory, self.experiment.task, other, ridge)

    def summary(self) -> Summary:
        """Plateaus and drops, each with its prediction."""
        run, task = self.trajectory, self.experiment.task
        return summarise(self.config, run, self.floor, self.theory, task)

    def kept(self, folder: Path, written: bool) -> "Run":
        """The same run in its folder, with the theory that was computed for it."""
        run = dataclasses.replace(self, folder=folder, written=written)
        vars(run).update(vars(self) | vars(run))
        return run

    def figures(self) -> dict[str, bytes]:
        """The loss with theory, as the files `loss.png` and `loss.pdf`."""
        return loss_figure(self.trajectory, self.theory, self.floor, self.config.name)


def run(
    config: Config | Mapping[str, Any] | Path | str,
    out: Path | str | None = None,
    *,
    fresh: bool = False,
    force: bool = False,
    checkpoint_every: float = 10.0,
    progress: Progress | bool | None = None,
    waiting: Callable[[], None] | None = None,
) -> Run:
    """Runs an experiment. An `InputError` of one sentence says why it cannot be run.

    A run that is complete in `out` is returned at once, and one that was stopped or killed resumes
    from its checkpoint, with the same bits.

    **Arguments:**

    - `config`: a config, its plain data, the path of its TOML file, or the name of a study, such
      as `linear/staircase`.
    - `out`: the folder for its config, trajectory and figure; None keeps it in memory.
    - `fresh`: compute it even if it is complete.
    - `force`: overwrite files in the folder with the names of a run's files, whoever wrote them.
    - `checkpoint_every`: seconds between two checkpoints.
    - `progress`: whether to show a bar (default: on a terminal), or a function that is called with
      what is being done, the share that is done, and some numbers as text.
    - `waiting`: called if another process computes this run, before waiting for it.

    **Example:**

    ```pycon
    >>> run = icl.run("linear/white", progress=False)
    >>> run.config.name, len(run.trajectory) > 10
    ('linear-white', True)
    ```
    """
    if isinstance(config, Path | str):
        source, config = config, parse_config(read_settings(config))
        if out is not None:
            check_input(source, Path(out), {CONFIG: config_text(config)})
    elif isinstance(config, Mapping):
        config = parse_config(config)
    elif not isinstance(config, Config):
        raise InputError(
            f"`config` = {shorten(config)}: must be a config, its plain data, the path of a TOML "
            "file or the name of a study."
        )
    shown = callable(progress) or (sys.stderr.isatty() if progress is None else progress)
    with show_progress(config.name, progress) as tell:
        if out is None:
            return _compute(config, tell, shown)
        path = Path(out)
        check_free(path, config, force)
        build_task(config)
        # Returning a complete run needs no lock, and works on a read-only disk.
        stored = None if fresh else RunFolder(path, config).load_stored()
        if stored is not None:
            return Run(prepare(config), stored, path, computed=False)
        how = checkpoint_every, tell, shown, waiting
        return _compute_in_folder(config, path, fresh, force, *how)


def _compute(config: Config, tell: Progress, shown: bool, checkpoint=None) -> Run:
    experiment = prepare(config)
    share = Share(experiment) if shown else lambda status: status.fraction

    def show(status: Status) -> None:
        tell(config.name, share(status), status.text)

    resumed = checkpoint is not None and checkpoint.path.exists()
    path = _engine(experiment)
    tell(f"{config.name}: {'resuming' if resumed else 'compiling'}", None, str(path or ""))
    return Run(experiment, train(experiment, show, checkpoint), resumed=resumed)


def _engine(experiment: Experiment) -> Engine | None:
    risk = experiment.risk
    fused = isinstance(risk, AbstractFusedRisk) and risk.white is not None
    return engine() if fused and experiment.config.model.softmax else None


def _compute_in_folder(
    config: Config,
    path: Path,
    fresh: bool,
    force: bool,
    every: float,
    tell: Progress,
    shown: bool,
    waiting: Callable[[], None] | None,
) -> Run:
    """Computes a run into its folder, unless another process has just completed it."""

    def wait() -> None:
        tell(f"{config.name}: waiting for another process that computes this run", None, "")
        if waiting is not None:
            waiting()

    # A folder that cannot be used is refused before anything is computed.
    with RunFolder.lock(path, config, wait, force) as folder:
        stored = None if fresh else folder.load_stored()
        if stored is not None:
            return Run(prepare(config), stored, path, computed=False)
        load_early()
        found = _compute(config, tell, shown, folder.checkpoint(every, fresh))
        tell(f"{config.name}: drawing", None, "")
        written = folder.keep(found.trajectory, found.figures())
        return found.kept(path, written)

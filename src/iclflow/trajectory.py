"""The result of a flow: times, losses and weights as one object that saves and plots itself."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .drawing.loss import (
    check_theory,
    draw_loss,
    draw_theory,
    first_shown,
    framed_legend,
    one_panel,
    set_log_time,
)
from .drawing.weights import plot_components, plot_heads, plot_spectrum
from .errors import InputError, shorten
from .files import MANIFEST, FileError, OwnFiles, read_sealed, seal, sha256
from .models import (
    AbstractCircuits,
    AbstractModel,
    is_known_model,
    map_models,
    model_arrays,
    model_settings,
    name_of,
    restore_model,
)
from .runtime.precision import require_float64_for
from .tasks import AbstractTask, is_real
from .tensors import TensorFile, check_regular

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import Dataset

FORMAT = 1
"""The format of stored runs; readers refuse other formats.

**Example:**

```pycon
>>> icl.Trajectory.__module__, isinstance(icl.trajectory.FORMAT, int)
('iclflow.trajectory', True)
```
"""
# The metadata of a stored run, with the types that they must have.
_ABOUT = {"model": dict, "clock": str, "result": str, "statistics": dict}

M = TypeVar("M", bound=AbstractModel)


class Result(Enum):
    """How a run ended. The value is the message.

    **Example:**

    ```pycon
    >>> icl.Result.converged.ok, icl.Result.diverged.ok
    (True, False)
    >>> icl.Result.cancelled.value
    'The run was cancelled; everything up to that moment is here.'
    ```
    """

    converged = "The loss reached the smallest value that these weights can reach."
    finished = "The run reached its end."
    stationary = "The weights stand at a stationary point and will never move."
    cancelled = "The run was cancelled; everything up to that moment is here."
    diverged = "The loss became infinite or not a number; everything before that is here."
    step_limit = "The run used up its steps before it reached its end."
    step_underflow = "The solver's step became too small to move; the problem is too stiff for it."

    @property
    def ok(self) -> bool:
        return self in (Result.converged, Result.finished, Result.stationary)


@dataclasses.dataclass(frozen=True)
class Trajectory(Generic[M]):
    """Times, losses and weights of one run.

    **Fields:**

    - `times`: when each point was saved; in units of `clock`.
    - `losses`: the risk at these times.
    - `models`: the model, every weight with a leading axis over the times.
    - `clock`: `"time"` for gradient flow (units of τ), `"step"` for descent.
    - `result`: how the run ended.
    - `statistics`: solver, numbers of steps, seconds.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> run.result.name, run.loss_at(0.0).round(3), run.final.coefficients().shape
    ('converged', np.float64(1.1), (2, 2))
    >>> norms = run.map(lambda model: jnp.linalg.norm(model.coefficients()))
    >>> norms.shape == run.times.shape
    True
    >>> import tempfile
    >>> run.save(folder := tempfile.mkdtemp())
    >>> len(icl.Trajectory.load(folder)) == len(run)
    True
    ```
    """

    times: np.ndarray
    losses: np.ndarray
    models: M
    clock: str = "time"
    result: Result = Result.finished
    statistics: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [name_of(self.models), f"{len(self)} points"]
        if len(self):
            parts.append(f"{self.clock} {self.times[0]:g} … {self.times[-1]:.6g}")
            parts.append(f"loss {self.losses[0]:.6g} → {self.losses[-1]:.6g}")
        return f"Trajectory({', '.join(parts)}, {self.result.name})"

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, index: Any) -> "Trajectory[M]":
        if not isinstance(index, slice):
            raise TypeError("A trajectory is sliced, as in `run[10:20]`; one model is `run.at(i)`.")
        return dataclasses.replace(
            self,
            times=self.times[index],
            losses=self.losses[index],
            models=jax.tree.map(lambda leaf: leaf[index], self.models),
        )

    def between(self, start: float, end: float) -> "Trajectory[M]":
        """The points with start ≤ time ≤ end."""
        # The first time after `end` is excluded, so that `end` itself is not.
        first, last = np.searchsorted(self.times, [start, np.nextafter(end, np.inf)])
        return self[int(first) : int(last)]

    def at(self, index: int) -> M:
        """The model at one saved point."""
        require_float64_for("A run in float64", self.models)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), self.models)

    @property
    def final(self) -> M:
        """The model at the end."""
        return self.at(-1)

    def model_at(self, time: float) -> M:
        """The model at any moment, linear between the saved points."""
        if not is_real(time) or not self.times[0] <= time <= self.times[-1]:
            raise InputError(
                "time", time, f"must lie between {self.times[0]:g} and {self.times[-1]:g}"
            )
        if len(self) == 1:
            return self.at(0)
        require_float64_for("A run in float64", self.models)
        right = int(np.clip(np.searchsorted(self.times, time), 1, len(self) - 1))
        left = right - 1
        share = (time - self.times[left]) / (self.times[right] - self.times[left])
        return jax.tree.map(
            lambda leaf: jnp.asarray((1 - share) * leaf[left] + share * leaf[right]), self.models
        )

    def loss_at(self, time: Any) -> np.ndarray | np.floating:
        """The loss at any moment, linear between the saved points; NaN before and after them."""
        return np.interp(time, self.times, self.losses, left=np.nan, right=np.nan)

    def map(self, function: Callable[[M], Any]) -> Any:
        """Applies a function of one model at every saved point; time is the first axis.

        `run.map(lambda model: model.kq())` are the key-query circuits over time, `run.map(risk)`
        the losses on another risk.

        **Arguments:**

        - `function`: returns numbers, arrays or words, or tuples, lists and dictionaries of these.
          A function that JAX can trace is compiled, for many points at once; any other, such as
          one that uses NumPy, is called point by point.
        """
        require_float64_for("A run in float64", self.models)
        return map_models(function, self.models)

    def coefficients(self) -> np.ndarray:
        """The coefficients of the model (A of linear attention) at every saved point."""
        return self.map(type(self.models).coefficients)

    def to_xarray(self) -> "Dataset":
        """The run as a labelled data set."""
        import xarray

        variables: dict[str, Any] = {"loss": (self.clock, self.losses)}
        for name, array in model_arrays(self.models).items():
            axes = (self.clock, *(f"{name}_{i}" for i in range(array.ndim - 1)))
            variables[name] = (axes, array)
        attributes = {"result": self.result.name, **self.statistics}
        return xarray.Dataset(variables, {self.clock: self.times}, attributes)

    def plot(self, ax: "Axes | None" = None, theory: Any = None, log_time: bool = False) -> "Axes":
        """Draws the loss, with theory on top.

        **Arguments:**

        - `theory`: any prediction with some of `levels`, `drop_times` and `loss`, which are drawn.
          If `loss` is a function of times, its curve ends a little after the run; if it is a
          vector, as that of `iclflow.theory.pair_flow`, the prediction has its `times`.
        - `log_time`: a logarithmic time axis.
        """
        if theory is not None:
            check_theory(theory)
        ax = one_panel(ax)
        draw_loss(ax, self.times, self.losses, self.result is Result.stationary)
        if theory is not None:
            draw_theory(ax, theory, self.times)
        self._finish(ax, "loss", log_time)
        framed_legend(ax)
        return ax

    def plot_spectrum(self, ax: "Axes | None" = None, log_time: bool = False) -> "Axes":
        """Draws the singular values of what the heads attend to.

        For linear attention with one label, and for the equivalent networks, these are the singular
        values of A = Σ_h v_h KQ_h, the matrix of all heads together. For any other attention they
        are those of the key-query circuit of each head, on the inputs.
        """
        drawn, words = plot_spectrum(self.models, self.times, ax)
        self._finish(drawn, words, log_time)
        return drawn

    def plot_heads(
        self,
        task: AbstractTask | None = None,
        label: int | None = None,
        axes: "Sequence[Axes] | None" = None,
        log_time: bool = False,
    ) -> "list[Axes]":
        """Draws the strengths of each head: ω, of its attention, above μ, of what it reads.

        Colours are the roles at the last point: see `iclflow.analysis.head_roles`.

        **Arguments:**

        - `task`: if given, heads are drawn in its coordinates: see `iclflow.analysis.circuits`.
        - `label`: one label (from 0) of several; by default all, side by side.
        - `axes`: two for each label that is drawn: first all upper ones, then all lower ones.
        """
        grid, words = plot_heads(self.models, self.times, task, label, axes)
        for row, name in zip(grid, words):
            for place, ax in enumerate(row):
                self._finish(ax, name if place == 0 else "", log_time)
        for ax in grid[0]:
            ax.set_xlabel("")
        return list(grid.ravel())

    def plot_components(
        self, task: AbstractTask, ax: "Axes | None" = None, log_time: bool = False
    ) -> "Axes":
        """Draws how much of each principal component of the inputs has been learned.

        Along the eigenvector e_d of the input covariance this is the strength e_dᵀAe_d, with A the
        matrix of all heads together. For linear attention it is drawn as a share of the strength
        with the smallest risk. For softmax attention A is the step of all heads to first order in
        the attention. For a task of several labels the step on each label is drawn.

        **Arguments:**

        - `task`: its inputs must have a known covariance.
        """
        drawn, words = plot_components(self.models, self.times, task, ax)
        self._finish(drawn, words, log_time)
        return drawn

    def _finish(self, ax: "Axes", label: str, log_time: bool) -> None:
        """Sets the labels and limits of a plot over time."""
        if log_time:
            set_log_time(ax)
            ax.set_xlim(left=first_shown(self.times, self.losses))
        elif self.clock == "step" and len(self) > 1:
            ax.locator_params(axis="x", integer=True)
        ax.set_xlabel("time (τ)" if self.clock == "time" else "step")
        ax.set_ylabel(label)
        if not self.result.ok and not ax.get_title():
            ax.set_title(self.result.value, fontsize="small", color="C3")

    def save(
        self,
        folder: Path | str,
        *,
        files: Mapping[str, bytes] | None = None,
        about: Mapping[str, Any] | None = None,
        own: OwnFiles | None = None,
    ) -> None:
        """Writes `trajectory.safetensors`, then `manifest.json`, which makes the run complete. An
        earlier run is overwritten; other files of these names are refused.

        **Arguments:**

        - `files`: further files of the run; the manifest has a hash of each.
        - `about`: further entries of the manifest, as plain data.
        - `own`: the files in the folder that belong to runs, if the caller knows them already.
        """
        from safetensors.numpy import save

        arrays = {"times": np.asarray(self.times), "losses": np.asarray(self.losses)}
        arrays |= {f"model.{name}": array for name, array in model_arrays(self.models).items()}
        data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        contents = {**(files or {}), "trajectory.safetensors": data}
        manifest = {
            "format": FORMAT,
            "model": {"class": type(self.models).__name__, **model_settings(self.models)},
            "clock": self.clock,
            "result": self.result.name,
            "statistics": dict(self.statistics),
            "loss": float(self.losses[-1]) if np.isfinite(self.losses[-1:]).any() else None,
            "files": {name: sha256(content) for name, content in contents.items()},
            **(about or {}),
        }
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            problem = f"= {folder} is a file"  # as `problem`, because a value would be shortened
            raise InputError("folder", problem=problem, allowed="must be a folder, or free")
        # The manifest is written last: with it the run is complete.
        own = own or OwnFiles(folder)
        own.write({**contents, MANIFEST: seal(manifest)})
        own.end()

    @staticmethod
    def load(
        folder: Path | str, model_class: type[AbstractModel | AbstractCircuits] | None = None
    ) -> "Trajectory":
        """Loads a run, and checks that it is complete and undamaged.

        **Arguments:**

        - `model_class`: the class of your own model, or of your own circuits of attention; not
          needed for those of this library.
        """
        folder = Path(folder)
        manifest = _read_manifest(folder)
        path = folder / "trajectory.safetensors"
        arrays = TensorFile(path)
        # The hash covers the whole file; the tensors are read from it one by one.
        if sha256(path.read_bytes()) != manifest["files"].get("trajectory.safetensors"):
            raise FileError(f"`{path}` does not match its hash: damaged.")
        return restore_trajectory(str(path), arrays, manifest, model_class)


def restore_trajectory(
    name: str,
    arrays: Mapping[str, Any],
    about: Mapping[str, Any],
    model_class: type[AbstractModel | AbstractCircuits] | None = None,
) -> Trajectory:
    """A run from the contents of its files; raises a `FileError` if they are not those of a run.

    **Arguments:**

    - `name`: of the file, for the message.
    - `arrays`: `times`, `losses`, and `model.NAME` for each weight.
    - `about`: the class and the settings of the `model`, `clock`, `result` and `statistics`.
    - `model_class`: the class of the models, if it is not one of iclflow.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> settings = {"class": "Attention", **icl.models.model_settings(model)}
    >>> about = {"model": settings, "clock": "step", "result": "finished", "statistics": {}}
    >>> arrays = {f"model.{name}": x[None] for name, x in icl.models.model_arrays(model).items()}
    >>> arrays |= {"times": np.zeros(1), "losses": np.ones(1)}
    >>> from iclflow.trajectory import restore_trajectory
    >>> restore_trajectory("my file", arrays, about)
    Trajectory(Merged attention, 1 points, step 0 … 0, loss 1 → 1, finished)
    ```
    """
    for key, allowed in _ABOUT.items():
        if not isinstance(about.get(key), allowed):
            raise FileError(f"`{name}` has `{key}` = {shorten(about.get(key))}: damaged.")
    clock, result, settings = about["clock"], about["result"], dict(about["model"])
    if clock not in ("time", "step") or result not in Result.__members__:
        given = f"`clock` = {shorten(clock)} and `result` = {shorten(result)}"
        raise FileError(f"`{name}` has {given}: damaged.")
    kind = settings.pop("class", None)
    # A class is loaded by name only if it is ours, or if the caller brings it: files run no code.
    if not isinstance(kind, str) or not is_known_model(kind, model_class):
        raise FileError(f"`{name}` holds a {shorten(kind)}: pass that class as `model_class`.")
    held = {key: arrays[key] for key in arrays}
    times, losses = (held.pop(key, np.zeros(())) for key in ("times", "losses"))
    strange = [key for key in held if not key.startswith("model.")]
    if strange:
        raise FileError(f"`{name}` has `{strange[0]}`, which is not part of a run.")
    if times.ndim != 1 or times.shape != losses.shape:
        raise FileError(
            f"`{name}` has `times` of shape {times.shape} and `losses` of shape {losses.shape}: "
            "must be two vectors of one length."
        )
    try:
        weights = {key.removeprefix("model."): array for key, array in held.items()}
        models = restore_model(kind, weights, settings, len(times), model_class)
    except ValueError as error:
        raise FileError(f"`{name}` {error}.") from None
    return Trajectory(times, losses, models, clock, Result[result], about["statistics"])


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a complete run."""
    path = folder / MANIFEST
    for needed in (path, folder / "trajectory.safetensors"):
        if not needed.exists():
            raise FileError(f"`{folder}` is not a complete run: {needed} is missing.")
        check_regular(needed)
    try:
        manifest = read_sealed(path, FORMAT)
    except (OSError, ValueError) as error:
        raise FileError(f"`{path}` {getattr(error, 'strerror', error)}.") from None
    if not isinstance(manifest.get("files"), dict):
        raise FileError(f"`{path}` is not the manifest of a run: damaged.")
    return manifest

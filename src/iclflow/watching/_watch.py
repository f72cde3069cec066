"""`icl.watch`: other people's models, measured while they train."""

import collections
import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from ..analysis import Plateau
from ..checkpoints import Layer
from ..errors import InputError
from ..files import FileError
from ..runtime.precision import in_float64
from ..tasks import AbstractTask, check_count
from ._adapters import Jax, Tensorboard, Torch, adapt
from ._callbacks import huggingface, lightning
from ._claims import ClaimOnWatch, Likeness
from ._columns import turns
from ._evaluation import Evaluation
from ._files import WEIGHTS
from ._heads import Heads, LayerLook, ReadCircuits, as_reader, look_at_heads, whole_model
from ._look import Look
from ._plateaus import find_drops, find_plateaus
from ._predictions import PredictionError, double, shorten_text
from ._record import Record
from ._schedule import Schedule, choose_schedule
from ._task import as_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Whole = int | np.integer
# Looks whose longest is taken for the next one's: a budget must hold on a busy machine too.
_RECENT = 5
# Numbers, addresses and shapes in a sentence.
_NUMBER = re.compile(r"[-+]?\d[\w.+-]*")
# Called with the numbers of a look by name, and its step: `wandb.log` is one.
Log = Callable[..., Any]


class Watch:
    """A training that is measured as it goes: call it with the number of the step.

    It never stops the training: what goes wrong is said in a warning, and kept in `problems`.

    **Fields:**

    - `about`: what is watched: task, evaluation set and estimators.
    - `looks`: what was measured so far, in the order of steps.
    - `problems`: what could not be measured, by step, in sentences; with `out`, in the record too.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> size = 0.0
    >>> def predict(x, y, x_query):
    ...     return size * np.einsum("bnd,bn,bd->b", x, y, x_query) / x.shape[1]
    >>> watch = icl.watch(task, predict, every=1)
    >>> for step, size in enumerate([0.0, 0.3, 0.6]):
    ...     look = watch(step)
    >>> [each.nearest[0].name for each in watch.looks]
    ['zero', 'one gradient step', 'one gradient step']
    ```
    """

    def __init__(
        self,
        evaluation: Evaluation,
        predict: Callable[..., Any],
        schedule: Schedule,
        record: Record,
        log: Log | None = None,
        strict: bool = False,
        circuits: ReadCircuits | None = None,
        like: Likeness | None = None,
    ):
        self._circuits, self._like = circuits, like
        self._evaluation, self._predict = evaluation, predict
        self._schedule, self._record, self._log = schedule, record, log
        self._strict, self._said = strict, set[str]()
        self._begun = time.perf_counter()
        # A training that resumes goes on with its clock.
        self._before = record.looks[-1].seconds if record.looks else 0.0
        self._spent, self._timed = 0.0, 0
        self._recent: collections.deque[float] = collections.deque([0.0], _RECENT)

    @property
    def looks(self) -> list[Look]:
        """What was measured so far, in the order of steps."""
        return list(self._record.looks)

    def __call__(self, step: Whole, force: bool = False) -> Look | None:
        """Looks at the model if it is time to, and returns what was measured.

        **Arguments:**

        - `step`: the number of steps that the training has made.
        - `force`: look even if it is not due, as after the last step.
        """
        step = check_count("step", step, least=0)
        now = time.perf_counter() - self._begun
        if not (force or self._schedule.is_due(step, self._spent, now, max(self._recent))):
            return None
        try:
            with contextlib.suppress(OSError):  # a full disk: the look itself will say so
                self._record.begin(step)
            if self._like is not None:
                with contextlib.suppress(OSError):
                    self._like.begin(step)
            return self._look(step, now)
        except Exception as error:  # also of JAX, such as a device without memory left
            if self._strict:
                raise
            words = f"The look failed with {type(error).__name__}: {shorten_text(error, 300)}."
            self._complain(step, str(error) if isinstance(error, PredictionError) else words)
            return None
        finally:
            self._note_time(time.perf_counter() - self._begun - now)

    def _note_time(self, seconds: float) -> None:
        self._spent += seconds
        # The first look compiles, and those that come are not like it.
        if self._timed == 1:
            self._recent.clear()
        self._timed += 1
        self._recent.append(seconds)

    def _look(self, step: int, now: float) -> Look:
        measured = self._evaluation.measure(self._predict)
        look = Look.of(step, self._before + now, measured, self._read_heads(step))
        try:
            self._record.add(look)
        except (OSError, ValueError) as error:  # a full disk; a number that JSON cannot hold
            if self._strict:
                raise
            self._complain(step, f"The look was not recorded: {shorten_text(error, 200)}.")
        if self._log is not None:
            try:
                self._log(look.metrics(), step=step)
            except Exception as error:
                if self._strict:
                    raise
                words = shorten_text(error, 200)
                self._complain(step, f"`log` raised {type(error).__name__}: {words}.")
        return look

    def _read_heads(self, step: int) -> tuple[LayerLook, ...] | None:
        if self._circuits is None:
            return None
        try:
            layers = self._circuits(self._evaluation.task.labels)
            found = look_at_heads(layers, self._evaluation.task)
            model = whole_model(layers)
            if self._like is not None and model is not None:
                self._like.keep(step, model)
            return found
        except Exception as error:  # weights that are not finite, a reader of somebody else
            if self._strict:
                raise
            words = shorten_text(error, 300)
            self._complain(step, f"The heads could not be read: {words}.")
            return None

    def _complain(self, step: int, sentence: str) -> None:
        # A warning for each kind of problem: one per look would bury everything else. Numbers in
        # it, such as how many predictions are not finite, make no other kind.
        kind = _NUMBER.sub("", sentence)
        with contextlib.suppress(OSError):  # a full disk: it is in memory, and is said
            self._record.complain(step, sentence)
        if kind not in self._said:
            self._said.add(kind)
            # Last: where warnings are errors, it is in the record before the training ends.
            warnings.warn(f"iclflow, step {step}: {sentence}")

    @property
    def problems(self) -> dict[int, str]:
        """What could not be measured, by step, in sentences."""
        return self._record.problems

    @property
    def about(self) -> dict[str, Any]:
        """What is watched: task, evaluation set and estimators."""
        return dict(self._record.about)

    @property
    def overhead(self) -> float:
        """The share of the wall time that looks have taken."""
        elapsed = time.perf_counter() - self._begun
        return self._spent / elapsed if elapsed > 0 else 0.0

    @property
    def bayes_loss(self) -> float | None:
        """The smallest loss that any predictor can have on the evaluation set."""
        bayes = self._evaluation.bayes_loss
        return None if bayes is None else bayes.value

    def plateaus(self) -> tuple[Plateau, ...]:
        """The plateaus of the loss so far."""
        looks = self._record.looks
        return find_plateaus([look.step for look in looks], [look.loss.value for look in looks])

    def drops(self) -> tuple[float, ...]:
        """The steps at which the loss was half-way from one plateau to the next."""
        looks = self._record.looks
        return find_drops([look.step for look in looks], [look.loss.value for look in looks])

    def turns(self, label: int = 0) -> list[Look]:
        """The looks at which another estimator became the nearest to one label, as the live page
        lists them. That one comes near enough to be known is no turn."""
        looks = self._record.looks
        names = [look.nearest[label].name if look.distances else None for look in looks]
        return [looks[place] for place in turns(names)]

    def claims(self) -> tuple[ClaimOnWatch, ...]:
        """What every claim on single runs says of this training, or why it is not about it.

        It needs `like=`, a config of ours that describes this training, and `circuits=`.
        """
        if self._like is None:
            raise InputError(
                "like",
                problem="is missing",
                allowed="claims are about runs of known task, model and flow: give `like=`, a "
                "config of iclflow that describes this training, and `circuits=`",
            )
        found = self._like.claims(self.looks)
        with contextlib.suppress(OSError):  # a full disk: the caller has them
            self._record.judge([claim.as_json() for claim in found])
        return found

    @property
    def judged(self) -> bool:
        """Whether claims are checked on this training."""
        return self._like is not None

    def __str__(self) -> str:
        looks = self._record.looks
        words = (
            f"{len(looks)} looks, {self._schedule.words}, {100 * self.overhead:.2g} % of the time"
        )
        return f"{words}; {looks[-1]}" if looks else words

    def plot(self, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
        """Draws loss and distances over steps, the loss over context lengths, and heads if they
        are read.

        **Arguments:**

        - `axes`: three panels to draw into, six with heads; by default a new figure.
        """
        from ._plot import plot

        return plot(self._record.looks, self.bayes_loss, axes)

    def report(self, path: Path | str) -> Path:
        """Writes one HTML page with everything that was measured."""
        from ._report import write_report

        return write_report(self, Path(path))

    def close(self) -> None:
        """Lets another process go on with the record."""
        self._record.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_) -> None:
        self.close()


@runtime_checkable
class _Adapters(Protocol[P, R]):
    """`icl.watch` is a function, and has the adapters as attributes."""

    torch: type[Torch]
    jax: type[Jax]
    tensorboard: type[Tensorboard]
    heads: type[Heads]
    huggingface: Callable[[Watch], Any]
    lightning: Callable[[Watch], Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def _with_adapters(function: Callable[P, R]) -> "_Adapters[P, R]":
    adapters = {"torch": Torch, "jax": Jax, "tensorboard": Tensorboard, "heads": Heads}
    for name, adapter in (adapters | {"huggingface": huggingface, "lightning": lightning}).items():
        setattr(function, name, adapter)
    return cast("_Adapters[P, R]", function)


@_with_adapters
def watch(
    task: Any,
    predict: Any,
    *,
    out: Path | str | None = None,
    every: Whole | None = None,
    looks: Whole | None = None,
    steps: Whole | None = None,
    budget: float | None = None,
    count: Whole = 500,
    seed: Whole = 0,
    lengths: Sequence[int] | np.ndarray | None = None,
    pretraining: Any = None,
    log: Log | None = None,
    strict: bool = False,
    dtype: DTypeLike = "float32",
    circuits: Any = None,
    like: Any = None,
) -> Watch:
    """Watches a model while it trains: `watch = icl.watch(task, model)`, then `watch(step)`.

    Its attributes adapt models, loggers and trainers of libraries: `icl.watch.torch` (`Torch`),
    `icl.watch.jax` (`Jax`), `icl.watch.heads` (`Heads`), `icl.watch.tensorboard` (`Tensorboard`),
    `icl.watch.huggingface` and `icl.watch.lightning`.

    **Arguments:**

    - `task`: one of iclflow, or anything with `sample(seed, count)`, which returns x, y,
      x_query and y_query.
    - `predict`: a function of (x, y, x_query), batches of NumPy arrays, that returns
      predictions of the query, or at every position; or a module of PyTorch that is called so
      (else see `icl.watch.torch`).
    - `out`: a folder for the record. A training that resumes goes on with it. Of several processes
      only the first one may have it.
    - `every`: look every so many steps.
    - `looks`, `steps`: so many log-spaced looks in a training of so many steps.
    - `budget`: look as often as this share of the wall time allows; the default, with 0.05.
    - `count`, `seed`: of the sequences of the evaluation set, which is drawn once. A look costs
      about what the model takes to predict them.
    - `lengths`: context lengths at which the loss is measured; by default all of a causal
      model, else eight.
    - `pretraining`: the weights of the tasks of the pretraining, one row each, if they are
      known and few: adds the estimator that knows them by heart.
    - `log`: called with the numbers of a look by name and `step=`, such as `wandb.log`.
    - `strict`: raise what goes wrong with `predict`, `circuits`, `log` and the record, instead of
      warning of it.
    - `dtype`: of the arrays that `predict` gets.
    - `circuits`: how heads are read: a module of PyTorch whose layers of attention have known
      names, `icl.watch.heads(module, …)`, or a function that returns what such a module would
      be read as: an attention model of iclflow, tensors by name, or the key-query and the
      output-value circuits (kq, ov) of the heads.
    - `like`: a config of iclflow, its file, or the name of a study, that describes this
      training: task, attention, flow. `claims()` then checks what is claimed of such runs.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> def predict(x, y, x_query):  # one step of gradient descent, in NumPy
    ...     return 0.7 * np.einsum("bnd,bn,bd->b", x, y, x_query) / x.shape[1]
    >>> watch = icl.watch(task, predict, every=1)
    >>> look = watch(0)  # in a training: watch(step) after each step
    >>> look.nearest[0].name, round(look.nearest[0].step_size, 2)
    ('one gradient step', 0.7)
    ```
    """
    numbers = _check_dtype(dtype)
    if log is not None and not callable(log):
        raise InputError("log", log, "must be a function of (metrics, step=), such as wandb.log")
    if not isinstance(out, str | os.PathLike | None) or out == "":
        raise InputError("out", out, "must be the path of a folder")
    steps = None if steps is None else check_count("steps", steps)
    count, seed = check_count("count", count, least=2), check_count("seed", seed, least=0)
    called, schedule = adapt(predict), choose_schedule(every, looks, steps, budget)
    known = as_task(task)
    reader = as_reader(circuits)
    with in_float64():
        exact = double(known)
    # What cannot be read is refused before the training begins.
    layers = () if reader is None else _read_layers(reader, exact)
    weights = None if out is None else Path(out) / WEIGHTS
    likeness = None if like is None else _describe(like, exact, layers, weights)
    with in_float64():
        evaluation = Evaluation(known, count, seed, lengths, pretraining, numbers)
    about = {
        "kind": "watch",
        "task": type(task).__name__,
        "count": count,
        "seed": seed,
        "lengths": evaluation.asked,
        "estimators": evaluation.estimators,
        "evaluation": evaluation.hash,
    }
    bayes = evaluation.bayes_loss
    further = {
        "schedule": schedule.words,
        "steps": steps,
        "bayes_loss": None if bayes is None else bayes.value,
    }
    record = Record(None if out is None else Path(out), about, further)
    return Watch(evaluation, called, schedule, record, log, strict, reader, likeness)


def _check_dtype(dtype: DTypeLike) -> str:
    with contextlib.suppress(TypeError):
        name = np.dtype(dtype).name
        if dtype is not None and name in ("float32", "float64"):
            return name
    raise InputError("dtype", dtype, "must be float32 or float64")


def _read_layers(reader: ReadCircuits, task: AbstractTask) -> tuple[Layer, ...]:
    """The layers as they are before the training; an `InputError` if they cannot be read."""
    try:
        layers = reader(task.labels)
        look_at_heads(layers, task)
    except InputError:
        raise
    except FileError as error:
        raise InputError(f"`circuits`: {error}") from error
    except Exception as error:  # of the function of somebody else
        words = shorten_text(error, 300)
        raise InputError(f"`circuits` raised {type(error).__name__}: {words}.") from error
    return layers


def _describe(
    like: Any, task: AbstractTask, layers: tuple[Layer, ...], weights: Path | None
) -> Likeness:
    """The config that describes a training, if its weights are read whole."""
    model = whole_model(layers) if layers else None
    if model is None:
        left_out = ", ".join(words for layer in layers for words in layer.left_out)
        raise InputError(
            "`like` needs `circuits=` that read one layer of attention which is the whole model"
            + (f": left out are {left_out}." if left_out else ".")
        )
    found = Likeness(like, task, weights)
    found.check(model)
    return found

"""From a config to the objects that it describes: task, model, risk."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from .. import tasks
from ..config import Config
from ..errors import InputError
from ..models import AbstractModel, Attention
from ..risks import AbstractRisk, risk
from ..runtime.precision import require_float64
from ..tasks import (
    AbstractTask,
    DecisionTree,
    FiniteTasks,
    HermiteRegression,
    LinearRegression,
    MultiTaskRegression,
    QuadraticRegression,
    SparseRegression,
    TaskLaw,
    TwoLayerReLU,
    check_covariance,
    in_context_in_weight,
)
from ._build_model import build_model
from ._held_out import TestSets


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The task, model and risks that a run starts from.

    **Fields:**

    - `attention`: the blind linear attention, or the singular values, that `model` is equivalent to
      at the start; None if there is no such model. Theory reads its weights.
    - `risk`: what is minimised.
    - `monitor`: the risk that is reported; it is `risk` unless steps are random.
    - `key`: the key of the random steps.
    - `tests`: draws the sequences of `monitor`, if it is a test set.

    **Example:**

    ```pycon
    >>> experiment = icl.experiment.prepare(icl.papers.study("linear/staircase"))
    >>> experiment.clock_unit, type(experiment.risk).__name__
    (1.0, 'BilinearRisk')
    ```
    """

    config: Config
    task: AbstractTask
    model: AbstractModel
    attention: Attention | None
    risk: AbstractRisk
    monitor: AbstractRisk
    key: PRNGKeyArray
    tests: TestSets | None = None

    def monitor_of(self, config: Config) -> AbstractRisk:
        """The reported risk of a run that differs from this one in its seed alone."""
        if self.tests is not None:
            return self.tests.draw(keys_of(config.seed).test)
        # A data set depends on the seed; an exact risk does not.
        return prepare(config).monitor if config.risk.kind == "minibatch" else self.monitor

    @property
    def clock_unit(self) -> float | None:
        """The time of gradient flow per unit of the run's clock; None if steps do not follow that
        flow."""
        flow = self.config.flow
        if flow.kind == "gradient_flow":
            return 1.0
        # A step is η ∂L/∂W and the flow is τ dW/dt = −½ ∂L/∂W. Adam and momentum take other steps.
        plain = flow.kind == "gradient_descent" or getattr(flow, "momentum", 1.0) == 0.0
        return 2 * flow.learning_rate if plain else None

    def floor(self) -> float | None:
        """The smallest loss that weights of this shape can reach; None if it is not known."""
        floor = _floor(self.monitor, self.model)
        # NaN where it depends on the numbers in a risk whether it is known.
        return None if floor is None or np.isnan(floor) else float(floor)


# Compiled once for all experiments of a shape.
@eqx.filter_jit
def _floor(risk: AbstractRisk, model: AbstractModel) -> Array | None:
    return risk.floor(model)


class Keys(NamedTuple):
    """The random keys of a run: for its initial weights, data set, steps and test set."""

    weights: PRNGKeyArray
    data: PRNGKeyArray
    steps: PRNGKeyArray
    test: PRNGKeyArray


def keys_of(seed: ArrayLike) -> Keys:
    """The keys that belong to a seed.

    **Example:**

    ```pycon
    >>> keys = icl.experiment.keys_of(3)
    >>> keys._fields
    ('weights', 'data', 'steps', 'test')
    ```
    """
    return Keys(*jr.split(jr.key(seed), 4))


def prepare(config: Config) -> Experiment:
    """Builds what the config describes; an `InputError` of one sentence says why it cannot.

    **Example:**

    ```pycon
    >>> experiment = icl.experiment.prepare(icl.papers.study("linear/staircase"))
    >>> experiment.task.dim, experiment.model.heads
    (4, 4)
    ```
    """
    require_float64("An experiment")
    keys = keys_of(config.seed)
    with naming(config, "task"):
        task = build_task(config)
    with naming(config, "model"):
        model, attention = build_model(config, keys.weights)
    with naming(config, "risk"):
        options = {k: v for k, v in config.risk if k != "kind"}
        chosen = risk(task, model, config.risk_kind, key=keys.data, **options)
        monitor, tests = _choose_monitor(config, task, model, chosen, keys)
    return Experiment(config, task, model, attention, chosen, monitor, keys.steps, tests)


def build_task(config: Config) -> AbstractTask:
    """The task alone. It checks what needs linear algebra, such as positive definiteness.

    **Example:**

    ```pycon
    >>> icl.experiment.build_task(icl.papers.study("linear/staircase")).dim
    4
    ```
    """
    with naming(config, "task"):
        settings = {k: v for k, v in config.task if k != "kind"}
        make = _TASKS.get(config.task.kind) or getattr(tasks, config.task.builds)
        return make(**settings)


def _linear(*, prior_variance: float | None, **settings) -> LinearRegression:
    if prior_variance is not None:
        dim = len(settings["eigenvalues"] or settings["covariance"])
        settings["prior_covariance"] = prior_variance * np.eye(dim)
    return LinearRegression(**settings)


def _mixture(*, fraction: float, fixed_weight, **settings) -> AbstractTask:
    return in_context_in_weight(_linear(**settings), fraction, fixed_weight)


def _finite(
    *,
    vectors,
    tasks: int | None,
    law: TaskLaw,
    clusters: int | None,
    spread: float,
    task_seed: int,
    test_covariance,
    test_variance: float | None,
    **settings,
) -> FiniteTasks:
    pretrained = _linear(**settings)
    if vectors is None:
        key = jr.key(task_seed)
        assert tasks is not None
        vectors = FiniteTasks.draw(key, tasks, pretrained, law, clusters, spread).vectors
    if test_variance is not None:
        test_covariance = test_variance * np.eye(pretrained.dim)
    if test_covariance is not None:
        # Checked as a prior, and named as the file does.
        check_covariance("test_covariance", test_covariance, dim=pretrained.dim, definite=False)
        settings |= {"prior_variance": None, "prior_covariance": test_covariance}
    return FiniteTasks(vectors, _linear(**settings))


def _multi(*, coordinates, inputs: int | None, **settings) -> MultiTaskRegression:
    return MultiTaskRegression(coordinates, inputs, **settings)


def _function(task_class: Callable[..., AbstractTask]) -> Callable[..., AbstractTask]:
    return lambda *, inputs, **settings: task_class(inputs, **settings)


_TASKS: dict[str, Callable[..., AbstractTask]] = {
    "linear_regression": _linear,
    "in_context_in_weight": _mixture,
    "finite_tasks": _finite,
    "multi_task": _multi,
    "quadratic": _function(QuadraticRegression),
    "sparse": _function(SparseRegression),
    "two_layer_relu": _function(TwoLayerReLU),
    "decision_tree": _function(DecisionTree),
    "hermite": _function(HermiteRegression),
}


def _choose_monitor(
    config: Config, task, model, chosen: AbstractRisk, keys: Keys
) -> tuple[AbstractRisk, TestSets | None]:
    """The risk that is reported, exact if possible, and what draws its sequences, if it has
    some."""
    if not config.stochastic:
        return chosen, None
    if config.risk.kind == "minibatch":
        sequences = getattr(config.risk, "sequences")
        return risk(task, model, "dataset", sequences=sequences, key=keys.data), None
    if config.exact_exists:
        return risk(task, model, "exact"), None
    tests = TestSets.of(config, task, model)
    return tests.draw(keys.test), tests


@contextlib.contextmanager
def naming(config: Config, section: str) -> Iterator[None]:
    """Turns an error of the library into one that names the setting as the file does.

    **Example:**

    ```pycon
    >>> from iclflow.errors import InputError
    >>> config = icl.papers.study("linear/staircase")
    >>> try:
    ...     with icl.experiment.naming(config, "task"):
    ...         raise InputError("noise", -1, "must not be negative")
    ... except InputError as error:
    ...     print(error)
    `task.noise` = -1: must not be negative.
    ```
    """
    try:
        yield
    except InputError as error:
        if error.field not in type(getattr(config, section)).model_fields:
            raise
        raise error.renamed(f"{section}.{error.field}") from None
    except (ValueError, np.linalg.LinAlgError) as error:
        raise InputError(" ".join(str(error).split())) from None

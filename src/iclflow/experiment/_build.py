"""From a config to the objects that it describes: task, model, risk."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..config import Config, InputError
from ..models import (
    AbstractModel,
    ConvolutionalLinear,
    FullMergedKQ,
    FullSeparateKQ,
    MergedKQ,
    SeparateKQ,
    TwoLayerLinear,
)
from ..precision import require_float64
from ..risks import AbstractRisk, risk
from ..tasks import AbstractTask, LinearRegression, in_context_in_weight

# Softmax attention has no exact loss to report while it trains on fresh sequences: it is
# measured on so many that it never trains on.
TEST_SEQUENCES = 4096


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that a run starts from.

    **Fields:**

    - `attention`: the reduced attention whose weights `model` starts with; theory reads these.
    - `risk`: what is minimised.
    - `monitor`: what is reported, the same unless steps are random.
    - `key`: of the random stream of the steps.
    """

    config: Config
    task: AbstractTask
    model: AbstractModel
    attention: MergedKQ | SeparateKQ
    risk: AbstractRisk
    monitor: AbstractRisk
    key: PRNGKeyArray

    def floor(self) -> float | None:
        """The smallest loss that weights of this shape can reach, where it is known."""
        floor = eqx.filter_jit(lambda risk, model: risk.floor(model))(self.monitor, self.model)
        return None if floor is None else float(floor)


def prepare(config: Config) -> Experiment:
    """Builds what the config describes; an `InputError` of one sentence where it cannot be."""
    require_float64("An experiment")
    key_weights, key_data, key_steps, key_test = jr.split(jr.key(config.seed), 4)
    with naming(config, "task"):
        task = build_task(config)
    with naming(config, "model"):
        attention = _attention(config, task.dim, key_weights)
        model = _model(config, attention)
    with naming(config, "risk"):
        options = {k: v for k, v in config.risk if k != "kind"}
        chosen = risk(task, model, config.risk.kind, key=key_data, **options)
        monitor = _monitor(config, task, model, chosen, key_data, key_test)
    return Experiment(config, task, model, attention, chosen, monitor, key_steps)


def build_task(config: Config) -> AbstractTask:
    """The task alone. It checks what needs linear algebra, such as positive definiteness."""
    settings = dict(config.task)
    kind = settings.pop("kind")
    mixture = {
        name: settings.pop(name) for name in ("fraction", "fixed_weight") if name in settings
    }
    with naming(config, "task"):
        task = LinearRegression(**settings)
        return in_context_in_weight(task, **mixture) if kind == "in_context_in_weight" else task


def _attention(config: Config, dim: int, key: PRNGKeyArray) -> MergedKQ | SeparateKQ:
    settings = config.model
    options: dict[str, Any] = {
        name: getattr(settings, name)
        for name in ("scale", "scheme", "normaliser", "activation", "self_attention")
        if hasattr(settings, name)
    }
    if settings.kind in ("merged", "two_layer"):
        return MergedKQ.init(key, dim, settings.heads, **options)
    return SeparateKQ.init(key, dim, settings.heads, settings.widest_rank, **options)


def _model(config: Config, attention: MergedKQ | SeparateKQ) -> AbstractModel:
    kind, full = config.model.kind, getattr(config.model, "form", "reduced") == "full"
    if isinstance(attention, MergedKQ):
        if kind == "two_layer":
            return TwoLayerLinear.from_attention(attention)
        return FullMergedKQ.embed(attention) if full else attention
    if kind == "convolutional":
        return ConvolutionalLinear.from_attention(attention)
    return FullSeparateKQ.embed(attention) if full else attention


def _monitor(config: Config, task, model, chosen: AbstractRisk, key_data, key_test) -> AbstractRisk:
    """The risk that is reported: without noise where that can be had."""
    if not config.stochastic:
        return chosen
    if config.risk.kind == "minibatch":
        sequences = getattr(config.risk, "sequences")
        return risk(task, model, "dataset", sequences=sequences, key=key_data)
    if config.model.softmax:
        return risk(task, model, "dataset", sequences=TEST_SEQUENCES, key=key_test)
    try:
        return risk(task, model, "exact")
    except ValueError:  # more features than moments are kept for
        return risk(task, model, "dataset", sequences=TEST_SEQUENCES, key=key_test)


@contextlib.contextmanager
def naming(config: Config, section: str) -> Iterator[None]:
    """Turns an error of the library into one that names the setting as the file does."""
    keys = set(type(getattr(config, section)).model_fields)
    try:
        yield
    except InputError:
        raise
    except (ValueError, np.linalg.LinAlgError) as error:
        text = re.sub(
            r"`(\w+)`",
            lambda match: f"`{section}.{match[1]}`" if match[1] in keys else match[0],
            " ".join(str(error).split()),
        )
        raise InputError(text) from None

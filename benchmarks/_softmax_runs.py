"""The training runs of softmax attention that are timed, by the fused pass where there is one."""

from collections.abc import Callable
from typing import NamedTuple

import jax.random as jr

from iclflow.flows import Ensemble, SaveEvenly, adam, adam_rule, descend_ensemble, init_many
from iclflow.models import AbstractModel, Attention
from iclflow.risks import AbstractRisk, IntegratedRisk, SampledRisk
from iclflow.risks.fused import EngineName
from iclflow.tasks import isotropic
from iclflow.trajectory import Trajectory

LEARNING_RATE = 1e-3


class Size(NamedTuple):
    """Of a step of training; the defaults are those of arXiv 2503.12734, for one model."""

    dim: int = 5
    heads: int = 2
    context: int = 40
    models: int = 1
    batch: int = 256
    noise: float = 0.1
    engine: EngineName = "auto"

    def task(self):
        return isotropic(self.dim, self.context, self.noise)

    def risk(self) -> SampledRisk:
        return SampledRisk(self.task(), self.batch, precision="float32", engine=self.engine)

    def model(self) -> Attention:
        return Attention.factored(jr.key(0), self.dim, self.heads)

    def ensemble(self) -> Attention:
        """All models, along a leading axis."""
        keys = jr.split(jr.key(0), self.models)
        models = init_many(Attention.factored, keys, dim=self.dim, heads=self.heads)
        assert isinstance(models, Attention)
        return models


def together(size: Size, steps: int) -> Callable[[], Ensemble]:
    """Plain training of all models as one program."""
    models, risk, keys = size.ensemble(), size.risk(), jr.split(jr.key(1), size.models)
    return lambda: descend_ensemble(
        models, risk, adam_rule(LEARNING_RATE), steps, keys=keys, save=SaveEvenly(2), progress=False
    )


def plain(size: Size, steps: int) -> Callable[[], Trajectory]:
    """Plain training of one model."""
    return _trained(size.model(), size.risk(), steps)


def integrated(size: Size, steps: int) -> Callable[[], Trajectory]:
    """Training of one model with merged weights, labels integrated out."""
    model = Attention.merged(
        jr.key(0), size.dim, size.heads, 0.1, activation="softmax", self_attention=False
    )
    return _trained(model, IntegratedRisk(size.task(), size.batch, "float32", size.engine), steps)


def _trained(model: AbstractModel, risk: AbstractRisk, steps: int) -> Callable[[], Trajectory]:
    rate, key = LEARNING_RATE, jr.key(1)
    return lambda: adam(model, risk, rate, steps, key=key, save=SaveEvenly(2), progress=False)

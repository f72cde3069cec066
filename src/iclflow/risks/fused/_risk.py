"""A batch that is never stored: its loss and gradient are made in one pass over its tokens."""

from functools import partial
from typing import ClassVar, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from ...models import AbstractAttention, AbstractModel, AbstractMultiAttention
from .._batch import AbstractBatchRisk, AbstractSampledRisk, as_dtype, some_key, widest
from . import _ffi
from ._gradient import gathered
from ._law import Attention, WhiteLaw, words_of
from ._pass import Numbers, work_of
from ._spec import Spec

# Operations that a kernel may be written out to: beyond, compiling it takes minutes.
_LONGEST_KERNEL = 30_000


class FusedBatchRisk(AbstractBatchRisk):
    """The mean loss of a batch whose every number is a function of two words.

    The loss and its gradient come from one fused pass: a kernel on a GPU, vector instructions on a
    CPU. (The losses of single sequences come from the same batch, made and stored.) It has first
    derivatives in the weights: for others, and for those in the task, take the mean of `losses`.
    """

    kind: ClassVar[str] = "sampled"

    words: UInt32[Array, "2"]
    law: WhiteLaw
    count: int = eqx.field(static=True)
    drawn: bool = eqx.field(static=True)

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        return self.law.batch(self.words, self.count, self.drawn).evaluate(model)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        single = as_attention(as_dtype(model, jnp.float32))
        spec = self.law.spec(single, self.drawn, self.count)
        # As in `losses`: GPUs may round the factors of float32 products.
        with jax.default_matmul_precision("highest"):
            circuits = self.law.circuits(single, self.drawn)
        loss: Array = _mean_loss(spec, self.law.numbers(self.words, *circuits, self.drawn))
        constant = 0.0 if self.drawn else jnp.sum(self.law.query_noise)
        return (loss + constant).astype(widest(model))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_loss(spec: Spec, numbers: Numbers) -> Float[Array, ""]:
    return _fused(spec, numbers)[0]


def _with_slopes(spec: Spec, numbers: Numbers):
    loss, of_kq, of_ov = _fused(spec, numbers)
    return loss, (numbers, of_kq, of_ov)


def _pulled_back(spec: Spec, kept, rate):
    """The circuits have slopes, which were found with the loss; the task has none."""
    numbers, of_kq, of_ov = kept
    unknown = Numbers(*map(_unknown, numbers))
    return (unknown._replace(kq=rate * of_kq, ov=rate * of_ov),)


_mean_loss.defvjp(_with_slopes, _pulled_back)


def _unknown(x: Array) -> Array | np.ndarray:
    """A slope that is not computed: NaN, so that nobody takes it for zero."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.full_like(x, jnp.nan)
    return np.zeros(x.shape, jax.dtypes.float0)


def _fused(spec: Spec, numbers: Numbers):
    """The mean loss and its slopes in both circuits, by the fastest pass that there is here."""
    if jax.default_backend() == "cpu":  # then there is no other device, and nothing else to trace
        return _on_cpu(spec)(numbers)
    return jax.lax.platform_dependent(
        numbers, cpu=_on_cpu(spec), cuda=_on_gpu(spec), default=_in_xla(spec)
    )


class AbstractFusedRisk(AbstractSampledRisk):
    """A sampled risk with a fused pass for some models; `white` is None where it has none."""

    labels_drawn: ClassVar[bool]

    white: eqx.AbstractVar[WhiteLaw | None]

    def randomness(self, key: PRNGKeyArray | None, model: AbstractModel | None = None):
        """Two words where there is a pass for `model`, else a batch."""
        parts = self.white, model, self.labels_drawn, self.batch
        if can_be_fused(*parts):
            return words_of(some_key(key))
        return super().randomness(key, model)

    def on(self, randomness) -> AbstractBatchRisk:
        if isinstance(randomness, AbstractBatchRisk):
            return randomness
        assert self.white is not None
        return FusedBatchRisk(randomness, self.white, self.batch, self.labels_drawn)


def has_a_pass(model: AbstractModel | None) -> TypeGuard[Attention]:
    """Whether there is a fused pass for models like this one, on some machine."""
    if not isinstance(model, Attention):
        return False
    return model.activation == "softmax" and not model.self_attention


def can_be_fused(
    law: WhiteLaw | None, model: AbstractModel | None, drawn: bool, batch: int
) -> bool:
    """Whether there is a pass for `model` here that is faster than a stored batch."""
    if law is None or not has_a_pass(model) or not (drawn or model.label_blind):
        return False
    if not law.fits(model):  # what is stored says what is wrong with it
        return False
    backend = jax.default_backend()
    if backend == "cpu":
        return _ffi.available()
    return backend == "gpu" and work_of(law.spec(model, drawn, batch)) <= _LONGEST_KERNEL


def as_attention(model: AbstractModel) -> AbstractAttention | AbstractMultiAttention:
    assert isinstance(model, Attention)
    return model


def _in_xla(spec: Spec):
    from ._gradient import xla_lanes

    return lambda numbers: gathered(spec, xla_lanes(spec, numbers))


def _on_gpu(spec: Spec):
    def run(numbers: Numbers):
        from ._pallas import kernel_sums

        return kernel_sums(spec, numbers)

    return run


def _on_cpu(spec: Spec):
    if not _ffi.available():
        return _in_xla(spec)

    def run(numbers: Numbers):
        sums = _ffi.summed(spec)(numbers) / spec.batch
        end = 1 + numbers.kq.size
        return sums[0], sums[1:end].reshape(numbers.kq.shape), sums[end:].reshape(numbers.ov.shape)

    return run

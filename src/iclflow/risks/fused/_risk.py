"""A batch that is never stored: its loss and gradient are made in one pass over its tokens."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from ...models import AbstractModel, Attention
from .._batch import AbstractBatchRisk, AbstractSampledRisk, as_dtype, some_key, widest
from .._check import is_softmax_over_context
from . import _ffi
from ._gradient import gather, split_sums, xla_lanes
from ._law import WhiteLaw, words_of
from ._pass import Numbers, held_of, work_of
from ._spec import EngineName, Spec

# The most operations of an unrolled kernel, and the most numbers that a lane holds at a time: a
# thread has 255 registers, and a kernel that needs more takes long to compile. On an H200 it took
# 4 s with 150 numbers (d = 5, eight heads), 70 s with 196 (d = 20, two heads), about two minutes
# with 224 (d = 16, four heads), and more than four with 428 (d = 16, eight heads).
_LONGEST_KERNEL, _MOST_AT_A_TIME = 30_000, 250


class FusedBatchRisk(AbstractBatchRisk):
    """The mean loss of a batch whose every number is a function of two words.

    The loss and its gradient come from one fused pass: a kernel on a GPU, vector instructions on a
    CPU. (The losses of single sequences come from the same batch, stored.) It has first derivatives
    in the weights; for higher ones, and for those in the task, use a risk in float64.
    """

    words: UInt32[Array, "2"]
    law: WhiteLaw
    count: int = eqx.field(static=True)
    drawn: bool = eqx.field(static=True)
    engine: EngineName = eqx.field(static=True, default="auto")

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        return self.law.batch(self.words, self.count, self.drawn).evaluate(model)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        single = _as_attention(as_dtype(model, jnp.float32))
        spec = self.law.spec(single, self.drawn, self.count, self.engine)
        # As in `losses`: GPUs may round the factors of float32 products.
        with jax.default_matmul_precision("highest"):
            circuits = self.law.circuits(single, self.drawn)
        loss: Array = _mean_loss(spec, self.law.numbers(self.words, *circuits, self.drawn))
        constant = 0.0 if self.drawn else jnp.sum(self.law.moments.query_noise)
        return (loss + constant).astype(widest(model))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_loss(spec: Spec, numbers: Numbers) -> Float[Array, ""]:
    return _loss_with_slopes(spec, numbers)[0]


def _forward(spec: Spec, numbers: Numbers):
    loss, of_kq, of_ov = _loss_with_slopes(spec, numbers)
    return loss, (numbers, of_kq, of_ov)


def _backward(spec: Spec, kept: tuple[Numbers, Array, Array], rate: Array) -> tuple[Numbers]:
    """The slopes in the circuits, from the forward pass; those in the task are unknown."""
    numbers, of_kq, of_ov = kept
    unknown = Numbers(*map(_unknown_slope, numbers))
    return (unknown._replace(kq=rate * of_kq, ov=rate * of_ov),)


_mean_loss.defvjp(_forward, _backward)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _loss_with_slopes(spec: Spec, numbers: Numbers):
    return loss_and_slopes(spec, numbers)


@_loss_with_slopes.defjvp
def _refuse_derivative(spec: Spec, primals: tuple, tangents: tuple):
    raise TypeError(
        "`precision` = 'float32': such a risk has first derivatives, by reverse mode, and no "
        "others. Choose 'float64', and `jax.jacrev` twice for second ones."
    )


def _unknown_slope(x: Array) -> Array | np.ndarray:
    """A slope that is not computed: NaN, so that it cannot be mistaken for zero."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.full_like(x, jnp.nan)
    return np.zeros(x.shape, jax.dtypes.float0)


def loss_and_slopes(spec: Spec, numbers: Numbers):
    """The mean loss and its slopes in both circuits, by the fastest pass that there is here."""
    if jax.default_backend() == "cpu":  # there is no other device: do not trace the GPU pass
        return _on_cpu(spec)(numbers)
    return jax.lax.platform_dependent(numbers, cuda=_on_gpu(spec), default=_in_xla(spec))


class AbstractFusedRisk(AbstractSampledRisk):
    """A sampled risk with a fused pass for some models; `white` is None where it has none."""

    labels_drawn: ClassVar[bool]

    white: eqx.AbstractVar[WhiteLaw | None]
    engine: eqx.AbstractVar[EngineName]

    def randomness(self, key: PRNGKeyArray | None, model: AbstractModel | None = None):
        """Two words where there is a pass for `model`, else a batch."""
        if can_be_fused(self.white, model, self.labels_drawn, self.batch, self.engine):
            return words_of(some_key(key))
        return super().randomness(key, model)

    def on(self, randomness: AbstractBatchRisk | UInt32[Array, "2"]) -> AbstractBatchRisk:
        if isinstance(randomness, AbstractBatchRisk):
            return randomness
        assert self.white is not None
        # Two words instead of a batch: the pass makes everything from them.
        parts = self.white, self.batch, self.labels_drawn, self.engine
        return FusedBatchRisk(randomness, *parts)

    def steps(
        self,
        model_of: Callable[[Array], AbstractModel],
        update: Callable,
        constants: Any,
        weights: Float[Array, " n"],
        memory: Any,
        models: int,
    ) -> Callable | None:
        if self.engine != "triton_steps" or not has_triton():
            return None
        model = eqx.filter_eval_shape(model_of, weights)
        if not can_be_fused(self.white, model, self.labels_drawn, self.batch):
            return None
        from ._steps import steps_in_kernel

        assert self.white is not None
        spec = self.white.spec(_as_attention(model), self.labels_drawn, self.batch)
        return steps_in_kernel(
            self.white,
            spec,
            model_of,
            update,
            constants,
            weights,
            memory,
            models=models,
            interpret=jax.default_backend() == "cpu",
        )


def can_be_fused(
    law: WhiteLaw | None,
    model: AbstractModel | None,
    drawn: bool,
    batch: int,
    engine: EngineName = "auto",
) -> bool:
    """Whether there is a pass for `model` here that is faster than a stored batch."""
    if law is None or not is_softmax_over_context(model) or not (drawn or model.blind):
        return False
    if not law.fits(model):  # a stored batch raises an error that says why
        return False
    backend = jax.default_backend()
    if backend == "cpu":
        return _ffi.available()
    return _on_card(engine) and compiles_soon(law.spec(model, drawn, batch))


def compiles_soon(spec: Spec) -> bool:
    """Whether a kernel is compiled in a minute or two."""
    return work_of(spec) <= _LONGEST_KERNEL and held_of(spec) <= _MOST_AT_A_TIME


@cache
def has_triton() -> bool:
    """Whether this version of JAX can compile the kernel: later ones drop Triton."""
    try:
        from . import _pallas  # noqa: F401
    except (ImportError, AttributeError):
        return False
    return True


def _on_card(engine: EngineName) -> bool:
    """Whether this machine computes on a GPU for which there is a kernel."""
    return jax.default_backend() == "gpu" and (engine == "mosaic_gpu" or has_triton())


def _as_attention(model: AbstractModel) -> Attention:
    assert isinstance(model, Attention)
    return model


def _in_xla(spec: Spec):
    return lambda numbers: gather(spec, xla_lanes(spec, numbers))


def _on_gpu(spec: Spec):
    def run(numbers: Numbers):
        if spec.engine == "mosaic_gpu":
            from ._mosaic import kernel_sums
        else:
            from ._pallas import kernel_sums
        return kernel_sums(spec, numbers)

    return run


def _on_cpu(spec: Spec):
    if not _ffi.available():
        return _in_xla(spec)

    return lambda numbers: split_sums(spec, numbers, _ffi.batch_sums(spec)(numbers))

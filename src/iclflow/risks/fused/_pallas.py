"""The fused pass as a GPU kernel: one thread per sequence, everything in registers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from ._gradient import gather, split_sums
from ._pass import Numbers, Slopes, lanes_of
from ._philox import PLAIN, Functions
from ._spec import Spec, has_few_sums

# Sequences, and so threads, of one program: few, so that a single model fills the GPU too.
_LANES = 64


def _instruction(name: str):
    """One GPU instruction on every lane: right to about 1e-6, and many times faster than a function
    that is right to the last bit."""

    def function(x: Array) -> Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return triton.elementwise_inline_asm(
            f"{name} $0, $1;", args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[shape]
        )[0]

    return function


FAST = Functions(*map(_instruction, ("lg2.approx.f32", "sqrt.approx.f32", "cos.approx.f32",
                                     "sin.approx.f32")))  # fmt: skip


def kernel_sums(
    spec: Spec, numbers: Numbers, *, interpret: bool = False
) -> tuple[Float[Array, ""], Float[Array, "H A D"], Float[Array, "H J T"]]:
    """The mean loss of a batch, and its slopes in the key-query and the output-value circuit."""
    if not has_few_sums(spec):
        return gather(spec, _call_kernel(spec, numbers, interpret, False)[:, : spec.batch])
    return split_sums(spec, numbers, jnp.sum(_call_kernel(spec, numbers, interpret, True), 1))


def _call_kernel(spec: Spec, numbers: Numbers, interpret: bool, summed: bool) -> Array:
    """The results of all programs: sums, (numbers, programs), or rows of `Slopes` over lanes."""
    lanes = min(_LANES, pl.next_power_of_2(spec.batch))
    programs = pl.cdiv(spec.batch, lanes)
    rows = 1 + numbers.kq.size + numbers.ov.size if summed else sum(Slopes.rows(spec))
    width = 1 if summed else lanes
    functions = PLAIN if interpret else FAST

    def kernel(*refs: Any) -> None:
        *read, out = refs
        place = pl.program_id(0) * lanes + jnp.arange(lanes)
        slopes = lanes_of(spec, Numbers(*read), place.astype(jnp.uint32), functions)
        if not summed:
            for row, value in enumerate(slopes.flat()):
                out[row, :] = value
            return
        for row, value in enumerate(counted(spec, slopes, place)):
            out[row, 0] = jnp.sum(value)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((rows, programs * width), jnp.float32),
        grid=(programs,),
        in_specs=[pl.BlockSpec(x.shape, partial(whole_block, x.ndim)) for x in numbers],
        out_specs=pl.BlockSpec((rows, width), lambda program: (0, program)),
        compiler_params=triton.CompilerParams(num_warps=max(1, lanes // 32), num_stages=1),
        interpret=interpret,
        name="iclflow_fused_pass",
    )
    return call(*numbers)


def counted(spec: Spec, slopes: Slopes, place: Array) -> Iterator[Array]:
    """What is summed over the lanes of a program: the loss, then slopes of both circuits.

    **Arguments:**

    - `place`: the number of each lane's sequence; those beyond the batch do not count.
    """
    for value in slopes.products(spec):
        yield jnp.where(place < spec.batch, value, 0.0) if spec.batch % place.size else value


def whole_block(count: int, program: Any) -> tuple[int, ...]:
    """The place of a block that is a whole array of `count` axes: of its index map."""
    return (0,) * count

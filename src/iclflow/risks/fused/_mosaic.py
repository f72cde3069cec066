"""The fused pass as a GPU kernel of Pallas Mosaic GPU, for Hopper and newer.

The lines of the pass are those of every other kernel. JAX has announced that Triton will leave
Pallas; this is what stays.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as mosaic
from jaxtyping import Array, Float

from ...errors import InputError
from ._gradient import gather
from ._pass import Numbers, Slopes, lanes_of
from ._philox import Functions
from ._spec import Spec

# The threads of a warpgroup, which is what a program is here, with a sequence each.
_LANES = 128


def _root(x: Array) -> Array:
    """A root by the instruction for its inverse: not every version of JAX has the other here."""
    return x * jax.lax.rsqrt(jnp.maximum(x, 1e-30))


# With `approx_math` each is one instruction.
FAST = Functions(jnp.log2, _root, jnp.cos, jnp.sin)


def kernel_sums(
    spec: Spec, numbers: Numbers, *, interpret: Any = None
) -> tuple[Float[Array, ""], Float[Array, "H A D"], Float[Array, "H J T"]]:
    """The mean loss of a batch, and its slopes in the key-query and the output-value circuit.

    **Arguments:**

    - `interpret`: how to interpret the kernel instead of compiling it; see `mosaic.kernel`.
    """
    if interpret is None and jax.__version_info__ < (0, 11):
        raise InputError("engine", "mosaic_gpu", "needs JAX 0.11 or newer")
    programs, rows = pl.cdiv(spec.batch, _LANES), sum(Slopes.rows(spec))
    layout = mosaic.Layout.WG_STRIDED((_LANES,), vec_size=1)

    def kernel(*refs: Any) -> None:
        *read, out = refs
        program = jax.lax.axis_index("programs")
        lane = jnp.arange(_LANES, dtype=jnp.int32)
        if interpret is None:  # a compiled array has a layout, too
            lane = mosaic.layout_cast(lane, layout)
        place = program.astype(jnp.int32) * _LANES + lane
        slopes = lanes_of(spec, Numbers(*read), place.astype(jnp.uint32), FAST)
        for row, value in enumerate(slopes.flat()):
            out[program, row, :] = value

    call = mosaic.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((programs, rows, _LANES), jnp.float32),
        grid=(programs,),
        grid_names=("programs",),
        compiler_params=mosaic.CompilerParams(approx_math=True),
        interpret=interpret,
    )
    lanes = jnp.moveaxis(call(*numbers), 0, 1).reshape(rows, programs * _LANES)
    return gather(spec, lanes[:, : spec.batch])

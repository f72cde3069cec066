"""Random numbers that are a pure function of where they are used: Philox4x32-10.

A word depends on a key and on a counter alone, so that a pass over many sequences can make the
numbers of any token at any moment, in any order, on any device, and need not keep them. The
generator is that of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). All that
is used here is arithmetic on arrays: the same lines run in a compiled program and in a kernel.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
# Words for lengths of contexts are told from those for normals by the third word of the counter.
NUMBERS, LENGTHS = 0, 1


def philox(key: tuple[Array, Array], sequence: Array, block: Array, purpose: int = NUMBERS):
    """Four independent words of 32 bits for each counter (sequence, block, purpose, 0)."""
    zero = jnp.zeros_like(sequence + block)
    x0, x1, x2, x3 = sequence + zero, block + zero, zero + np.uint32(purpose), zero
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(x0, MULTIPLIERS[0])
        high1, low1 = _product(x2, MULTIPLIERS[1])
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = k0 + np.uint32(WEYL[0]), k1 + np.uint32(WEYL[1])
    return x0, x1, x2, x3


def uniform(word: Array) -> Array:
    """A number in (0, 1] from the 24 upper bits of a word, in float32."""
    upper = (word >> np.uint32(8)).astype(jnp.int32).astype(jnp.float32)
    return upper * np.float32(2.0**-24) + np.float32(2.0**-25)


class Functions(NamedTuple):
    """What normals are made with; a kernel has faster ones.

    **Fields:**

    - `log2`, `root`: of a positive number.
    - `cos`, `sin`: of an angle between −π and π.
    """

    log2: Callable[[Array], Array]
    root: Callable[[Array], Array]
    cos: Callable[[Array], Array]
    sin: Callable[[Array], Array]


PLAIN = Functions(jnp.log2, jnp.sqrt, jnp.cos, jnp.sin)


def normal_pair(first: Array, second: Array, functions: Functions = PLAIN) -> tuple[Array, Array]:
    """Two independent standard normals from two words, by the method of Box and Muller.

    They end at 5.9 standard deviations.
    """
    square = np.float32(-2.0 * math.log(2.0)) * functions.log2(uniform(first))
    radius = functions.root(square)
    angle = second.astype(jnp.int32).astype(jnp.float32) * np.float32(math.pi * 2.0**-31)
    return radius * functions.cos(angle), radius * functions.sin(angle)


def four_normals(
    words: Sequence[Any], functions: Functions = PLAIN
) -> tuple[Array, Array, Array, Array]:
    """Four independent standard normals from four words."""
    first = normal_pair(words[0], words[1], functions)
    return *first, *normal_pair(words[2], words[3], functions)


def _product(word: Array, factor: int) -> tuple[Array, Array]:
    """The upper and the lower word of a product of 64 bits."""
    if jnp.result_type(jnp.uint64) == jnp.uint64:
        wide = word.astype(jnp.uint64) * np.uint64(factor)
        return (wide >> np.uint64(32)).astype(jnp.uint32), wide.astype(jnp.uint32)
    # Without words of 64 bits: in halves of 16 bits.
    low, high = word & np.uint32(0xFFFF), word >> np.uint32(16)
    f_low, f_high = np.uint32(factor & 0xFFFF), np.uint32(factor >> 16)
    middle = high * f_low + ((low * f_low) >> np.uint32(16))
    other = low * f_high + (middle & np.uint32(0xFFFF))
    upper = high * f_high + (middle >> np.uint32(16)) + (other >> np.uint32(16))
    return upper, word * np.uint32(factor)

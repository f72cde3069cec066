"""Random words, normals and exponentials on rows of lanes, compiled by Numba.

The polynomials are those of the Cephes library (S. Moshier), good to one or two units in the last
place of a float32. A float is taken apart and put together by its bits. Numba gives the sum of two
whole numbers of 32 bits 64 of them, and half as many fit into a vector: hence `i32(…)` around each.
"""

import inspect

import numba as nb
import numpy as np
from numba.extending import intrinsic

from ._numba_compiled import compiled
from ._philox import MULTIPLIERS, ROUNDS, WEYL

# Sequences side by side. With 32, finding the place of a row takes longer than computing it; with
# 64 the pass is 1.8 times as fast, and what a round touches still stays in near caches.
LANES = 64
f32, i32, u32, u64 = np.float32, np.int32, np.uint32, np.uint64
_M0, _M1 = u64(MULTIPLIERS[0]), u64(MULTIPLIERS[1])
_W0, _W1 = u32(WEYL[0]), u32(WEYL[1])


def _with_bits_of(target):
    """A function that reads the bits of a number as one of another type."""

    def read(typing, number):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(number), generate

    return intrinsic(inspect.unwrap(read))


_bits_of = _with_bits_of(nb.types.int32)
_float_of = _with_bits_of(nb.types.float32)


@compiled
def fill_words(words, key0, key1, first_lane, block, purpose):
    """Four rows of Philox words: `_philox.philox` on LANES sequences."""
    shift = u64(32)
    for lane in range(LANES):
        x0 = u32(first_lane + lane)
        x1 = u32(block)
        x2 = u32(purpose)
        x3 = u32(0)
        k0 = u32(key0)
        k1 = u32(key1)
        for _ in range(ROUNDS):
            wide0 = u64(x0) * _M0
            wide1 = u64(x2) * _M1
            x0 = u32(u32(wide1 >> shift) ^ x1 ^ k0)
            x1 = u32(wide1)
            x2 = u32(u32(wide0 >> shift) ^ x3 ^ k1)
            x3 = u32(wide0)
            k0 = u32(k0 + _W0)
            k1 = u32(k1 + _W1)
        words[0, lane] = x0
        words[1, lane] = x1
        words[2, lane] = x2
        words[3, lane] = x3


@compiled
def uniform_of(word):
    """A number in (0, 1]: `_philox.uniform`."""
    return f32(i32(word >> u32(8))) * f32(2.0**-24) + f32(2.0**-25)


@compiled
def fill_normals(out, row, words):
    """Four rows of standard normals, from `row` on: `_philox.four_normals`."""
    for pair in range(2):
        for lane in range(LANES):
            bits = _bits_of(uniform_of(words[2 * pair, lane]))
            # A share is 2^e · (1 + f), with 1 + f between √½ and √2.
            exponent = i32(i32(bits - i32(0x3F3504F3)) >> i32(23))
            f = _float_of(i32(bits - i32(exponent << i32(23)))) - f32(1.0)
            p = f32(7.0376836292e-2)
            p = p * f + f32(-1.1514610310e-1)
            p = p * f + f32(1.1676998740e-1)
            p = p * f + f32(-1.2420140846e-1)
            p = p * f + f32(1.4249322787e-1)
            p = p * f + f32(-1.6668057665e-1)
            p = p * f + f32(2.0000714765e-1)
            p = p * f + f32(-2.4999993993e-1)
            p = p * f + f32(3.3333331174e-1)
            log = f + (p * f - f32(0.5)) * (f * f)
            log = log + f32(exponent) * f32(0.6931471805599453)
            radius = np.sqrt(max(f32(-2.0) * log, f32(0.0)))
            # The angle in quarter turns, and what is left of it beside the nearest whole one.
            turn = f32(i32(words[2 * pair + 1, lane])) * f32(2.0**-30)
            nearest = i32(np.floor(turn + f32(0.5)))
            x = (turn - f32(nearest)) * f32(1.5707963267948966)
            y = x * x
            sine = f32(-1.9515295891e-4)
            sine = sine * y + f32(8.3321608736e-3)
            sine = sine * y + f32(-1.6666654611e-1)
            sine = sine * y * x + x
            cosine = f32(2.443315711809948e-5)
            cosine = cosine * y + f32(-1.388731625493765e-3)
            cosine = cosine * y + f32(4.166664568298827e-2)
            cosine = cosine * y * y - f32(0.5) * y + f32(1.0)
            odd = i32(nearest & i32(1))
            first = sine if odd else cosine
            second = cosine if odd else sine
            first = -first if i32(i32(nearest + i32(1)) & i32(2)) else first
            second = -second if i32(nearest & i32(2)) else second
            out[row + 2 * pair, lane] = radius * first
            out[row + 2 * pair + 1, lane] = radius * second


@compiled
def exponentials(row, largest):
    """e^(row − largest) in place; the differences are at most 0."""
    for lane in range(LANES):
        x = max(row[lane] - largest[lane], f32(-87.0)) * f32(1.4426950408889634)
        whole = np.floor(x + f32(0.5))
        f = (x - whole) * f32(0.6931471805599453)
        p = f32(1.9875691500e-4)
        p = p * f + f32(1.3981999507e-3)
        p = p * f + f32(8.3334519073e-3)
        p = p * f + f32(4.1665795894e-2)
        p = p * f + f32(1.6666665459e-1)
        p = p * f + f32(5.0000001201e-1)
        scale = _float_of(i32(i32(i32(whole) + i32(127)) << i32(23)))
        row[lane] = (p * f * f + f + f32(1.0)) * scale

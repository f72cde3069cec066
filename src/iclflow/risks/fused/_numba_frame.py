"""How XLA calls a function that Numba has compiled.

XLA hands a handler one pointer, to a frame of words of 64 bits; its layout is fixed by XLA's
interface for foreign functions (`xla/ffi/api/c_api.h`, which every copy of jaxlib brings along).
Once for every handler it asks for the version of that interface, instead of a computation.
"""

import inspect

import numba as nb
import numpy as np
from numba import carray  # pyright: ignore[reportPrivateImportUsage]
from numba.core import cgutils
from numba.extending import intrinsic

from ._numba_compiled import compiled

# Places in a frame, in words: an extension, the interface, arguments and results.
_EXTENSION, _INTERFACE, _STAGE, _ARGUMENTS, _RESULTS = 1, 2, 4, 9, 14
_EXECUTE, _METADATA = 3, 1
# Versions 0.3 to 0.5 of the interface, those of jaxlib 0.10 to 0.12, have this layout. (A version
# is a word with the second number in its upper half.)
_KNOWN = (3 << 32, 4 << 32, 5 << 32)
# Places in an extension and in what it points to, in an interface, and in a buffer.
_TYPE, _POINTER, _VERSION, _OWN_VERSION, _DATA = 1, 3, 3, 4, 3


def _as_pointer(typing, address):
    """A number as a pointer."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return nb.types.voidptr(address), generate


_pointer = intrinsic(inspect.unwrap(_as_pointer))


@compiled
def words_at(address, count):
    """Words of 64 bits in memory that somebody else holds."""
    return carray(_pointer(address), count, np.int64)


@compiled
def is_question(frame):
    """Whether the version of the interface is asked for; it is then answered: XLA's own where its
    frames are known to be laid out as here, and else none, upon which XLA refuses the handler."""
    extension = frame[_EXTENSION]
    if extension != 0 and np.int32(words_at(extension, 4)[_TYPE]) == _METADATA:
        metadata = words_at(words_at(extension, 4)[_POINTER], 4)
        version = words_at(frame[_INTERFACE], 5)[_OWN_VERSION]
        metadata[_VERSION] = version if version in _KNOWN else 0
        return True
    return np.int32(frame[_STAGE]) != _EXECUTE


@compiled
def argument(frame, place):
    """A pointer to the numbers of an argument."""
    return _pointer(words_at(words_at(frame[_ARGUMENTS], place + 1)[place], 4)[_DATA])


@compiled
def result(frame):
    """A pointer to the numbers of the one result."""
    return _pointer(words_at(words_at(frame[_RESULTS], 1)[0], 4)[_DATA])

"""Float64: the one place that switches it on, and the one place that checks it.

Plateaus start at weights of 1e-6 and losses are compared to 1e-10, so every exact computation
runs in float64. Arrays keep the precision in which they were made: a program switches it on once,
at its start; importing the library never does.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _start


def enable_float64(cache: bool = True) -> None:
    """Switches JAX to float64, and keeps compiled programs in the user's cache folder, from where
    the next process loads them. Call it once, before the first array is made.

    **Arguments:**

    - `cache`: False leaves the compile cache of JAX as it is.

    **Example:**

    ```pycon
    >>> icl.enable_float64()
    >>> jnp.zeros(1).dtype
    dtype('float64')
    ```
    """
    jax.config.update("jax_enable_x64", True)
    if cache:
        _start.enable_compile_cache()


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Float64 within a block, and as before after it: for libraries that share a process with a
    training of somebody else, whose precision must not change. What else that training forbids
    JAX, such as to promote ranks, is allowed within.

    **Example:**

    ```pycon
    >>> with icl.runtime.precision.in_float64():
    ...     print(jnp.zeros(1).dtype)
    float64
    ```
    """
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.transfer_guard("allow"),
    ):
        yield


def float64_enabled() -> bool:
    """Whether JAX computes in float64.

    **Example:**

    ```pycon
    >>> icl.runtime.precision.float64_enabled()
    True
    ```
    """
    return bool(jax.config.read("jax_enable_x64"))


def require_float64(what: str, **parts: Any) -> None:
    """Raises an error that says how to switch float64 on, unless it is on.

    **Arguments:**

    - `what`: the computation that needs it, for the message.
    - `parts`: the tasks and models it uses; see `check_made_in_float64`.

    **Example:**

    ```pycon
    >>> icl.runtime.precision.require_float64("The exact risk")
    ```
    """
    if not float64_enabled():
        raise RuntimeError(
            f"{what} needs float64. Call `iclflow.enable_float64()` once, at the start of the "
            "program, before any array is made."
        )
    check_made_in_float64(**parts)


def require_float64_for(what: str, numbers: Any) -> None:
    """The same, but only if some of the `numbers` are float64 and would be rounded silently.

    **Example:**

    ```pycon
    >>> icl.runtime.precision.require_float64_for("A run in float64", np.zeros(3))
    ```
    """
    if any(getattr(x, "dtype", None) == np.float64 for x in jax.tree.leaves(numbers)):
        require_float64(what)


def check_made_in_float64(**parts: Any) -> None:
    """Refuses objects made before float64 was switched on: they are rounded to seven digits, and so
    is all that is computed from them. (With float64 off nothing is refused.)

    **Arguments:**

    - `parts`: tasks and models, by the names that the user knows.

    **Example:**

    ```pycon
    >>> icl.runtime.precision.check_made_in_float64(task=icl.isotropic(dim=3))
    ```
    """
    if not float64_enabled():
        return
    for name, part in parts.items():
        for leaf in jax.tree.leaves(part):
            dtype = getattr(leaf, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.inexact) and dtype.itemsize < 8:
                raise RuntimeError(
                    f"`{name}` holds numbers in {dtype}, as it was made before "
                    "`iclflow.enable_float64()` was called: call that first, then make it."
                )


def as_float(x: Any) -> jax.Array:
    """`x` as an array of the widest floating-point type that is switched on.

    **Example:**

    ```pycon
    >>> icl.runtime.precision.as_float(3)
    Array(3., dtype=float64)
    ```
    """
    return jnp.asarray(x, dtype=jnp.float64 if float64_enabled() else jnp.float32)

"""Float64: the one place that switches it on, and the one place that checks it.

Plateaus start at weights of 1e-6 and losses are compared to 1e-10, so every exact computation
runs in float64. JAX fixes its precision when the first array is made: a program switches it on
once, at its start; importing the library never does.
"""

import jax
import jax.numpy as jnp


def enable_float64() -> None:
    """Switches JAX to float64. Call it once, before the first array is made."""
    jax.config.update("jax_enable_x64", True)


def float64_enabled() -> bool:
    """Whether JAX computes in float64."""
    return bool(jax.config.read("jax_enable_x64"))


def require_float64(what: str) -> None:
    """Raises an error that tells the caller how to switch float64 on, unless it is on.

    **Arguments:**

    - `what`: the computation that needs it, as it should be named in the message.
    """
    if not float64_enabled():
        raise RuntimeError(
            f"{what} needs float64. Call `iclflow.enable_float64()` once, at the start of the "
            "program, before any array is made."
        )


def as_float(x) -> jax.Array:
    """`x` as an array of the widest floating-point type that is switched on."""
    return jnp.asarray(x, dtype=jnp.float64 if float64_enabled() else jnp.float32)

"""Which path a sampled softmax run takes on this machine."""

from typing import Literal, NamedTuple

import jax

from ...runtime import usable_cores
from . import _ffi
from ._risk import has_triton


class Engine(NamedTuple):
    """How batches of sampled softmax attention are computed here.

    **Fields:**

    - `name`: of what makes the fused pass; `"stored batches"` where there is none.
    - `reason`: what it runs on, or why there is no pass.
    """

    name: Literal["Numba", "Triton", "stored batches"]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def engine() -> Engine:
    """Which path a sampled softmax run in float32 takes here, and why. Nothing is compiled.

    A model or a task that the pass is not for takes stored batches everywhere; see
    docs/performance.md, "The fused pass".

    **Example:**

    ```pycon
    >>> icl.engine().name in ("Numba", "Triton", "stored batches")
    True
    ```
    """
    if jax.default_backend() == "cpu":
        reason = _ffi.why_not()
        if reason is not None:
            return Engine("stored batches", reason)
        cores = usable_cores()
        return Engine("Numba", f"vector instructions on {cores} core{'s' * (cores > 1)}")
    kind = jax.devices()[0].device_kind
    if has_triton():
        return Engine("Triton", f"one kernel on {kind}")
    return Engine("stored batches", f"this version of JAX has no Triton for {kind}")

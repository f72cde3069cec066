"""The weights of a module of PyTorch in memory, by name, without importing PyTorch."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ._projections import HEADS

# Beside the number of heads, what configs say of scores.
_SETTINGS = (
    *HEADS,
    *("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "use_attn_scale", "attn_scale"),
)


class Weights(Mapping[str, Any]):
    """Tensors by name, each copied to NumPy when it is asked for.

    **Fields:**

    - `settings`: what the module says of its heads.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> sorted(checkpoints.Weights(checkpoints.to_state_dict(model)))
    ['k_proj.weight', 'o_proj.weight', 'q_proj.weight', 'v_proj.weight']
    ```
    """

    def __init__(self, source: Any):
        """**Arguments:**

        - `source`: a module with `state_dict()`, or tensors by name.
        """
        self.settings: dict[str, Any] = {}
        if isinstance(source, Mapping):
            self._tensors: Mapping[str, Any] = source
        elif callable(getattr(source, "state_dict", None)):
            self._tensors, self.settings = source.state_dict(), _settings_of(source)
        else:
            raise InputError(
                f"The weights are a {type(source).__name__}: must be a module of PyTorch, or "
                "tensors by name."
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        if not hasattr(tensor, "detach"):
            return np.asarray(tensor)
        # NumPy knows neither bfloat16 nor tensors on other devices.
        plain = tensor.detach().cpu()
        floating = getattr(plain, "is_floating_point", lambda: False)()
        return np.asarray(plain.double() if floating else plain)


def _settings_of(module: Any) -> dict[str, Any]:
    """What all parts of a module agree on."""
    found: dict[str, set[Any]] = {}
    for part in getattr(module, "modules", lambda: (module,))():
        for holder in (part, getattr(part, "config", None), getattr(part, "cfg", None)):
            for name in _SETTINGS:
                value = getattr(holder, name, None)
                if isinstance(value, int | float):
                    found.setdefault(name, set()).add(value)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}

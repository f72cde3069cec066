"""Models in files of versions before 0.2, which had one class per kind of circuits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class _Old(NamedTuple):
    """The translation of a class.

    **Fields:**

    - `circuits`: the class of its circuits now.
    - `names`: new names of weights, where they changed.
    - `labels`: how many axes of length 1 each weight gained, and before how many of its last axes.
    - `settings`: defaults at that time, where they changed since.
    """

    circuits: str
    names: dict[str, str] = {}
    labels: dict[str, tuple[int, int]] = {}
    settings: dict[str, Any] = {}


FIRST_BUILD = {
    "MergedKQ": _Old("Merged", {"v": "value", "U": "key_query"}, {"v": (2, 0)}),
    "FullMergedKQ": _Old("Merged", {}, {"value": (1, 1)}),
    "MultiMergedKQ": _Old("Merged", settings={"activation": "softmax", "self_attention": False}),
    "SeparateKQ": _Old("Separate", {"v": "value"}, {"v": (2, 0)}),
    "FullSeparateKQ": _Old("Separate", {"key": "K", "query": "Q"}, {"value": (1, 1)}),
    "StructuredAttention": _Old("Diagonal", {}, {"mu": (1, 0)}),
    "MultiStructured": _Old("Diagonal"),
    "FactoredAttention": _Old("Factored", {}, {"O": (1, 1)}),
    "MultiFactored": _Old("Factored"),
    "BlindFactored": _Old("Factored"),
    "SpectralAttention": _Old("Spectral"),
    "BalancedSpectral": _Old("BalancedSpectral"),
}


def translate(
    kind: str, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> tuple[str, dict[str, np.ndarray], dict[str, Any]]:
    """The class, weights and settings of a model under their present names."""
    old = FIRST_BUILD.get(kind)
    if old is None:
        return kind, dict(arrays), dict(settings)
    weights = {}
    for name, array in arrays.items():
        count, before = old.labels.get(name, (0, 0))
        # Counted from the back: weights of a run have a time axis in front.
        place = array.ndim - before
        shape = (*array.shape[:place], *(1,) * count, *array.shape[place:])
        weights[old.names.get(name, name)] = array.reshape(shape)
    return "Attention", weights, {**old.settings, **settings, "circuits": old.circuits}

"""The projections of a layer of attention with the names of `torch.nn.Linear` layers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..files import FileError

# Names of the number of heads in the metadata of common libraries.
HEADS = ("heads", "num_heads", "n_heads", "n_head", "num_attention_heads")
# The names of each projection; the three of queries, keys and values may also be one matrix.
_PROJECTIONS = {
    "q": ("q_proj.weight", "q_proj_weight"),
    "k": ("k_proj.weight", "k_proj_weight"),
    "v": ("v_proj.weight", "v_proj_weight"),
    "o": ("o_proj.weight", "out_proj.weight"),
}
_TOGETHER = "in_proj_weight"
# The beginnings of names that belong to an attention layer.
_PARTS = ("q_", "k_", "v_", "o_", "qk", "out_proj", "in_proj", "bias_")
_BIASES = (
    *("q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"),
    *("out_proj.bias", "in_proj_bias", "bias_k", "bias_v"),
)
_KNOWN = frozenset(
    (_TOGETHER, *_BIASES, *HEADS, *(part for names in _PROJECTIONS.values() for part in names))
)


class Projections(NamedTuple):
    """A layer of attention of R rows in all heads, in the space that it reads and writes.

    **Fields:**

    - `q`, `k`, `v`: (R, what it reads), heads stacked along the rows.
    - `o`: (what it writes, R).
    - `tensor`: the one that holds q.
    - `prefix`: what the names of its tensors begin with.
    - `biases`: the names of its biases.
    - `heads`: how many, where the shapes say it.
    - `parts`: the names of all its tensors.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    tensor: str
    prefix: str
    biases: tuple[str, ...] = ()
    heads: int | None = None
    parts: tuple[str, ...] = ()


def find_projections(tensors: Mapping[str, Any], name: str) -> Projections:
    """The only layer of attention with q, k, v and o projections in a state dict called `name`."""
    together = _find_tensor(tensors, (_TOGETHER,), name)
    places = {letter: _find_tensor(tensors, names, name) for letter, names in _PROJECTIONS.items()}
    if together is not None and all(places[letter] is None for letter in "qkv"):
        places |= dict.fromkeys("qkv", together)
    for letter, place in places.items():
        if place is None:
            held = ", ".join(sorted(tensors)[:6]) or "nothing"
            raise FileError(
                f"`{name}` has no `{_PROJECTIONS[letter][0]}` and is not a file of ours: it must "
                "hold one attention layer with q_proj, k_proj, v_proj and o_proj. It holds "
                f"{held}."
            )
    prefixes = {place[0] for place in places.values() if place is not None}
    _refuse_unknown_parts(tensors, prefixes, name)
    matrices = {
        place: matrix_of(tensors, "".join(place), name)
        for place in dict.fromkeys(places.values())
        if place
    }
    q, k, v, o = (
        _part(matrices[place], "qkv".find(letter), place, name)
        for letter, place in places.items()
        if place is not None
    )
    _check_shapes(q, k, v, o, name)
    tensor, prefix = "".join(places["q"] or ()), min(prefixes, key=len)
    biases = tuple(sorted(each for p in prefixes for b in _BIASES if (each := p + b) in tensors))
    parts = tuple(sorted(each for p in prefixes for b in _KNOWN if (each := p + b) in tensors))
    return Projections(q, k, v, o, tensor, prefix, biases, parts=parts)


def _check_shapes(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray, name: str) -> None:
    if k.shape != q.shape or v.shape != q.shape or o.shape[1] != len(q):
        shapes = ", ".join(f"{x}: {t.shape}" for x, t in zip("qkvo", (q, k, v, o)))
        raise FileError(
            f"`{name}` has projections of shapes {shapes}: q, k and v must have one shape, and o "
            "as many columns as these have rows."
        )


def _refuse_unknown_parts(tensors: Mapping[str, Any], prefixes: set[str], name: str) -> None:
    """Refuses a layer with other parts, such as norms of queries or adapters, which would change
    what it computes."""
    for key in tensors:
        inside = [key.removeprefix(prefix) for prefix in prefixes if key.startswith(prefix)]
        # Without a prefix, tensors of other layers may be among them.
        own = [part for part in inside if part != key or part.startswith(_PARTS)]
        if own and not _KNOWN.intersection(own):
            raise FileError(
                f"`{name}` has `{key}` in its attention layer, which is not known here: the layer "
                "must be q, k, v and o projections alone."
            )


def _find_tensor(
    tensors: Mapping[str, Any], names: tuple[str, ...], where: str
) -> tuple[str, str] | None:
    """The tensor with one of these names after any prefix: prefix and name."""
    found = sorted(
        (key.removesuffix(name), name)
        for key in tensors
        for name in names
        if key == name or key.endswith(f".{name}")
    )
    if len(found) > 1:
        listed = ", ".join("".join(each) for each in found)
        raise FileError(f"`{where}` has {len(found)} attention layers ({listed}): must have one.")
    return found[0] if found else None


def _part(matrix: np.ndarray, index: int, place: tuple[str, str], name: str) -> np.ndarray:
    """One of the three projections that a matrix holds, or all of it."""
    if place[1] != _TOGETHER:
        return matrix
    if len(matrix) % 3:
        raise FileError(
            f"`{''.join(place)}` of `{name}` has {len(matrix)} rows: must be those of q, k and v."
        )
    return np.split(matrix, 3)[index]


def matrix_of(tensors: Mapping[str, Any], key: str, name: str, axes: int = 2) -> np.ndarray:
    """One tensor with so many axes, of finite numbers."""
    matrix = np.asarray(tensors[key])
    what = {1: "a vector", 2: "a matrix", 3: "one matrix for each head"}[axes]
    # Integers are quantised weights, whose scale is not in this tensor.
    if matrix.dtype.kind in "iub" or matrix.ndim != axes or 0 in matrix.shape:
        raise FileError(
            f"`{key}` of `{name}` has shape {matrix.shape} and type {matrix.dtype}: must be {what} "
            "of finite numbers, in floating point."
        )
    wide = matrix if matrix.dtype == np.float64 else matrix.astype(np.float32)
    if not np.all(np.isfinite(wide)):
        raise FileError(f"`{key}` of `{name}` must be {what} of finite numbers.")
    return wide

"""The attention layer of a PyTorch state dict."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import FileError
from ..models import Attention, Factored
from ..runtime.precision import as_float, require_float64_for

# Names of the number of heads in the metadata of common libraries.
_HEADS = ("heads", "num_heads", "n_heads", "n_head", "num_attention_heads")
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


def from_state_dict(
    tensors: Mapping[str, Any],
    heads: int | None = None,
    labels: int | None = None,
    name: str = "state dict",
) -> Attention:
    """The attention layer of a state dict; arguments as in `load_model`."""
    found = _projections(tensors, name)
    q, k, v, o = (found[letter][1] for letter in "qkvo")
    rows, token = q.shape
    if k.shape != q.shape or v.shape != q.shape or o.shape[1] != rows:
        shapes = ", ".join(f"{x}: {t.shape}" for x, t in zip("qkvo", (q, k, v, o)))
        raise FileError(
            f"`{name}` has projections of shapes {shapes}: q, k and v must have one shape, and o "
            "as many columns as these have rows."
        )
    tensor, shape = found["q"][0], tensors[found["q"][0]].shape
    count = _count_heads(heads, rows, f"`{tensor}` of `{name}`, of shape {tuple(shape)},")
    read = _count_labels(labels, o.shape[0], token, name)
    require_float64_for(f"The model in `{name}`", (q, k, v, o))
    split = lambda matrix: as_float(matrix.reshape(count, -1, token))
    # Of outputs for every token entry, only those of the labels are read.
    output = as_float(o[-read:].reshape(read, count, -1).swapaxes(0, 1))
    return Attention(Factored(K=split(k), Q=split(q), V=split(v), O=output))


def stated_heads(metadata: Mapping[Any, Any]) -> int | None:
    """The number of heads in the metadata, if it is one number."""
    values = {str(metadata[name]) for name in _HEADS if name in metadata}
    if len(values) != 1:
        return None
    (text,) = values
    # Ten digits or more are no number of heads, and would be slow to convert.
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _count_heads(heads: int | None, rows: int, tensor: str) -> int:
    """The number of heads. It is never guessed: every divisor of the rows is a layer of the same
    shapes."""
    possible = [count for count in range(1, rows + 1) if rows % count == 0]
    listed = ", ".join(map(str, possible))
    if heads is None and len(possible) > 1:
        raise InputError(
            "heads",
            problem=f"is missing, and {tensor} has {rows} rows of queries, of one head or several",
            allowed=f"must be one of {listed}",
        )
    if heads is not None and heads not in possible:
        raise InputError("heads", heads, f"{tensor} has {rows} rows: must be one of {listed}")
    return heads or 1


def _count_labels(labels: int | None, outputs: int, token: int, name: str) -> int:
    """The number of outputs that are predicted labels."""
    several = f"{outputs} output{'' if outputs == 1 else 's'}"
    read = (1 if outputs == token else outputs) if labels is None else labels
    if labels is None and read >= token:
        raise FileError(
            f"`{name}` has {several} for tokens of size {token}: must have fewer than a token has "
            "entries (all of them labels), or one for every entry."
        )
    if not 1 <= read < token:
        raise InputError(
            "labels", read, f"must lie between 1 and {token - 1} for tokens of size {token}"
        )
    if outputs not in (read, token):
        raise InputError("labels", read, f"must be {outputs}, as `{name}` has {several}")
    return read


def _projections(tensors: Mapping[str, Any], name: str) -> dict[str, tuple[str, np.ndarray]]:
    """The tensor of each projection, by name, and its matrix."""
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
    for bias in (prefix + bias for prefix in prefixes for bias in _BIASES):
        if bias in tensors and np.any(np.asarray(tensors[bias])):
            raise FileError(f"`{name}` has a bias, `{bias}`: the layer must have none.")
    matrices = {
        place: _matrix(tensors, "".join(place), name)
        for place in dict.fromkeys(places.values())
        if place
    }
    return {
        letter: ("".join(place), _part(matrices[place], "qkv".find(letter), place, name))
        for letter, place in places.items()
        if place is not None
    }


def _refuse_unknown_parts(tensors: Mapping[str, Any], prefixes: set[str], name: str) -> None:
    """Refuses a layer with other parts, such as norms of queries or adapters, which would change
    what it computes."""
    known = {
        _TOGETHER,
        *_BIASES,
        *_HEADS,
        *(part for names in _PROJECTIONS.values() for part in names),
    }
    for key in tensors:
        inside = [key.removeprefix(prefix) for prefix in prefixes if key.startswith(prefix)]
        # Without a prefix, tensors of other layers may be among them.
        own = [part for part in inside if part != key or part.startswith(_PARTS)]
        if own and not known.intersection(own):
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


def _matrix(tensors: Mapping[str, Any], key: str, name: str) -> np.ndarray:
    matrix = np.asarray(tensors[key])
    # Integers are quantised weights, whose scale is not in this tensor.
    if matrix.dtype.kind in "iub" or matrix.ndim != 2 or 0 in matrix.shape:
        raise FileError(
            f"`{key}` of `{name}` has shape {matrix.shape} and type {matrix.dtype}: must be a "
            "matrix of finite numbers, in floating point."
        )
    wide = matrix if matrix.dtype == np.float64 else matrix.astype(np.float32)
    if not np.all(np.isfinite(wide)):
        raise FileError(f"`{key}` of `{name}` must be a matrix of finite numbers.")
    return wide

"""The layers of attention in a state dict of a whole model, by the names of several libraries.

Shapes are those of the libraries themselves: `torch.nn.Linear` keeps outputs × inputs, the `Conv1D`
of GPT-2 in `transformers` inputs × outputs, `HookedTransformer` one (inputs, width) matrix for
each head.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..files import FileError
from ._projections import Projections, find_projections, matrix_of

Tensors = Mapping[str, Any]


class Norm(NamedTuple):
    """A normalisation in front of what reads it, up to its scale, which depends on its input.

    **Fields:**

    - `gain`: (d,).
    - `centred`: whether the mean of the entries is taken away first, as in a layer norm.
    - `parts`: the names of its gain and of its bias.
    """

    gain: np.ndarray
    centred: bool
    parts: tuple[str, ...]

    def fold(self, matrix: np.ndarray) -> np.ndarray:
        """A matrix that reads what is normalised, as one that reads what was there before."""
        scaled = matrix * self.gain
        return scaled - scaled.mean(1, keepdims=True) if self.centred else scaled


class Found(NamedTuple):
    """One layer of attention, and the norms around it.

    **Fields:**

    - `norm`: in front of the layer; `last`: in front of the read-out; None if none is known.
    - `other_norms`: the tensors of norms of the block, where names do not say their place.
    """

    projections: Projections
    norm: Norm | None
    last: Norm | None
    other_norms: tuple[str, ...]


def find_layers(tensors: Tensors, name: str) -> list[Found]:
    """Every layer of attention of a state dict called `name`, in the order of their numbers."""
    found = [each for layout in _LAYOUTS for each in layout(tensors, name)]
    if not found:
        held = ", ".join(sorted(tensors)[:6]) or "nothing"
        raise FileError(
            f"`{name}` has no layer of attention with known names: must have q_proj, k_proj, "
            "v_proj and o_proj, those of `torch.nn.MultiheadAttention`, of GPT-2 (c_attn, c_proj) "
            f"or of `HookedTransformer` (W_Q, W_K, W_V, W_O). It holds {held}."
        )
    ordered = sorted(found, key=lambda each: _numbers(each.prefix))
    return [_with_norms(tensors, each, name) for each in ordered]


def _find_stacked(tensors: Tensors, name: str) -> Iterator[Projections]:
    """Layers with q, k, v and o projections, or with the first three in one matrix."""
    for prefix in _prefixes(tensors, "q_proj.weight", "q_proj_weight", "in_proj_weight"):
        own = {key: tensors[key] for key in tensors if key.startswith(prefix)}
        yield find_projections(own, name)


def _find_gpt2(tensors: Tensors, name: str) -> Iterator[Projections]:
    """Layers of GPT-2: all three projections side by side in `c_attn`."""
    for prefix in _prefixes(tensors, "c_attn.weight"):
        together, output = f"{prefix}c_attn.weight", f"{prefix}c_proj.weight"
        _require(tensors, (output,), name)
        joined, o = matrix_of(tensors, together, name), matrix_of(tensors, output, name)
        # Of a Conv1D; the same names with `torch.nn.Linear` have the transposed matrices.
        if joined.shape[1] == 3 * len(joined):
            joined, o = joined.T, o.T
        if len(joined) != 3 * joined.shape[1] or o.shape != (joined.shape[1],) * 2:
            raise FileError(
                f"`{together}` of `{name}` has the shape {joined.shape} and `{output}` {o.shape}: "
                "must be d × 3 d and d × d."
            )
        biases = f"{prefix}c_attn.bias", f"{prefix}c_proj.bias"
        biases = tuple(each for each in biases if each in tensors)
        q, k, v = np.split(joined, 3)
        parts = (together, output, *biases, *_masks(tensors, prefix))
        yield Projections(q, k, v, o, together, prefix, biases, parts=parts)


def _find_hooked(tensors: Tensors, name: str) -> Iterator[Projections]:
    """Layers of `HookedTransformer`: one matrix for each head."""
    for prefix in _prefixes(tensors, "W_Q"):
        names = [f"{prefix}W_{letter}" for letter in "QKVO"]
        _require(tensors, names, name)
        q, k, v, o = (matrix_of(tensors, each, name, axes=3) for each in names)
        heads, outer, width = q.shape
        if not k.shape == v.shape == q.shape or o.shape[:2] != (heads, width):
            shapes = ", ".join(str(part.shape) for part in (q, k, v, o))
            raise FileError(
                f"`{names[0]}` and its fellows in `{name}` have the shapes {shapes}: must be "
                "(heads, d, width), and (heads, width, d) for W_O."
            )
        stack = lambda part: part.swapaxes(1, 2).reshape(heads * width, outer)
        biases = tuple(b for letter in "QKVO" if (b := f"{prefix}b_{letter}") in tensors)
        output = o.reshape(heads * width, -1).T
        parts = (*names, *biases, *_masks(tensors, prefix))
        yield Projections(
            stack(q), stack(k), stack(v), output, names[0], prefix, biases, heads, parts
        )


_LAYOUTS: tuple[Callable[[Tensors, str], Iterator[Projections]], ...] = (
    *(_find_stacked, _find_gpt2, _find_hooked),
)
# What says which tokens are attended to: buffers, and no weights.
_MASKS = ("bias", "masked_bias", "mask", "IGNORE")
# Norms in front of attention in its block, and in front of the read-out of the whole model: stem,
# gain and bias. Without a bias nothing is centred.
_NORMS = (("ln_1", ".weight", ".bias"), ("ln1", ".w", ".b"))
_LAST_NORMS = (("ln_f", ".weight", ".bias"), ("ln_final", ".w", ".b"))


def _with_norms(tensors: Tensors, found: Projections, name: str) -> Found:
    # `h.0.attn.` is in the block `h.0.`, of the model that begins before it.
    block = re.sub(r"[^.]+\.$", "", found.prefix)
    whole = re.sub(r"[^.]+\.\d+\.$", "", block)
    norm = _find_norm(tensors, block, _NORMS, name)
    beside = [key for key in tensors if norm is None and block and key.startswith(block)]
    is_norm = lambda key: re.match(r"[^.]*(norm|ln)[^.]*\.", key.removeprefix(block))
    other = tuple(key for key in beside if is_norm(key))
    return Found(found, norm, _find_norm(tensors, whole, _LAST_NORMS, name), other)


def _find_norm(
    tensors: Tensors, prefix: str, names: tuple[tuple[str, str, str], ...], name: str
) -> Norm | None:
    for stem, gain, bias in names:
        key = f"{prefix}{stem}{gain}"
        if key in tensors:
            # Norms of GPT-2 are layer norms, even where they were made without a bias.
            centred = f"{prefix}{stem}{bias}" in tensors or gain == ".weight"
            parts = tuple(each for each in (key, f"{prefix}{stem}{bias}") if each in tensors)
            return Norm(matrix_of(tensors, key, name, axes=1), centred, parts)
    return None


def _masks(tensors: Tensors, prefix: str) -> tuple[str, ...]:
    return tuple(key for mask in _MASKS if (key := f"{prefix}{mask}") in tensors)


def _prefixes(tensors: Tensors, *names: str) -> list[str]:
    """What comes before one of these names."""
    found = {
        key.removesuffix(name)
        for key in tensors
        for name in names
        if key == name or key.endswith(f".{name}")
    }
    return sorted(found)


def _require(tensors: Tensors, names: "tuple[str, ...] | list[str]", name: str) -> None:
    for key in names:
        if key not in tensors:
            raise FileError(f"`{name}` has no `{key}`, beside others of its layer of attention.")


def _numbers(prefix: str) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", prefix)], prefix

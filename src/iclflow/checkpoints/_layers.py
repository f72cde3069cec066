"""The heads of every layer of a model, as they act on the tokens of a task."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..files import FileError
from ..models import Attention, Factored
from ..runtime.precision import as_float
from ._layouts import Found, find_layers
from ._projections import Projections, matrix_of
from ._state_dict import as_attention, count_heads, count_labels, stated_heads

_POSITIONS = re.compile(r"(^|\.)(wpe\.weight|pos_embed\.W_pos|rotary\w*|attn\.relative\w*)$")
# Names of parts that are not read, before the rest is not listed.
_MOST_NAMED = 4


@dataclasses.dataclass(frozen=True)
class ReadIn:
    """How tokens (x; y) enter the space that layers read and write, and how labels leave it.

    **Fields:**

    - `embed`: a matrix (d, T), from the entries of a token to that space, or the name of the linear
      layer that holds it, such as "read_in". None: layers read tokens themselves.
    - `unembed`: a matrix (I, d), or the name of the linear layer that labels are read with.
    - `interleaved`: inputs and labels are tokens of their own, embedded alike, labels padded with
      zeros to the size of inputs, as in arXiv 2208.01066. `embed` then has D columns.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> embed = np.asarray(jr.normal(jr.key(1), (8, 4)))
    >>> checkpoints.ReadIn(embed=embed, unembed=embed[:, -1:].T).unembed.shape
    (1, 8)
    ```
    """

    embed: Any = None
    unembed: Any = None
    interleaved: bool = False

    def __post_init__(self):
        if (self.embed is None) != (self.unembed is None):
            missing = "unembed" if self.unembed is None else "embed"
            raise InputError(
                missing,
                problem="is missing",
                allowed="`embed` and `unembed` say together how tokens become what layers read, "
                "and what layers write becomes labels",
            )
        if self.interleaved and self.embed is None:
            raise InputError("interleaved", self.interleaved, "needs `embed` and `unembed`")


class Layer(NamedTuple):
    """The heads of one layer, from the entries of tokens to labels.

    **Fields:**

    - `name`: where its tensors are in the state dict.
    - `model`: attention with the same circuits.
    - `left_out`: what else takes part in the scores and outputs of its heads, in words.
    """

    name: str
    model: Attention
    left_out: tuple[str, ...]


def read_layers(
    tensors: Mapping[str, Any],
    heads: int | None = None,
    labels: int | None = None,
    read_in: ReadIn = ReadIn(),
    settings: Mapping[str, Any] | None = None,
    name: str = "state dict",
) -> tuple[Layer, ...]:
    """The heads of every layer of a state dict.

    A head of a deep model reads what other layers wrote, too. What is returned is what it does
    with the tokens themselves, along the direct path: (U O V E) and (EᵀKᵀQE)/√width with the
    read-in E and the read-out U. The gains of norms in front of it are part of the weights, and so
    is their centring; their scale depends on the token and is left out.

    **Arguments:**

    - `heads`, `labels`: as in `load_model`.
    - `read_in`: how tokens become what layers read.
    - `settings`: of the model, by their names in its config: the number of heads, how scores are
      scaled.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> tensors = checkpoints.to_state_dict(model)
    >>> layer = checkpoints.read_layers(tensors, heads=2)[0]
    >>> layer.model.heads, layer.left_out
    (2, ())
    ```
    """
    settings = {} if settings is None else settings
    heads = stated_heads(settings) if heads is None else heads
    found = find_layers(tensors, name)
    read = _parts_read(found, tensors, read_in)
    other_parts = _name_parts(key for key in tensors if key not in read)
    layers = []
    for index, each in enumerate(found):
        own = each.projections
        count = own.heads or count_heads(heads, own, tensors, name)
        scaled = own._replace(q=own.q * _score_factor(settings, len(own.q) // count, index))
        effective = _from_tokens(each._replace(projections=scaled), tensors, labels, read_in, name)
        left_out = _left_out(each, tensors, read_in, len(found) > 1) + other_parts
        prefix = own.prefix.rstrip(".") or "attention"
        layers.append(Layer(prefix, as_attention(effective, count, name), left_out))
    return tuple(layers)


def is_whole(tensors: Mapping[str, Any], name: str) -> bool:
    """Whether a state dict is one layer that reads tokens itself and nothing else, and so a model
    of its own."""
    first, *others = find_layers(tensors, name)
    own = first.projections
    other_layout = own.heads is not None or own.tensor.endswith("c_attn.weight")
    more = others or set(tensors) - set(own.parts)
    return not (more or other_layout or _any_nonzero(tensors, own.biases))


def _score_factor(settings: Mapping[str, Any], width: int, index: int) -> float:
    """What scores are multiplied by, beside 1/√width."""
    factor = 1.0
    if not (settings.get("scale_attn_weights", True) and settings.get("use_attn_scale", True)):
        factor *= width**0.5
    elif float(settings.get("attn_scale", 0.0)) > 0:
        factor *= width**0.5 / float(settings["attn_scale"])
    if settings.get("scale_attn_by_inverse_layer_idx", False):
        factor /= index + 1
    return factor


def _from_tokens(
    found: Found, tensors: Mapping[str, Any], labels: int | None, read_in: ReadIn, name: str
) -> Projections:
    """The projections from the entries of tokens to labels."""
    own = found.projections
    parts = [part.astype(float) for part in (own.q, own.k, own.v)]
    if found.norm is not None:
        parts = [found.norm.fold(part) for part in parts]
    if read_in.embed is None:
        read = count_labels(labels, len(own.o), own.q.shape[1], name)
        return own._replace(q=parts[0], k=parts[1], v=parts[2], o=own.o[-read:])
    unembed = _matrix(read_in.unembed, "unembed", tensors, name).astype(float)
    if found.last is not None and unembed.shape[1] == len(found.last.gain):
        unembed = found.last.fold(unembed)
    embed = _embedding(tensors, labels or len(unembed), read_in, name)
    _check_sizes(embed, unembed, own, name)
    read = count_labels(labels, len(unembed), embed.shape[1], name)
    q, k, v = (part @ embed for part in parts)
    return own._replace(q=q, k=k, v=v, o=(unembed @ own.o)[-read:])


def _embedding(tensors: Mapping[str, Any], labels: int, read_in: ReadIn, name: str) -> np.ndarray:
    """(d, T): where each entry of a token (x; y) goes."""
    embed = _matrix(read_in.embed, "embed", tensors, name).astype(float)
    # Of interleaved tokens, labels are the first entries of their own tokens.
    return np.concatenate([embed, embed[:, :labels]], 1) if read_in.interleaved else embed


def _matrix(given: Any, field: str, tensors: Mapping[str, Any], name: str) -> np.ndarray:
    """A matrix that was given, or the weight of the linear layer of this name."""
    if not isinstance(given, str):
        return matrix_of({field: given}, field, "arguments")
    found = [key for key in _names(given) if key in tensors]
    found = found or [k for k in tensors if any(k.endswith(f".{each}") for each in _names(given))]
    if len(found) != 1:
        matrices = ", ".join(key for key in tensors if len(tensors[key].shape) == 2)
        problem = "is not in the weights" if not found else f"may be {' or '.join(found)}"
        raise InputError(field, given, f"`{name}` has the matrices {matrices or 'none'}", problem)
    return matrix_of(tensors, found[0], name)


def _names(given: str) -> tuple[str, str]:
    return f"{given}.weight", given


def _check_sizes(embed: np.ndarray, unembed: np.ndarray, own: Projections, name: str) -> None:
    sizes = embed.shape[0], unembed.shape[1]
    if sizes != (own.q.shape[1], len(own.o)):
        raise FileError(
            f"`{own.tensor}` of `{name}` reads {own.q.shape[1]} entries and its layer writes "
            f"{len(own.o)}: `embed`, of shape {embed.shape}, must have as many rows, and "
            f"`unembed`, of shape {unembed.shape}, as many columns."
        )


def _left_out(
    found: Found, tensors: Mapping[str, Any], read_in: ReadIn, several: bool
) -> tuple[str, ...]:
    """What takes part in what the heads of this layer do and is not read, as far as its place is
    known."""
    norms = [norm for norm in (found.norm, found.last) if norm is not None]
    beside = _parts_of_read_in(tensors, read_in) + [key for norm in norms for key in norm.parts]
    biases = [key for key in beside if key.endswith((".bias", ".b"))]
    parts = {
        "biases": _any_nonzero(tensors, (*found.projections.biases, *biases)),
        "the scale of norms": bool(norms),
        "norms": bool(found.other_norms),
        "positions": any(_POSITIONS.search(key) for key in tensors),
        "what other layers write": several,
    }
    return tuple(words for words, there in parts.items() if there)


def _any_nonzero(tensors: Mapping[str, Any], keys: Iterable[str]) -> bool:
    return any(np.any(np.asarray(tensors[key])) for key in keys)


def _parts_of_read_in(tensors: Mapping[str, Any], read_in: ReadIn) -> list[str]:
    """The weights and biases of the read-in and the read-out."""
    found = [_name_of(each, tensors) for each in (read_in.embed, read_in.unembed)]
    names = [name for each in found if each for name in (*_names(each), f"{each}.bias")]
    return [key for key in tensors if any(f".{key}".endswith(f".{name}") for name in names)]


def _name_of(given: Any, tensors: Mapping[str, Any]) -> str | None:
    """The name of a linear layer: as given, or of the one with this matrix, if there is one."""
    if given is None or isinstance(given, str):
        return given
    alike = (key for key in tensors if tuple(tensors[key].shape) == np.shape(given))
    same = (key for key in alike if np.array_equal(np.asarray(tensors[key]), np.asarray(given)))
    return next((key.removesuffix(".weight") for key in same), None)


def _parts_read(found: list[Found], tensors: Mapping[str, Any], read_in: ReadIn) -> set[str]:
    """The tensors that are read, or that `_left_out` has words for."""
    read = {key for key in tensors if _POSITIONS.search(key)}
    read.update(_parts_of_read_in(tensors, read_in))
    for each in found:
        read.update(each.projections.parts, each.other_norms)
        read.update(*(norm.parts for norm in (each.norm, each.last) if norm is not None))
    return read


def _name_parts(keys: Iterable[str]) -> tuple[str, ...]:
    """Words for tensors that are not read, such as those of an MLP: the names of their layers."""
    # Numbers are places in a `Sequential`, which says nothing without the name before.
    stem = re.compile(r"(\.\d+)*(\.(weight|bias|w|b))?$")
    names = dict.fromkeys(stem.sub("", key).split(".")[-1] for key in keys)
    listed = [f"`{name}`" for name in names]
    if len(listed) > _MOST_NAMED:
        listed[_MOST_NAMED:] = ["…"]
    return (f"other parts ({', '.join(listed)})",) if listed else ()


def from_circuits(kq: np.ndarray, ov: np.ndarray) -> Attention:
    """Softmax attention with these circuits of its heads.

    **Arguments:**

    - `kq`: (H, T, D), scores from query inputs to the entries of tokens.
    - `ov`: (H, I, T), from the entries of tokens to labels.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> same = checkpoints.from_circuits(np.asarray(model.kq()), np.asarray(model.ov()))
    >>> jnp.allclose(same.kq(), model.kq()).item()
    True
    ```
    """
    labels, tokens = ov.shape[-2:] if ov.ndim == 3 else (0, 0)
    if kq.ndim != 3 or kq.shape != (len(ov), tokens, tokens - labels) or labels == 0:
        raise InputError(
            f"`kq` has the shape {kq.shape} and `ov` {ov.shape}: must be (heads, T, D) and (heads, "
            "I, T), for tokens of T = D + I entries."
        )
    check = {"kq": kq, "ov": ov}
    kq, ov = (matrix_of(check, name, "circuits", axes=3) for name in check)
    one = np.broadcast_to(np.eye(tokens), (len(kq), tokens, tokens))
    # Scores of factored heads are divided by the square root of their width.
    query = np.pad(kq * tokens**0.5, ((0, 0), (0, 0), (0, labels)))
    return Attention(Factored(*map(as_float, (one, query, one, ov))))

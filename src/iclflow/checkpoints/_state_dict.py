"""A state dict that is one layer of softmax attention, and no more: a model of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import FileError
from ..models import Attention, Factored
from ..runtime.precision import as_float, require_float64_for
from ._projections import HEADS, Projections, find_projections


def from_state_dict(
    tensors: Mapping[str, Any],
    heads: int | None = None,
    labels: int | None = None,
    name: str = "state dict",
) -> Attention:
    """The attention layer of a state dict; arguments as in `load_model`.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> same = checkpoints.from_state_dict(checkpoints.to_state_dict(model), heads=2)
    >>> jnp.allclose(same.kq(), model.kq()).item()
    True
    ```
    """
    found = find_projections(tensors, name)
    for bias in found.biases:
        if np.any(np.asarray(tensors[bias])):
            raise FileError(f"`{name}` has a bias, `{bias}`: the layer must have none.")
    token, outputs = found.q.shape[1], found.o.shape[0]
    count = count_heads(heads, found, tensors, name)
    read = count_labels(labels, outputs, token, name)
    # Of outputs for every token entry, only those of the labels are read.
    return as_attention(found._replace(o=found.o[-read:]), count, name)


def as_attention(found: Projections, heads: int, name: str) -> Attention:
    """Softmax attention with these projections from token entries to labels."""
    require_float64_for(f"The model in `{name}`", (found.q, found.k, found.v, found.o))
    split = lambda matrix: as_float(matrix.reshape(heads, -1, matrix.shape[1]))
    output = as_float(found.o.reshape(len(found.o), heads, -1).swapaxes(0, 1))
    return Attention(Factored(K=split(found.k), Q=split(found.q), V=split(found.v), O=output))


def to_state_dict(model: Attention[Factored], prefix: str = "") -> dict[str, np.ndarray]:
    """The projections of our own layer, as `from_state_dict` and PyTorch read them.

    The query attends to the labelled tokens and not to itself, and scores are divided by the square
    root of the width of a head; see `docs/inspect.md`.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> for name, tensor in checkpoints.to_state_dict(model).items():
    ...     print(name, tensor.shape)
    q_proj.weight (8, 4)
    k_proj.weight (8, 4)
    v_proj.weight (8, 4)
    o_proj.weight (1, 8)
    ```
    """
    circuits = model.circuits
    if not isinstance(circuits, Factored) or model.activation != "softmax" or model.self_attention:
        raise InputError(
            "model",
            model,
            "must be softmax attention with `Factored` circuits, in which the query does not "
            "attend to itself",
        )
    whole = circuits.embed()
    stack = lambda part: np.asarray(part).reshape(-1, part.shape[-1])
    found = {"q": stack(whole.Q), "k": stack(whole.K), "v": stack(whole.V)}
    found["o"] = np.asarray(whole.O).swapaxes(0, 1).reshape(whole.labels, -1)
    return {f"{prefix}{letter}_proj.weight": matrix for letter, matrix in found.items()}


def stated_heads(metadata: Mapping[Any, Any]) -> int | None:
    """The number of heads in the metadata, if it is one number."""
    values = {str(metadata[name]) for name in HEADS if name in metadata}
    if len(values) != 1:
        return None
    (text,) = values
    # Ten digits or more are no number of heads, and would be slow to convert.
    return int(text) if text.isdecimal() and len(text) < 10 else None


def count_heads(
    heads: int | None, found: Projections, tensors: Mapping[str, Any], name: str
) -> int:
    """The number of heads. It is never guessed: every divisor of the rows is a layer of the same
    shapes."""
    shape, rows = tuple(tensors[found.tensor].shape), len(found.q)
    tensor = f"`{found.tensor}` of `{name}`, of shape {shape},"
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


def count_labels(labels: int | None, outputs: int, token: int, name: str) -> int:
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

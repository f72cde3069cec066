"""One model in a file: written in our own format, read from several."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import InputError, shorten
from ..files import FileError, parse_json, read_regular, write_atomic
from ..models import (
    AbstractCircuits,
    AbstractModel,
    is_known_model,
    known_models,
    model_arrays,
    model_settings,
    restore_model,
)
from ..runtime.precision import as_float, require_float64_for
from ..tensors import OWN, TensorFile, check_regular
from ..trajectory import Trajectory
from ._layers import Layer, ReadIn, is_whole, read_layers
from ._state_dict import from_state_dict, stated_heads
from ._torch_file import TORCH_SUFFIXES, TorchFile

# To be raised when files change in a way that older versions cannot read.
FORMAT = 1
# Configs of `transformers` are a few kilobytes.
_LARGEST_CONFIG = 2**20


def save_model(model: AbstractModel, path: Path | str) -> None:
    """Writes one model as a safetensors file, with its class and settings as metadata.

    **Example:**

    ```pycon
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> icl.save_model(model, f"{folder}/model.safetensors")
    >>> os.listdir(folder)
    ['model.safetensors']
    ```
    """
    from safetensors.numpy import save

    about = {"format": FORMAT, "class": type(model).__name__, **model_settings(model)}
    arrays = {k: np.ascontiguousarray(v) for k, v in model_arrays(model).items()}
    write_atomic(path, save(arrays, metadata={OWN: json.dumps(about)}))


def load_model(
    path: Path | str,
    heads: int | None = None,
    labels: int | None = None,
    model_class: type[AbstractModel | AbstractCircuits] | None = None,
) -> AbstractModel:
    """Reads the model in a file, or the last model of a run.

    **Arguments:**

    - `path`: the folder of a run; a file that `save_model` wrote; or a state dict with
      projections `q_proj.weight`, `k_proj.weight`, `v_proj.weight` (heads stacked along the rows)
      and `o_proj.weight` (along the columns), or those of `torch.nn.MultiheadAttention`, as
      safetensors or as a PyTorch file.
    - `heads`: of a state dict, whose shapes do not say how rows are divided among heads; scores are
      divided by the square root of the rows of a head. Needed unless the file says it.
    - `labels`: how many of a state dict's token entries are labels, the last ones; by default as
      many as `o_proj` has outputs, or 1 if it has one for every entry.
    - `model_class`: the class of your own model, or of your own circuits of attention, in a run or
      in a file that `save_model` wrote.

    **Example:**

    ```pycon
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
    >>> model = icl.Attention.separate(jr.key(0), dim=3, heads=2)
    >>> icl.save_model(model, path)
    >>> jnp.array_equal(icl.load_model(path).coefficients(), model.coefficients()).item()
    True
    ```
    """
    path = Path(path)
    # A run can be given by its folder, or by the file of weights in it.
    folder = path.parent if path.name == "trajectory.safetensors" else path
    if folder.is_dir():
        _check_ours(path, heads, labels)
        return jax.tree.map(as_float, Trajectory.load(folder, model_class).final)
    file, about = _open(path)
    if about is None or isinstance(file, TorchFile):
        heads = _heads(heads, *_settings(file, path))
        return from_state_dict(file, heads, labels, str(path))
    _check_ours(path, heads, labels)
    return _restore_own(file, about, model_class)


def load_layers(
    path: Path | str,
    heads: int | None = None,
    labels: int | None = None,
    read_in: ReadIn = ReadIn(),
    whole: bool = True,
) -> tuple[Layer, ...] | None:
    """Reads the heads of every layer in a state dict; None for what `load_model` reads whole.

    **Arguments:**

    - `heads`, `labels`: as in `load_model`.
    - `read_in`: how tokens become what layers read; see `ReadIn`.
    - `whole`: if False, also of a state dict that `load_model` reads whole.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> path = f"{tempfile.mkdtemp()}/layer.safetensors"
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> save_file(checkpoints.to_state_dict(model), path)
    >>> checkpoints.load_layers(path, heads=2, whole=False)[0].model.heads
    2
    ```
    """
    path = Path(path)
    if path.is_dir() or path.name == "trajectory.safetensors":
        return _refuse_read_in(path, read_in)
    file, about = _open(path)
    if about is not None:
        return _refuse_read_in(path, read_in)
    if whole and read_in.embed is None and is_whole(file, str(path)):
        return None
    settings, source = _settings(file, path)
    heads = _heads(heads, settings, source)
    return read_layers(file, heads, labels, read_in, settings, str(path))


def is_whole_file(path: Path | str) -> bool:
    """Whether `load_model` reads a file as a whole model.

    **Example:**

    ```pycon
    >>> from iclflow import checkpoints
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
    >>> icl.save_model(icl.Attention.merged(jr.key(0), dim=3, heads=2), path)
    >>> checkpoints.is_whole_file(path)
    True
    ```
    """
    file, about = _open(Path(path))
    return about is not None or is_whole(file, str(path))


def _refuse_read_in(path: Path, read_in: ReadIn) -> None:
    if read_in.embed is not None:
        raise InputError("embed", read_in.embed, f"`{path}` is one of ours and reads tokens itself")


def _open(path: Path) -> tuple[TensorFile | TorchFile, dict[str, Any] | None]:
    """The tensors in a file, and its description if it is one of ours."""
    check_regular(path)
    if path.suffix in TORCH_SUFFIXES:
        return TorchFile(path), None
    try:
        file = TensorFile(path)
    except FileError as error:
        raise FileError(
            f"{str(error).rstrip('.')}: give one, a PyTorch file ({', '.join(TORCH_SUFFIXES)}) or "
            "the folder of a run."
        ) from None
    return file, file.about()


def _settings(file: TensorFile | TorchFile, path: Path) -> tuple[dict[str, Any], Path]:
    """What a file says of its heads, or the config of `transformers` beside it; and which of both
    says it."""
    if stated_heads(file.metadata) is not None:
        # Metadata of safetensors is text.
        flags = {"true": True, "false": False}
        return {k: flags.get(str(v).lower(), v) for k, v in file.metadata.items()}, path
    beside = path.parent / "config.json"
    try:
        found = parse_json(read_regular(beside, _LARGEST_CONFIG))
    except (OSError, ValueError):  # there is none, or it is something else
        found = {}
    items = found.items() if isinstance(found, dict) else ()
    return {k: v for k, v in items if isinstance(v, int | float | str)}, beside


def _heads(given: int | None, settings: Mapping[str, Any], source: Path) -> int | None:
    """The number of heads: as given, or as the settings in the file `source` say."""
    stated = stated_heads(settings)
    if given is not None and stated not in (None, given):
        raise InputError("heads", given, f"`{source}` says that there are {stated}")
    return stated if given is None else given


def _check_ours(path: Path, heads: int | None, labels: int | None) -> None:
    """Refuses `heads` and `labels` for a file in our format, which has its own."""
    for name, value in (("heads", heads), ("labels", labels)):
        if value is not None:
            raise InputError(
                name,
                value,
                f"`{path}` is one of ours and says itself how many {name} it has; only a state "
                "dict needs this",
            )


def _restore_own(
    file: TensorFile,
    about: dict[str, Any],
    model_class: type[AbstractModel | AbstractCircuits] | None,
) -> AbstractModel:
    """The model in a file that `save_model` wrote, from its metadata `about`."""
    settings = dict(about)
    version, name = settings.pop("format", None), settings.pop("class", None)
    if version != FORMAT or not isinstance(name, str) or not is_known_model(name, model_class):
        raise FileError(
            f"`{file.path}` holds a {shorten(name)} in format {shorten(version)}: must be one of "
            f"{', '.join(known_models())} in format {FORMAT}, or a class of your own that you pass "
            "as `model_class`."
        )
    arrays = dict(file)
    require_float64_for(f"The model in `{file.path}`", arrays)
    try:
        model = restore_model(name, arrays, settings, model_class=model_class)
    except ValueError as error:
        raise FileError(f"`{file.path}` {error}.") from None
    return jax.tree.map(as_float, model)

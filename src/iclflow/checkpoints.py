"""Models in files: our own, and PyTorch state dicts with stacked q, k, v and o projections."""

import json
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from .files import write_atomic
from .models import MODELS, AbstractModel, FactoredAttention, MultiFactored
from .precision import as_float
from .trajectory import Trajectory, assemble, model_arrays, model_settings

FORMAT = 1
_OWN = "iclflow"
_TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt")


def save_model(model: AbstractModel, path: Path | str) -> None:
    """Writes one model as a safetensors file that says what it is."""
    from safetensors.numpy import save

    about = {"format": FORMAT, "class": type(model).__name__, **model_settings(model)}
    arrays = {k: np.ascontiguousarray(v) for k, v in model_arrays(model).items()}
    write_atomic(path, save(arrays, metadata={_OWN: json.dumps(about)}))


def load_model(
    path: Path | str, heads: int | None = None, labels: int | None = None
) -> AbstractModel:
    """Reads the model in a file, or the last one of a run.

    **Arguments:**

    - `path`: the folder of a run; a file that `save_model` wrote; or a state dict with
      projections `q_proj.weight`, `k_proj.weight`, `v_proj.weight` (heads stacked along the rows)
      and `o_proj.weight` (along the columns), as safetensors or as a PyTorch file.
    - `heads`: of a state dict, which does not say how its rows are divided; scores are divided by
      the square root of the rows of a head. By default 1, if there are as many rows as a token
      has entries; otherwise it must be given.
    - `labels`: how many of a state dict's token entries are labels, the last ones; by default as
      many as `o_proj` has outputs, or 1 if it has one for every entry.
    """
    path = Path(path)
    folder = path.parent if path.name == "trajectory.safetensors" else path
    if folder.is_dir():
        _check_ours(path, heads, labels)
        return Trajectory.load(folder).final
    if not path.exists():
        raise ValueError(f"`{path}` does not exist.")
    if path.suffix in _TORCH_SUFFIXES:
        return from_state_dict(_read_torch(path), heads, labels, str(path))
    tensors, about = _read_safetensors(path)
    if about is None:
        return from_state_dict(tensors, heads, labels, str(path))
    _check_ours(path, heads, labels)
    return _own(tensors, about, path)


def from_state_dict(
    tensors: Mapping[str, np.ndarray],
    heads: int | None = None,
    labels: int | None = None,
    name: str = "state dict",
) -> FactoredAttention | MultiFactored:
    """The attention layer of a state dict; arguments as in `load_model`."""
    q, k, v, o = (_projection(tensors, letter, name) for letter in "qkvo")
    rows, token = q.shape
    if k.shape != q.shape or v.shape != q.shape or o.shape[1] != rows:
        shapes = ", ".join(f"{x}: {t.shape}" for x, t in zip("qkvo", (q, k, v, o)))
        raise ValueError(
            f"`{name}` has projections of shapes {shapes}: q, k and v must have one shape, and o "
            "as many columns as these have rows."
        )
    if heads is None and rows != token:
        raise ValueError(
            f"`{name}` has {rows} rows of queries for tokens of size {token}, and does not say how "
            "many heads these are: give `heads`, which must divide the rows."
        )
    count = 1 if heads is None else heads
    if count < 1 or rows % count:
        raise ValueError(f"`heads` = {heads}: must divide {rows}, the rows of `{name}`'s queries.")
    read = _read_labels(labels, o.shape[0], token, name)
    split = lambda matrix: as_float(matrix.reshape(count, -1, token))
    # Of outputs for every token entry, only those of the labels are read.
    output = as_float(o[-read:].reshape(read, count, -1).swapaxes(0, 1))
    if read == 1:
        return FactoredAttention(K=split(k), Q=split(q), V=split(v), O=output[:, 0])
    return MultiFactored(K=split(k), Q=split(q), V=split(v), O=output)


def _read_labels(labels: int | None, outputs: int, token: int, name: str) -> int:
    """How many of the outputs are predicted labels."""
    several = f"{outputs} output{'' if outputs == 1 else 's'}"
    read = (1 if outputs == token else outputs) if labels is None else labels
    if labels is None and read >= token:
        raise ValueError(
            f"`{name}` has {several} for tokens of size {token}: must have fewer than a token has "
            "entries (all of them labels), or one for every entry."
        )
    if not 1 <= read < token:
        raise ValueError(
            f"`labels` = {read}: must lie between 1 and {token - 1} for tokens of size {token}."
        )
    if outputs not in (read, token):
        raise ValueError(f"`labels` = {read}: must be {outputs}, as `{name}` has {several}.")
    return read


def _check_ours(path: Path, heads: int | None, labels: int | None) -> None:
    """Refuses to count what a file of ours says itself."""
    for name, value in (("heads", heads), ("labels", labels)):
        if value is not None:
            raise ValueError(
                f"`{name}` = {value}: `{path}` is one of ours and says itself how many {name} it "
                "has; only a state dict needs to be told."
            )


def _projection(tensors: Mapping[str, np.ndarray], letter: str, name: str) -> np.ndarray:
    """The matrix of one projection; whatever stands before its name is a prefix."""
    wanted = f"{letter}_proj.weight"
    found = [key for key in tensors if key == wanted or key.endswith(f".{wanted}")]
    if not found:
        held = ", ".join(sorted(tensors)[:6]) or "nothing"
        raise ValueError(
            f"`{name}` has no `{wanted}` and is not a file of ours: it must hold one attention "
            f"layer with q_proj, k_proj, v_proj and o_proj. It holds {held}."
        )
    if len(found) > 1:
        raise ValueError(
            f"`{name}` has {len(found)} attention layers ({', '.join(sorted(found))}): must have "
            "one."
        )
    matrix = np.asarray(tensors[found[0]], dtype=float)
    bias = tensors.get(found[0].removesuffix("weight") + "bias")
    if bias is not None and np.any(np.asarray(bias)):
        raise ValueError(f"`{name}` has a bias in {letter}_proj: the layer must have none.")
    if matrix.ndim != 2 or not np.all(np.isfinite(matrix)):
        raise ValueError(f"`{found[0]}` of `{name}` must be a matrix of finite numbers.")
    return matrix


def _own(tensors: dict[str, np.ndarray], about: dict, path: Path) -> AbstractModel:
    settings = dict(about)
    version, name = settings.pop("format", None), settings.pop("class", None)
    if version != FORMAT or name not in MODELS:
        raise ValueError(
            f"`{path}` holds a {name} in format {version}: must be one of {', '.join(MODELS)} in "
            f"format {FORMAT}."
        )
    weights = {key: jnp.asarray(value) for key, value in tensors.items()}
    return assemble(MODELS[name], {**weights, **settings})


def _read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict | None]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            text = (file.metadata() or {}).get(_OWN)
        return tensors, None if text is None else json.loads(text)
    except (SafetensorError, ValueError, TypeError):
        raise ValueError(
            f"`{path}` is not a safetensors file of numbers: give one, a PyTorch file "
            f"({', '.join(_TORCH_SUFFIXES)}) or the folder of a run."
        ) from None


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    """A state dict through PyTorch's loader for weights alone, which runs no code of the file."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            f"`{path}` is a PyTorch file and PyTorch is not installed: install it "
            "(`pip install torch`), or save the state dict as safetensors."
        ) from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the loader raises whatever a damaged file provokes
        raise ValueError(
            f"`{path}` cannot be read as weights alone ({type(error).__name__}): it must be a "
            "state dict saved by `torch.save(model.state_dict(), …)`."
        ) from None
    for nested in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(nested), dict):
            content = content[nested]
    if not isinstance(content, dict):
        raise ValueError(f"`{path}` holds a {type(content).__name__}: must be a state dict.")
    return {
        str(key): value.detach().to(torch.float64).numpy()
        for key, value in content.items()
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    }

"""PyTorch files, read by its weights-only loader; nothing may take more memory than the file."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files import FileError
from ..tensors import check_regular

TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt")
# Before this version the weights-only loader could be made to execute code (CVE-2025-32434).
_OLDEST = (2, 6)
# Names under which training scripts save a state dict, and settings, in one dictionary.
_STATE_DICTS = ("state_dict", "model_state_dict", "model")
_SETTINGS = ("config", "hyper_parameters", "hparams", "args")


class TorchFile(Mapping[str, Any]):
    """The tensors of a state dict by name, each converted on access.

    **Fields:**

    - `metadata`: plain values that were saved beside the state dict.
    """

    def __init__(self, path: Path):
        self.path = path
        check_regular(path)
        torch = _import_torch(path)
        _check_archive(path)
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # the loader raises whatever a damaged file provokes
            raise FileError(
                f"`{path}` cannot be read as weights alone ({type(error).__name__}): it must be a "
                "state dict saved by `torch.save(model.state_dict(), …)`."
            ) from None
        self.metadata: dict[str, Any] = {}
        for nested in _STATE_DICTS:
            if isinstance(content, dict) and isinstance(content.get(nested), dict):
                beside = [content, *(content.get(name) for name in _SETTINGS)]
                for part in (part for part in beside if isinstance(part, dict)):
                    self.metadata |= {str(k): v for k, v in part.items() if type(v) in (int, str)}
                content = content[nested]
        if not isinstance(content, dict):
            raise FileError(f"`{path}` holds a {type(content).__name__}: must be a state dict.")
        self._torch = torch
        self._tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> np.ndarray:
        tensor, torch = self._tensors[name], self._torch
        shape = tuple(tensor.shape)
        plain = tensor.layout is torch.strided and not tensor.is_quantized
        if not plain or tensor.device.type != "cpu":
            raise FileError(
                f"`{name}` of `{self.path}` is sparse, quantised or without numbers: must be a "
                "plain tensor."
            )
        # With a stride of zero a few numbers can have any shape, and fill the memory when copied.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise FileError(
                f"`{name}` of `{self.path}` has shape {shape} and fewer numbers than that: it must "
                "be saved as a tensor of its own (`.contiguous()`)."
            )
        if not tensor.dtype.is_floating_point:
            return tensor.detach().numpy()
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return tensor.detach().to(wide).numpy()


def _import_torch(path: Path) -> Any:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise FileError(
            f"`{path}` is a PyTorch file and PyTorch is not installed: install it "
            "(`pip install 'torch>=2.6'`), or save the state dict as safetensors."
        ) from None
    version = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < _OLDEST:
        raise FileError(
            f"`{path}` is a PyTorch file and PyTorch {version} is installed, whose loader can be "
            "made to execute code: install 2.6 or newer (`pip install 'torch>=2.6'`), or save the "
            "state dict as safetensors."
        )
    return torch


def _check_archive(path: Path) -> None:
    """Refuses an archive that becomes larger when it is read. PyTorch compresses nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise FileError(
            f"`{path}` cannot be read as weights alone: it is not the archive that `torch.save` "
            "writes since PyTorch 1.6."
        ) from None
    compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if compressed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise FileError(
            f"`{path}` holds more than its own size, compressed: it must be an archive that "
            "`torch.save` wrote."
        )

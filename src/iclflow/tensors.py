"""Reads files of tensors that may be foreign or damaged.

Everything that is wrong with a file is a `FileError` of one sentence. Nothing in a file is run,
and no more memory is used than the file itself takes.
"""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import FileError, parse_json

# By their names in safetensors. Eight-bit floats need scales that no file of this kind holds.
_KINDS = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
# The entry in the metadata of our own files that describes the content, as JSON.
OWN = "iclflow"


def check_regular(path: Path) -> None:
    """Refuses folders, devices without an end, and pipes that block their reader."""
    try:
        kind = path.stat().st_mode
    except OSError as error:
        words = "does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise FileError(f"`{path}` {words}.") from None
    if not stat.S_ISREG(kind):
        what = "folder" if stat.S_ISDIR(kind) else "device or a pipe"
        raise FileError(f"`{path}` is a {what}: must be a file.")


class TensorFile(Mapping[str, Any]):
    """The tensors of a safetensors file by name, each read on demand."""

    def __init__(self, path: Path | str):
        from safetensors import SafetensorError, safe_open

        self.path = Path(path)
        check_regular(self.path)
        try:
            self._file: Any = safe_open(self.path, framework="numpy")
            self.metadata: dict[str, str] = self._file.metadata() or {}
            self._names = tuple(self._file.keys())
        except (SafetensorError, ValueError, OSError):
            raise FileError(f"`{path}` is not a safetensors file of numbers.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.rows(name, slice(None))

    def rows(self, name: str, rows: slice) -> np.ndarray:
        """Some rows of a tensor."""
        from safetensors import SafetensorError

        if name not in self._names:
            raise KeyError(name)
        try:
            part = self._file.get_slice(name)
            kind = str(part.get_dtype())
            if kind not in _KINDS:
                raise FileError(
                    f"`{name}` of `{self.path}` holds numbers of kind {kind}: must be one of "
                    f"{', '.join(_KINDS)}."
                )
            # A tensor without axes has no rows.
            whole = rows == slice(None)
            return self._file.get_tensor(name) if whole else part[rows]
        except (SafetensorError, OSError):
            raise FileError(f"`{name}` of `{self.path}` cannot be read: damaged.") from None

    def about(self) -> dict[str, Any] | None:
        """The description in a file of ours; None for other files."""
        text = self.metadata.get(OWN)
        if text is None:
            return None
        try:
            found = parse_json(text)
        except ValueError as error:
            raise FileError(f"`{self.path}` has metadata that {error}.") from None
        if not isinstance(found, dict):
            raise FileError(f"`{self.path}` has metadata that are no JSON object.")
        return found

"""A figure that has been drawn, and how it is saved."""

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import write_own

if TYPE_CHECKING:
    import matplotlib.figure


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure that has been drawn.

    **Fields:**

    - `data`: every number that is in the picture, by name.
    - `config`: the settings that it was computed with.
    - `caption`: what is to be seen in it; it is saved with the settings.
    """

    figure: "matplotlib.figure.Figure"
    data: dict[str, np.ndarray]
    config: dict[str, Any]
    caption: str = ""


# What `save_drawing` writes.
SUFFIXES = ("pdf", "png", "npz", "toml")


def save_drawing(drawing: Drawing, folder: Path | str, stem: str) -> list[Path]:
    """Writes a drawing as `stem`.pdf, .png, .npz (its data) and .toml (its caption and settings).

    All four are made before the first is written, so that a failure leaves nothing behind. The
    same drawing gives the same bytes. Files of these names that were not written so are refused.
    """
    from ..config import to_toml

    unfit = [key for key, values in drawing.data.items() if values.dtype.kind == "O"]
    if unfit:
        raise TypeError(f"`data` has entries that are no plain arrays: {', '.join(unfit)}.")
    contents = _render(drawing.figure)
    stream = io.BytesIO()
    np.savez_compressed(stream, **drawing.data)  # pyright: ignore[reportArgumentType]
    contents["npz"] = stream.getvalue()
    caption = {"caption": drawing.caption} if drawing.caption else {}
    contents["toml"] = to_toml(caption | drawing.config).encode()
    return _write(contents, folder, stem)


def save_figure(figure: "matplotlib.figure.Figure", folder: Path | str, stem: str) -> list[Path]:
    """Writes a picture alone, as `stem`.pdf and .png."""
    return _write(_render(figure), folder, stem)


def _render(figure: "matplotlib.figure.Figure") -> dict[str, bytes]:
    from .style import style

    contents = {}
    with style():
        for suffix, metadata in (("pdf", {"CreationDate": None}), ("png", None)):
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, metadata=metadata)
            contents[suffix] = stream.getvalue()
    return contents


def _write(contents: dict[str, bytes], folder: Path | str, stem: str) -> list[Path]:
    named = {f"{stem}.{suffix}": content for suffix, content in contents.items()}
    write_own(Path(folder), named)
    return [Path(folder) / name for name in named]

"""A finished figure with its data, how it is saved, and matplotlib's types for annotations."""

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import to_toml, write_own

# matplotlib takes seconds to load: only functions that draw import it.
if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis as Axis
    from matplotlib.figure import Figure as Figure
else:
    Axes = Axis = Figure = Any

# The files that `save_drawing` writes.
SUFFIXES = ("pdf", "png", "npz", "toml")


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A finished figure.

    **Fields:**

    - `data`: every number in the picture, by name.
    - `config`: the settings behind the numbers.
    - `caption`: what the picture shows; saved with the settings.
    """

    figure: Figure
    data: dict[str, np.ndarray]
    config: dict[str, Any]
    caption: str = ""


def save_drawing(drawing: Drawing, folder: Path | str, stem: str) -> list[Path]:
    """Writes a drawing as `stem`.pdf, .png, .npz (its data) and .toml (its caption and settings).

    All four are rendered before the first is written, so that a failure leaves nothing behind. The
    same drawing gives the same bytes. A file of one of these names that
    iclflow did not write is refused, never overwritten.
    """
    missing = np.dtype("O")
    kinds = {key: getattr(values, "dtype", missing).kind for key, values in drawing.data.items()}
    unfit = [key for key, kind in kinds.items() if kind == "O"]
    if unfit:
        raise TypeError(
            f"`data` has entries that are not plain arrays: {', '.join(unfit)}. Write a number as "
            "`np.array(…)`."
        )
    contents = _render(drawing.figure)
    stream = io.BytesIO()
    np.savez_compressed(stream, **drawing.data)  # pyright: ignore[reportArgumentType]
    contents["npz"] = stream.getvalue()
    caption = {"caption": drawing.caption} if drawing.caption else {}
    contents["toml"] = to_toml(caption | drawing.config).encode()
    return _write(contents, folder, stem)


def save_figure(figure: Figure, folder: Path | str, stem: str) -> list[Path]:
    """Writes a figure without its data, as `stem`.pdf and .png."""
    return _write(_render(figure), folder, stem)


def _render(figure: Figure) -> dict[str, bytes]:
    from .style import style

    contents = {}
    with style():
        # A date in the file would change its bytes from one run to the next.
        for suffix, metadata in (("pdf", {"CreationDate": None}), ("png", None)):
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, metadata=metadata)
            contents[suffix] = stream.getvalue()
    return contents


def _write(contents: dict[str, bytes], folder: Path | str, stem: str) -> list[Path]:
    named = {f"{stem}.{suffix}": content for suffix, content in contents.items()}
    write_own(Path(folder), named)
    return [Path(folder) / name for name in named]

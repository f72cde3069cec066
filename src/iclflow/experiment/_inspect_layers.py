"""Inspects layers whose weights alone are known, and the checkpoints of one training."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..checkpoints import Checkpoint, Layer, ReadIn, is_whole_file, load_layers, load_model
from ..files import sha256_of
from ..models import count_inputs
from ..tasks import AbstractTask
from ._inspect import describe_heads, inspect, task_to_inspect


def inspect_layers(layers: tuple[Layer, ...], task: AbstractTask | None) -> dict[str, Any]:
    """What the heads of each layer do, as plain data; their predictions are not known.

    **Arguments:**

    - `task`: says which inputs each label depends on.
    """
    first = layers[0].model
    whole = len(layers) == 1 and not layers[0].left_out
    left_out = list(dict.fromkeys(words for layer in layers for words in layer.left_out))
    return {
        "dim": count_inputs(first),
        "outputs": first.labels,
        "layers": [
            {
                "name": name,
                "heads": model.heads,
                "width": model.circuits.width,
                "left_out": list(missing),
                "labels": [describe_heads(model, task, i, whole) for i in range(model.labels)],
            }
            for name, model, missing in layers
        ],
        "missing": "weights alone do not say how the model is called: it has heads here, but no "
        "loss and no algorithm"
        + (f"; not part of them: {', '.join(left_out)}" if left_out else ""),
    }


def inspect_file(
    path: Path | str,
    heads: int | None = None,
    labels: int | None = None,
    read_in: ReadIn = ReadIn(),
    settings: Mapping[str, Any] | None = None,
    whole: bool = True,
    **options: Any,
) -> tuple[dict[str, Any], Any, AbstractTask | None]:
    """What is in a file, or in the folder of a run, with the SHA-256 of its weights; the model
    (None if its layers alone are known) and the task that it was judged on.

    **Arguments:**

    - `heads`, `labels`, `read_in`, `whole`: as in `load_layers`.
    - `settings`: of the task, as in `task_to_inspect`.
    - `options`: of `inspect`.

    **Example:**

    ```pycon
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
    >>> icl.save_model(icl.Attention.factored(jr.key(0), dim=3, heads=2), path)
    >>> settings = {"context": 20}
    >>> found, model, task = icl.experiment.inspect_file(path, settings=settings, sequences=500)
    >>> model.heads, task.dim
    (2, 3)
    ```
    """
    path, settings = Path(path), settings or {}
    layers = load_layers(path, heads, labels, read_in, whole)
    weights = path / "trajectory.safetensors" if path.is_dir() else path
    if layers is not None:
        task = task_to_inspect(path, layers[0].model, settings)
        found = inspect_layers(layers, task)
        model = None
    else:
        model = load_model(path, heads, labels)
        task = task_to_inspect(path, model, settings)
        found = inspect(model, task, **options)
    about = {"file": str(path), "sha256": sha256_of(weights)}
    return {**about, **found}, model, task


def inspect_checkpoints(
    checkpoints: tuple[Checkpoint, ...],
    progress: Callable[[str], None] = lambda doing: None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """`inspect_file` of every checkpoint, on the same sequences, with its step.

    **Example:**

    ```pycon
    >>> import tempfile
    >>> from iclflow import checkpoints
    >>> folder = tempfile.mkdtemp()
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> icl.save_model(model, f"{folder}/step_7.safetensors")
    >>> found = checkpoints.list_checkpoints(folder).found
    >>> settings = {"context": 20}
    >>> looks = icl.experiment.inspect_checkpoints(found, settings=settings, sequences=500)
    >>> [look["step"] for look in looks]
    [7]
    ```
    """
    # Of zero biases alone nobody can tell that there are some: all are read alike.
    whole = all(is_whole_file(path) for _, path in checkpoints)
    for number, (step, path) in enumerate(checkpoints, 1):
        progress(f"step {step} ({number} of {len(checkpoints)})")
        found, _, _ = inspect_file(path, whole=whole, **options)
        yield {"step": step, **found}
